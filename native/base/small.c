/* small.c - see small.h.
**
** A thread has two chains per size. It takes from and adds to one; the other is full or absent. So
** a thread that alternates at a chain's end does not go to the common list each time.
*/
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "base/small.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEPS = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif
#else
enum { KEEPS = 1 };
#endif

/* Sizes are 24, 40, 56 ... bytes: the usable sizes of glibc's blocks. */
enum { LEAST = 24, STEP = 16, SIZES = 32, MOST = LEAST + STEP * (SIZES - 1) };
enum { CHAIN = 64 };                                  /* blocks of a full chain */
/* Most bytes in the common list: twice the arrays that a cycle of LuaJIT's collector frees. */
static const size_t MOST_KEPT = 16 << 20;

/* A block that is kept. */
struct small {
  struct small *next;                                 /* in its chain; NULL: the last one */
  struct small *next_chain;                           /* of the first block: the next full chain */
};
/* What a thread keeps, by size. */
struct chains {
  struct small *open[SIZES];                          /* the chain it takes from and adds to */
  struct small *full[SIZES];                          /* one more, of CHAIN blocks; NULL: none */
  uint8_t n[SIZES];                                   /* blocks of `open` */
  int64_t bytes;                                      /* not yet added to `counted` */
  bool ends;                                          /* end_thread will run when the thread ends */
};
static _Thread_local struct chains own;

static struct {
  pthread_mutex_t lock;
  struct small *first[SIZES];
  int n[SIZES];                                       /* full chains; read without the lock */
  size_t bytes;
} common = { .lock = PTHREAD_MUTEX_INITIALIZER };
static pthread_key_t thread_end;

/* bytes that a thread may not have added yet */
enum { MOST_OWN = 1 << 16 };
static int64_t counted;

static size_t size_of(int i) { return LEAST + STEP * (size_t)i; }

static int find_size(size_t bytes)
{
  return bytes <= LEAST ? 0 : (int)((bytes - LEAST + STEP - 1) / STEP);
}

bool small_fits(size_t bytes) { return KEEPS && bytes <= MOST; }

size_t small_size(size_t bytes)
{
  return small_fits(bytes) ? size_of(find_size(bytes)) : bytes;
}

size_t small_beyond(size_t bytes) { return KEEPS && bytes < MOST + STEP ? MOST + STEP : bytes; }

static void free_chain(struct small *b)
{
  for (struct small *next; b; b = next) {
    next = b->next;
    free(b);
  }
}

/* Adds a full chain to the common list, or frees it if that has enough. */
static void give_chain(int i, struct small *chain)
{
  const size_t bytes = CHAIN * size_of(i);
  pthread_mutex_lock(&common.lock);
  const bool fits = common.bytes + bytes <= MOST_KEPT;
  if (fits) {
    chain->next_chain = common.first[i];
    common.first[i] = chain;
    common.bytes += bytes;
    __atomic_store_n(&common.n[i], common.n[i] + 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&common.lock);
  if (!fits) free_chain(chain);
}

/* Takes a full chain from the common list; NULL: there is none. */
static struct small *take_chain(int i)
{
  if (!__atomic_load_n(&common.n[i], __ATOMIC_RELAXED)) return NULL;
  pthread_mutex_lock(&common.lock);
  struct small *chain = common.first[i];
  if (chain) {
    common.first[i] = chain->next_chain;
    common.bytes -= CHAIN * size_of(i);
    __atomic_store_n(&common.n[i], common.n[i] - 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&common.lock);
  return chain;
}

bool small_release(void)
{
  bool any = false;
  for (int i = 0; i < SIZES; i++)
    for (struct small *chain; (chain = take_chain(i)); any = true) free_chain(chain);
  return any;
}

/* Frees what an ending thread has kept. Destructors that run later may keep blocks again. */
static void end_thread(void *chains)
{
  struct chains *c = chains;
  for (int i = 0; i < SIZES; i++) {
    free_chain(c->open[i]);
    free_chain(c->full[i]);
  }
  __atomic_add_fetch(&counted, c->bytes, __ATOMIC_RELAXED);
  *c = (struct chains){ 0 };
}

__attribute__((constructor)) static void make_key(void)
{
  pthread_key_create(&thread_end, end_thread);
}

/* Makes end_thread run when the thread ends. Returns false if that is not possible. */
static bool watch_end(struct chains *c)
{
  if (!c->ends) c->ends = !pthread_setspecific(thread_end, c);
  return c->ends;
}

int64_t small_counted(void) { return __atomic_load_n(&counted, __ATOMIC_RELAXED) + own.bytes; }

void small_count(int64_t by)
{
  struct chains *c = &own;
  c->bytes += by;
  if (c->bytes < MOST_OWN && c->bytes > -MOST_OWN && watch_end(c)) return;
  __atomic_add_fetch(&counted, c->bytes, __ATOMIC_RELAXED);
  c->bytes = 0;
}

void *small_take(size_t bytes)
{
  if (!small_fits(bytes)) return NULL;
  struct chains *c = &own;
  const int i = find_size(bytes);
  if (!c->n[i]) {
    struct small *chain = c->full[i] ? c->full[i] : take_chain(i);
    if (!chain) return NULL;
    c->full[i] = NULL;
    c->open[i] = chain;
    c->n[i] = CHAIN;
  }
  struct small *b = c->open[i];
  c->open[i] = b->next;
  c->n[i]--;
  for (size_t at = 0; b->next && at < bytes; at += ALIGN) /* prefetch: it has left the caches */
    __builtin_prefetch((char *)b->next + at, 1);
  return memset(b, 0, bytes < LEAST ? LEAST : bytes);
}

bool small_keep(void *p, size_t usable)
{
  if (!KEEPS || usable < LEAST || usable >= MOST + STEP) return false;
  struct chains *c = &own;
  const int i = (int)((usable - LEAST) / STEP);
  if (!watch_end(c)) return false;
  if (c->n[i] == CHAIN) {
    if (c->full[i]) give_chain(i, c->full[i]);
    c->full[i] = c->open[i];
    c->open[i] = NULL;
    c->n[i] = 0;
  }
  struct small *b = p;
  b->next = c->open[i];
  c->open[i] = b;
  c->n[i]++;
  return true;
}
