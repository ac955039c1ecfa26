/* memory.h - memory of the host: all of it is counted and may fail (TYCHO_MEM_LIMIT). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PAGE: bytes, a multiple of the system's page; aarch64 has pages of 4, 16 or 64 KiB */
#if defined __x86_64__ || defined __i386__
enum { ALIGN = 64, PAGE = 4 << 10 };
#else
enum { ALIGN = 64, PAGE = 64 << 10 };
#endif
/* Returns zeroed memory; NULL with a failure of TY_EMEMORY. */
void *mem_new(size_t bytes);
/* Does the same; the memory begins with a cache line (ALIGN), as vectors of whole lines want it. */
void *mem_lines(size_t bytes);
/* Works as realloc does; the old block stays on failure. */
void *mem_grow(void *p, size_t bytes);
void  mem_free(void *p);
/* Returns zeroed memory as mem_new does, for what is made and freed often: mem_block_free needs its
** size, which mem_free reads from cold memory. */
void *mem_block(size_t bytes);
void  mem_block_free(void *p, size_t bytes);
int64_t  mem_bytes(void);                             /* host bytes in use through mem_new */
int64_t  mem_limit(void);                             /* TYCHO_MEM_LIMIT; 0: none */
/* Fails with TY_EMEMORY and a report of what is in use. */
int   fail_memory(const char *request, size_t bytes, int64_t used, int64_t cached);
char *mem_text(const char *s);                        /* a copy */
#define NEW(T) ((T *)mem_new(sizeof(T)))
static inline void *mem_news(size_t size, int64_t n)
{
  return mem_new(size * (size_t)(n > 0 ? n : 1));
}
/* Returns zeroed memory for n of them, at least one. */
#define NEWS(T, n) ((T *)mem_news(sizeof(T), (int64_t)(n)))
/* Returns a product of sizes; INT64_MAX, which no shape has, if it overflows. */
static inline int64_t size_times(int64_t a, int64_t b)
{
  int64_t n;
  return __builtin_mul_overflow(a, b, &n) ? INT64_MAX : n;
}
static inline size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* An arena gives many small blocks that are freed together. Zero-initialised = empty. */
struct arena { struct arena_block *head; size_t bytes; };   /* bytes: of its blocks */
void *arena_new(struct arena *a, size_t bytes);       /* zeroed, aligned to 16 (8 bytes: to 8) */
char *arena_chars(struct arena *a, size_t n);           /* for a text; not padded */
char *arena_text(struct arena *a, const char *s);
void  arena_done(struct arena *a);

/* Makes room for one more element in a growing array, as GROW(p, n, cap). Returns false if out of
** memory. */
bool grow_array(void **p, int n, int *cap, size_t size);
#define GROW(p, n, cap) grow_array((void **)&(p), n, &(cap), sizeof *(p))

/* -- live objects ------------------------------------------------------------------------------ */

enum {
  LIVE_TENSOR, LIVE_GRAPH, LIVE_EXEC, LIVE_POOL, LIVE_ITER, LIVE_BAG, LIVE_STORAGE, LIVE_HISTORY,
  LIVE_RECORDED,
  LIVE_KINDS
};
bool mem_kept(void);                                     /* since ty_leave nothing is freed */
void live_add(int kind, int by);                          /* counts objects, thread safe */
void live_bytes(int64_t by);
