/* norm.h - loops of normalisations, by rows, columns and channels in blocks. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

/* The relu max(0, a x + c) with a and c per channel. Its gradient is u if a x + c > 0, else 0 u. */
struct ramp { const double *a, *c; };

/* Arguments of `lrn`. */
struct lrn {
  /* alpha of LRN divided by nsize */
  double alpha;
  double beta, knorm;
  /* the window of channel c is c - half .. c + half */
  int64_t half;
};

struct vec_norm {
  /* -- normalisation; r is 1 / the standard deviation -- */

  /* Computes y = (x - mean) r gain + offset, gain and offset per element. offset may be NULL. */
  void   (*norm)(void *y, const void *x, const void *gain, const void *offset, double mean,
      double r, int64_t n);
  /* Sets out[0] to the sum of dy gain, out[1] to the sum of dy gain (x - mean) r. */
  void   (*norm_sums)(const void *dy, const void *x, const void *gain, double mean, double r,
      int64_t n, double out[2]);
  /* Computes the gradient of x from the sums of `norm_sums` divided by n. */
  void   (*norm_back)(void *dx, const void *dy, const void *x, const void *gain, double mean,
      double r, const double mean_of[2], int64_t n);
  /* Adds the gradients of gain and offset to dgain and doffset. doffset may be NULL. */
  void   (*norm_params)(void *dgain, void *doffset, const void *dy, const void *x, double mean,
      double r, int64_t n);
  /* Divides each column by its norm, the root of eps plus the sum of squares, and writes the norms
  ** to `norm` unless it is NULL. */
  void   (*l2_cols)(void *y, void *norm, const void *x, double eps, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `l2_cols` from its results y and norm. */
  void   (*l2_cols_back)(void *dx, const void *dy, const void *y, const void *norm, int64_t k,
      int64_t stride, int64_t n);
  /* Computes local response normalisation of each column: norm = knorm + alpha times the sum of
  ** squares in the window, y = x norm^-beta. y and norm may be NULL. */
  void   (*lrn)(void *y, void *norm, const void *x, const struct lrn *p, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `lrn` from its result norm. `work` has the size of x. */
  void   (*lrn_back)(void *dx, void *work, const void *dy, const void *x, const void *norm,
      const struct lrn *p, int64_t k, int64_t stride, int64_t n);


  /* -- per column, sums and coefficients in double -- */

  /* Adds x to s. */
  void   (*col_sum)(double *s, const void *x, int64_t n);
  /* Adds (x - mean)^2 to s. */
  void   (*col_square)(double *s, const void *x, const double *mean, int64_t n);
  /* Adds u to s and u (x - mean) to t. */
  void   (*col_dot)(double *s, double *t, const void *u, const void *x, const double *mean,
      int64_t n);
  /* Computes y = a x + b. y may be x. */
  void   (*col_affine)(void *y, const void *x, const double *a, const double *b, int64_t n);
  /* Computes y = a u + b v + c. */
  void   (*col_affine2)(void *y, const void *u, const void *v, const double *a, const double *b,
      const double *c, int64_t n);

  /* -- per channel, over n / b rows of b channels, b a divisor of 16 -- */

  /* Adds x to s. */
  void   (*block_sum)(double *s, const void *x, int b, int64_t n);
  /* Adds (x - mean)^2 to s. */
  void   (*block_square)(double *s, const void *x, const double *mean, int b, int64_t n);
  /* Adds u to s and u (x - mean) to t. relu: unless NULL, u is first replaced by the gradient of
  ** the relu at x. */
  void   (*block_dot)(double *s, double *t, const void *u, const void *x, const double *mean,
      const struct ramp *relu, int b, int64_t n);
  /* Computes y = a x + c, or max(a x + c, 0) if `relu`. y may be x. */
  void   (*block_affine)(void *y, const void *x, const double *a, const double *c, bool relu, int b,
      int64_t n);
  /* Computes y = f u + g v + h. relu: unless NULL, u is first replaced by the gradient of the relu
  ** at v. y may be u. */
  void   (*block_affine2)(void *y, const void *u, const void *v, const double *f, const double *g,
      const double *h, const struct ramp *relu, int b, int64_t n);
};
