/* primitives.h - functions that a back end provides so that kernels which use nothing else run on
** its devices unchanged: moves of elements (strided_copy.h), sums over axes, random numbers. Such
** kernels have the flag K_ANYWHERE and pass their call's device. */
#pragma once
#include "base/laws.h"
#include "kernel/kernel.h"

struct move;
struct reduce;
/* Random numbers of a law of base/laws.h, whose name is `law`. draws: the law draws with parameters
** a and b; else numbers are a + b z with the variate z named `standard`, at most limit. law NULL:
** integers low .. low + span - 1. pa and pb, unless NULL, replace a and b by arrays, of which each
** element is for `each` results; pb is NULL for laws with one parameter. LAW_valid checks their
** elements, LAW_affine converts them. call and want: for errors about invalid ones. */
struct random_numbers {
  struct rng_key key;
  const char *law, *standard;
  bool draws;
  double a, b, limit;
  int64_t low;
  uint64_t span;
  const struct operand *pa, *pb;
  int64_t each;
  const struct call *call;                            /* named in failures */
  const char *want;
};
struct primitives {
  /* moves elements, as move_run does */
  int    (*move)(int device, const struct move *m, void *dst, const void *src, size_t size);
  /* sets each element of the move's destination to the first `size` bytes of value */
  int    (*set)(int device, const struct move *m, void *dst, uint64_t value, size_t size);
  /* sums over axes; add: adds to y; tmp: sum_scratch bytes of device memory */
  int    (*sum)(
      int device, const struct reduce *r, const void *x, void *y, bool add, void *tmp);
  size_t (*sum_scratch)(const struct reduce *r);
  /* sets *y, of dtype `to`, to the root of the sum of squares of n numbers; tmp: norm_scratch
  ** bytes */
  int    (*norm)(int device, const void *x, int dtype, int64_t n, void *y, int to, void *tmp);
  size_t (*norm_scratch)(int dtype, int64_t n);
  int    (*random)(int device, const struct random_numbers *r, void *y, int dtype, int64_t n);
};
void primitives_register(int kind, const struct primitives *p);
/* Returns the functions of a device; NULL for the CPU. */
const struct primitives *primitives_of(int device);
