/* vec.h - inner loops over rows that operators share: arithmetic, sums. Loops for one kind of layer
** are in softmax.h, norm.h, pool.h, cell.h, sampler.h and update.h.
**
** There is a table of functions per float type, compiled for each instruction set
** (kernel/vec/isa/vec.c) and selected once. Operands are untyped so that an operator is written
** once for float32 and float64; `vec_at` steps in elements. Scalars are passed as double. Sums add
** blocks of a row in its own type and the blocks in double, in an order that depends on n alone. A
** "column" function handles n neighbouring columns of a matrix with k rows, `stride` elements
** apart, at most ROW_COLS of them per call. Pointers may be equal where a comment says so;
** otherwise they must not overlap. */
#pragma once
#include "kernel/kernel.h"

/* Arguments of `dropout`. */
struct drop {
  struct rng_state rng;
  uint32_t node;
  /* probability that an element is kept: 1 - p */
  double keep;
};

enum { ROW_COLS = 256 };                              /* most columns of a column function */

struct vec_ops {
  /* TY_F32 or TY_F64 */
  int    dtype;
  /* bytes of an element */
  size_t size;

  /* -- one element -- */

  /* Returns x[i]. */
  double (*get)(const void *x, int64_t i);
  /* Sets x[i] to v. */
  void   (*set)(void *x, int64_t i, double v);

  /* -- whole rows -- */

  /* Sets all of y to v. */
  void   (*fill)(void *y, double v, int64_t n);
  /* Copies x to y, in the type of y. */
  void   (*store)(void *y, const double *x, int64_t n);
  /* Adds x to y. */
  void   (*add)(void *y, const void *x, int64_t n);
  /* Computes y = a x + b. y may be x. */
  void   (*affine)(void *y, const void *x, double a, double b, int64_t n);
  /* Computes y = a u + b v + c. y may be u. */
  void   (*affine2)(void *y, const void *u, const void *v, double a, double b, double c, int64_t n);
  /* Computes y = a (u - v). */
  void   (*gap)(void *y, const void *u, const void *v, double a, int64_t n);
  /* Computes y = a where u > v, else -a. */
  void   (*gap_sign)(void *y, const void *u, const void *v, double a, int64_t n);
  /* Multiplies y by x. */
  void   (*multiply)(void *y, const void *x, int64_t n);
  /* Computes y = max(y, 0); NaN stays NaN. */
  void   (*relu)(void *y, int64_t n);
  /* Computes d = u where a x + c > 0, else 0 u. */
  void   (*relu_back)(void *d, const void *u, const void *x, double a, double c, int64_t n);
  /* Computes the sigmoid of x. y may be x. */
  void   (*sigmoid)(void *y, const void *x, int64_t n);
  /* Transposes x (rows, cols) to y (cols, rows). */
  void   (*transpose)(void *y, const void *x, int64_t rows, int64_t cols);
  /* Applies dropout to elements first .. first + n - 1 of a tensor: drops some, multiplies the
  ** others by 1 / keep, and writes the factors to `mask` unless it is NULL. y may be x. */
  void   (*dropout)(void *y, const void *x, void *mask, const struct drop *d, int64_t first,
      int64_t n);
  /* -- sums -- */

  /* Returns the sum of x. */
  double (*sum)(const void *x, int64_t n);
  /* Returns the sum of (x - mean)^2. */
  double (*sum_square)(const void *x, double mean, int64_t n);
  /* Returns the sum of x y. */
  double (*dot)(const void *x, const void *y, int64_t n);
  /* Returns the sum of |x - y|. */
  double (*sum_gap)(const void *x, const void *y, int64_t n);
  /* Returns the maximum of the elements that are not NaN; -infinity if there is none. */
  double (*max)(const void *x, int64_t n);
  /* Sets out[0] to the sum of u, out[1] to the sum of u (x - mean). */
  void   (*sum_dot)(const void *u, const void *x, double mean, int64_t n, double out[2]);
  /* Returns the number of elements above `limit`. */
  int64_t (*count_above)(const void *x, double limit, int64_t n);

  /* -- elements `stride` apart -- */

  /* Adds a x[i] to y[stride i]. */
  void   (*axpy_out)(void *y, const void *x, double a, int64_t stride, int64_t n);
  /* Adds a x[stride i] to y[i]. */
  void   (*axpy_in)(void *y, const void *x, double a, int64_t stride, int64_t n);
  /* Returns the sum of y[stride i] x[i]. */
  double (*dot_out)(const void *y, const void *x, int64_t stride, int64_t n);

  /* -- the loops of one kind of layer: the headers of this folder with these names -- */

  const struct vec_softmax *softmax;
  const struct vec_norm    *norm;
  const struct vec_pool    *pool;
  const struct vec_cell    *cell;
  const struct vec_sampler *sampler;
  const struct vec_update  *update;
};

/* Returns the table of TY_F32 or TY_F64 for this processor. */
const struct vec_ops *vec_ops_of(int dtype);

/* Returns the address of element i of x, NULL if x is NULL. */
static inline void *vec_at(const struct vec_ops *r, const void *x, int64_t i)
{
  return x ? (char *)x + (int64_t)r->size * i : NULL;
}

/* A shape as (outer, k, inner) around one axis. */
struct split { int64_t outer, k, inner; };

/* Returns the shape of d around `axis`. */
static inline struct split split_at(const ty_desc *d, int axis)
{
  struct split s = { 1, d->dim[axis], 1 };
  for (int i = 0; i < axis; i++) s.outer *= d->dim[i];
  for (int i = axis + 1; i < d->ndim; i++) s.inner *= d->dim[i];
  return s;
}

/* Returns element i of an operand of any dtype, such as labels or lengths. */
double  number_at(const struct operand *a, int64_t i);
/* Returns element i truncated and clipped to 0 .. n - 1; 0 for NaN. */
int64_t index_at(const struct operand *a, int64_t i, int64_t n);
/* Returns element i truncated; INT64_MIN for NaN and for numbers out of the range of int64_t. */
int64_t whole_at(const struct operand *a, int64_t i);
