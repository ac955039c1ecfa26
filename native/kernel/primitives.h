/* primitives.h - what a back end provides so that kernels which are made of nothing else run on its
** devices unchanged: moves of elements (strided_copy.h), sums over axes, random numbers. Such
** kernels carry the flag K_ANYWHERE and hand on their call's device. */
#pragma once
#include "base/laws.h"
#include "kernel/kernel.h"

struct move;
struct reduce;
/* Numbers of a law, by its name in base/laws.h: what it draws for a and b, or a + b z of a standard
** variate z, at most limit; law NULL: whole ones, from low, below low + span. pa and pb (NULL: one)
** are parameters of `each` elements in turn, instead of a and b, which LAW_valid looks at and, of a
** standard variate, LAW_affine is given; op and want: for what it finds. */
struct random_numbers {
  struct rng_key key;
  const char *law, *standard;
  bool draws;
  double a, b, limit;
  int64_t low;
  uint64_t span;
  const struct operand *pa, *pb;
  int64_t each;
  const struct call *call;                            /* whose failures are reported */
  const char *want;
};
struct primitives {
  /* moves elements; dst and src are on the device */
  int    (*move)(int device, const struct move *m, void *dst, const void *src, size_t size);
  /* each place of the nest becomes the one element that `value` begins with */
  int    (*set)(int device, const struct move *m, void *dst, uint64_t value, size_t size);
  /* sums; add: onto what y holds; tmp: sum_scratch bytes */
  int    (*sum)(
      int device, const struct reduce *r, const void *x, void *y, bool add, void *tmp);
  size_t (*sum_scratch)(const struct reduce *r);
  /* y, of dtype `to`: the root of the sum of the squares of n numbers; tmp: norm_scratch bytes */
  int    (*norm)(int device, const void *x, int dtype, int64_t n, void *y, int to, void *tmp);
  size_t (*norm_scratch)(int dtype, int64_t n);
  int    (*random)(int device, const struct random_numbers *r, void *y, int dtype, int64_t n);
};
void primitives_register(int kind, const struct primitives *p);
/* Returns the functions of a device; NULL: the CPU's own. */
const struct primitives *primitives_of(int device);
