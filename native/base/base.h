/* base.h - errors, memory and text for every other file of the core.
**
** An error is a positive code (tycho.h) plus one thread-local failure: a line of text and its
** parts. `fail` starts a new failure; the fail_* functions add parts to the current one as it
** travels up, and never overwrite a part that is already set, so that the place nearest to the
** mistake wins.
*/
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tycho.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define TRY(e) do { int try_ = (e); if (try_ != TY_OK) return try_; } while (0)
#define NEED(c, code, ...) do { if (!(c)) return fail(code, __VA_ARGS__); } while (0)

/* -- errors ------------------------------------------------------------------------------------ */

/* returns code */
int  fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* NULL parts are left alone */
void fail_node(const char *op, const char *node, const char *where);
void fail_argument(const char *argument, const char *expected, const char *got);
/* a failure that outlives its thread's next one */
struct failure;
/* copies this thread's failure; one reference */
struct failure *failure_take(int code);
struct failure *failure_keep(struct failure *f);
void failure_drop(struct failure *f);                 /* NULL allowed */
/* somebody has been told: marks that point to it are void */
bool failure_told(const struct failure *f);
void failure_void(struct failure *f);                 /* marks it told without telling */
/* makes it this thread's, marks it told, returns its code */
int  failure_tell(struct failure *f);

/* -- memory: all of it is counted and may fail (TYCHO_MEM_LIMIT) ------------------------------- */

enum { ALIGN = 64, PAGE = 4096 };
/* zeroed; NULL and a failure of TY_EMEMORY when out of memory */
void *mem_new(size_t bytes);
/* as realloc; the old block stays on failure */
void *mem_grow(void *p, size_t bytes);
void  mem_free(void *p);
uint64_t mem_count(void);                             /* allocations made by this thread so far */
int64_t  mem_bytes(void);                             /* host bytes in use through mem_new */
int64_t  mem_limit(void);                             /* TYCHO_MEM_LIMIT; 0: none */
/* TY_EMEMORY with a report */
int   fail_memory(const char *place, size_t wanted, int64_t used, int64_t cached);
char *mem_text(const char *s);                        /* a copy */
#define NEW(T) ((T *)mem_new(sizeof(T)))
#define NEWS(T, n) ((T *)mem_new(sizeof(T) * (size_t)((n) > 0 ? (n) : 1)))
static inline int64_t size_times(
    int64_t a, int64_t b) /* of sizes; INT64_MAX, which no shape takes, when it overflows */
{
  int64_t n;
  return __builtin_mul_overflow(a, b, &n) ? INT64_MAX : n;
}
static inline size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* An arena gives many small blocks that are freed together. Zero-initialised = empty. */
struct arena { struct arena_block *head; };
void *arena_new(struct arena *a, size_t bytes);       /* zeroed, aligned to 16 */
char *arena_text(struct arena *a, const char *s);
void  arena_done(struct arena *a);

/* GROW(p, n, cap): room for one more element in a growing array; false when out of memory */
bool grow_array(void **p, int n, int *cap, size_t size);
#define GROW(p, n, cap) grow_array((void **)&(p), n, &(cap), sizeof *(p))

/* -- text -------------------------------------------------------------------------------------- */

/* zero-initialised = empty; lost: out of memory on the way */
struct text { char *s; size_t n, cap; bool lost; };
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_put(struct text *t, const char *s, size_t n);
void text_done(struct text *t);
/* "(2, 3)"; unknown: "?" a dim, "(?)" all */
const char *text_shape(const ty_desc *d, char *buffer, size_t size);
double name_distance(const char *a, const char *b);   /* edit distance, for "did you mean" */

/* -- live objects and environment -------------------------------------------------------------- */

enum { LIVE_TENSOR, LIVE_GRAPH, LIVE_EXEC, LIVE_POOL, LIVE_ITER, LIVE_BAG, LIVE_STORAGE, LIVE_KINDS };
void live(int kind, int by);                          /* counts objects, thread safe */
void live_bytes(int64_t by);
const char *env_text(const char *name, const char *otherwise);
int64_t env_number(const char *name, int64_t otherwise);
bool env_disabled(const char *what);                  /* TYCHO_DISABLE names it */
bool interrupted(void);                               /* somebody asks every running call to stop */

/* -- the processor (device/platform.c) --------------------------------------------------------- */

enum { CPU_BASELINE, CPU_AVX2, CPU_AVX512 };
/* CPU_*: the best this machine runs, at most TYCHO_CPU */
int  cpu_level(void);
void gpu_absence(struct text *t);                     /* why there is no GPU here, in words */
const char *cpu_path(void);                           /* "baseline" "avx2" "avx512" */
