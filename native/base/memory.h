/* memory.h - host memory. All of it is counted, and allocations fail beyond TYCHO_MEM_LIMIT. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In bytes. ALIGN: a cache line. PAGE: a multiple of the system's page size, which is 4, 16 or 64
** KiB on aarch64. */
#if defined __x86_64__ || defined __i386__
enum { ALIGN = 64, PAGE = 4 << 10 };
#else
enum { ALIGN = 64, PAGE = 64 << 10 };
#endif
/* Returns zeroed memory, to be freed by mem_free; NULL: out of memory, with TY_EMEMORY set. */
void *mem_new(size_t bytes);
/* Does the same, aligned to a cache line (ALIGN) for vector loads of whole lines. */
void *mem_lines(size_t bytes);
/* Resizes a block as realloc does. On failure it returns NULL and the old block stays valid. */
void *mem_grow(void *p, size_t bytes);
void  mem_free(void *p);
/* Returns zeroed memory for objects that are made and freed often. Free it with mem_block_free and
** the same size: mem_free would read the size from memory that is not in the cache. */
void *mem_block(size_t bytes);
void  mem_block_free(void *p, size_t bytes);
/* Returns the bytes in use from the functions of this header. */
int64_t  mem_bytes(void);
/* Returns TYCHO_MEM_LIMIT in bytes; 0: there is none. */
int64_t  mem_limit(void);
/* Fails with TY_EMEMORY and a report: `bytes` were wanted for `request`, `used` are in use, and
** `cached` are kept free for reuse. */
int   fail_memory(const char *request, size_t bytes, int64_t used, int64_t cached);
/* Returns a copy of s, to be freed by mem_free; NULL: out of memory. */
char *mem_text(const char *s);
#define NEW(T) ((T *)mem_new(sizeof(T)))
static inline void *mem_news(size_t size, int64_t n)
{
  return mem_new(size * (size_t)(n > 0 ? n : 1));
}
/* Returns zeroed memory for n elements of type T, at least one; NULL: out of memory. */
#define NEWS(T, n) ((T *)mem_news(sizeof(T), (int64_t)(n)))
/* Returns a * b; INT64_MAX, which no shape can have, on overflow. */
static inline int64_t size_times(int64_t a, int64_t b)
{
  int64_t n;
  return __builtin_mul_overflow(a, b, &n) ? INT64_MAX : n;
}
static inline size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* An arena holds many small blocks that are freed together. Zero-initialised: empty. Its functions
** return NULL without memory. */
struct arena {
  struct arena_block *head;
  size_t bytes;                                       /* taken from mem_new so far */
};
/* Returns zeroed memory, aligned to 16 bytes (to 8 if it has 8 bytes). */
void *arena_new(struct arena *a, size_t bytes);
/* Returns n bytes, not aligned, for a text with its final 0. */
char *arena_chars(struct arena *a, size_t n);
/* Returns a copy of s. */
char *arena_text(struct arena *a, const char *s);
/* Frees all blocks; the arena is empty again. */
void  arena_done(struct arena *a);

/* Makes room for element n of a growing array: GROW(p, n, cap). Returns false if out of memory; the
** array stays as it was. */
bool grow_array(void **p, int n, int *cap, size_t size);
#define GROW(p, n, cap) grow_array((void **)&(p), n, &(cap), sizeof *(p))

/* -- live objects ------------------------------------------------------------------------------ */

enum {
  LIVE_TENSOR, LIVE_GRAPH, LIVE_EXEC, LIVE_POOL, LIVE_ITER, LIVE_BAG, LIVE_STORAGE, LIVE_HISTORY,
  LIVE_RECORDED,
  LIVE_KINDS
};
/* Returns whether ty_leave was called: from then on nothing is freed. */
bool mem_kept(void);
/* Adds `by` to the number of live objects of a kind (LIVE_*). Thread safe. */
void live_add(int kind, int by);
/* Adds `by` to the live bytes of tensors. Thread safe. */
void live_bytes(int64_t by);
