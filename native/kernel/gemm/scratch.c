/* scratch.c - buffers of a thread, kept between products. */
#include <pthread.h>
#include "kernel/gemm/inner.h"

struct own_buffer { void *p; size_t bytes; };
struct own_buffers {
  struct own_buffer panels;
  struct own_buffer strips;
  uint64_t what;                                      /* argument of the last gemm_scratch */
};

static __thread struct own_buffers own;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Frees the buffers of a thread that ends. */
static void scratch_free_own(void *buffers)
{
  struct own_buffers *x = buffers;
  mem_free(x->panels.p);
  mem_free(x->strips.p);
  *x = (struct own_buffers){ 0 };
}

static void scratch_make_key(void) { pthread_key_create(&key, scratch_free_own); }

/* Makes a buffer at least that large, and returns it; its contents are lost where it grows. NULL:
** out of memory, the buffer stays as it is. */
static void *scratch_grow(struct own_buffer *buffer, size_t bytes)
{
  if (bytes <= buffer->bytes) return buffer->p;
  bytes = align_up(bytes, 65536);
  void *p = mem_lines(bytes);
  if (!p) return NULL;
  pthread_once(&once, scratch_make_key);
  pthread_setspecific(key, &own);
  mem_free(buffer->p);
  *buffer = (struct own_buffer){ p, bytes };
  return p;
}

void *gemm_scratch(size_t bytes, uint64_t what, bool *is_same)
{
  *is_same = own.panels.p && own.what == what;
  void *p = scratch_grow(&own.panels, bytes);
  if (p) own.what = what;
  return p;
}

void *gemm_strip_scratch(size_t bytes) { return scratch_grow(&own.strips, bytes); }
