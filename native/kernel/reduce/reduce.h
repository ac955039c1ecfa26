/* reduce.h - sums, products, extremes over axes of an array, and their gradients.
**
** Elements are reduced in double (floats) or int64 (integers, wrapping), in an order that depends
** on the shape alone. Loops per dtype, compiled for each instruction set (kernel/reduce/isa) and
** selected by types.c, reduce many rows or columns per call; reduce.c walks the shape. Order of
** calls: reduce_plan, then reduce_run or reduce_back any number of times. */
#pragma once
#include "kernel/kernel.h"

/* Reductions. R_DEVIATION: sum of (x - centre)^2, `centre` one per result, in x's dtype. */
enum { R_SUM, R_NANSUM, R_ABS, R_SQUARE, R_PROD, R_NANPROD, R_MAX, R_MIN, R_DEVIATION, R_KINDS };

/* Conversions of reduced values to results: none, divided by the count, square root. */
enum { F_NONE, F_MEAN, F_ROOT };

/* Gradients from data x, result y, head gradient g, scale s and a second head gradient h:
**   B_SUM g s, B_NANSUM g s but 0 at NaN, B_SIGN g sign x, B_ROOT g x / y, B_PROD g y / x,
**   B_NANPROD g y / x but 0 at NaN, B_EQUAL g where x = y, B_DEVIATION g s + 2 h s (x - y),
**   B_SQUARE 2 g x. */
enum { B_SUM, B_NANSUM, B_SIGN, B_ROOT, B_PROD, B_NANPROD, B_EQUAL, B_DEVIATION, B_SQUARE,
       B_KINDS };
/* A reduction of the axes whose bits are set. */
struct axis_reduction { uint32_t axes; int kind, finish; };
typedef union { double f; int64_t i; } accumulator;

/* The loops of one dtype. x has `count` rows of n elements, `stride` apart. rows: reduces row i
** into acc[i]; cols: column j into acc[j]. best_cols: handles row i of a scan for the first extreme
** of each column; i = 0 begins it. find: returns the first element that equals the value; for NaN,
** the first NaN. back: computes dx[i * n + j] from x, y, g, h; y, g, h have one element per row
** (back_rows) or per column. */
typedef void (*reduce_fn)(
    accumulator *acc, const void *x, const void *centre, int64_t count, int64_t stride, int64_t n);
typedef void (*back_fn)(void *dx, const void *x, const void *y, const void *g, const void *h,
    double scale, int64_t count, int64_t n);
struct reducer {
  reduce_fn rows[R_KINDS], cols[R_KINDS];
  void  (*merge[R_KINDS])(accumulator *acc, const accumulator *part, int64_t n);
  void  (*start)(accumulator *acc, int kind, int64_t n);
  void  (*store)(void *y, const accumulator *acc, int finish, int64_t count, bool add, int64_t n);
  void  (*best_cols)(accumulator *best, int64_t *index, const void *x, bool least, int64_t i,
      int64_t n);
  int64_t (*find)(const void *x, accumulator value, int64_t n);
  back_fn back_rows[B_KINDS], back_cols[B_KINDS];
};
/* Returns the loops of float32, float64, int64, int32 or bfloat16; bfloat16 has only rows, cols,
** merge, start and store. For uint8, int8 and bool returns those of int64, of which only start and
** merge apply to them. */
const struct reducer *reducer_of(int dtype);

/* Run the same loops on arrays of any of these dtypes; results of bool are 0 or 1. Products of
** 8-bit integers are correct in the lower 32 bits of their accumulators, which is enough for
** results. */
void reducer_rows(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n);
void reducer_cols(int dtype, int kind, accumulator *acc, const void *x, const void *centre,
    int64_t count, int64_t stride, int64_t n);
void reducer_store(int dtype, void *y, const accumulator *acc, int finish, int64_t count, bool add,
    int64_t n);
void reducer_back_rows(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n);
void reducer_back_cols(int dtype, int kind, void *dx, const void *x, const void *y, const void *g,
    const void *h, double scale, int64_t count, int64_t n);
/* Writes the indices of the first extremes of `count` rows of n >= 1 elements. */
void reducer_best_rows(
    int dtype, int64_t *index, const void *x, bool least, int64_t count, int64_t n);
enum { BEST_RESULTS = 256 };
/* Does the same for n <= BEST_RESULTS columns of count >= 1 rows, `stride` elements apart. */
void reducer_best_cols(int dtype, int64_t *index, const void *x, bool least, int64_t count,
    int64_t stride, int64_t n);

/* The shape as alternating groups of kept and reduced axes. */
enum { R_AXES = 2 * TY_MAXDIM };
struct reduce {
  int     dtype;                                      /* dtype of x */
  int     n;                                          /* number of groups */
  int     inner;                                      /* whether the last group is reduced */
  /* dtype of y, which plans set to that of x; for integers the caller may set float32 or int64 */
  int     result;
  int64_t dim[R_AXES];
  int64_t from[R_AXES];                               /* strides in x */
  int64_t to[R_AXES];                                 /* strides in y, 0 for reduced groups */
  int64_t in;                                         /* elements of x */
  int64_t out;                                        /* elements of y */
  int64_t count;                                      /* elements per result */
  /* if there are few results: the group that is reduced in `parts` parts; else -1 */
  int     split;
  int64_t parts;
};
/* Plans a reduction over the axes whose bits are set. */
void   reduce_plan(const ty_desc *d, uint32_t axes, struct reduce *r);
/* Plans a reduction over the axes that `to` lacks or has with size 1; `to` broadcasts to d. */
void   reduce_plan_to(const ty_desc *d, const ty_desc *to, struct reduce *r);
/* Plans a reduction of an array of n <= R_AXES axes. */
void   reduce_plan_axes(int dtype, int n, const int64_t *dim, uint32_t axes, struct reduce *r);
size_t reduce_scratch(const struct reduce *r);
void reduce_run(const struct reduce *r, int kind, int finish, const void *x, const void *centre,
    void *y, bool add, void *tmp);
/* Computes R_SUM on the device of x and y; tmp: reduce_sum_scratch bytes there. */
size_t reduce_sum_scratch(int device, const struct reduce *r);
int reduce_sum(int device, const struct reduce *r, const void *x, void *y, bool add, void *tmp);
void reduce_back(const struct reduce *r, int kind, void *dx, const void *x, const void *y,
    const void *g, const void *h, double scale);
