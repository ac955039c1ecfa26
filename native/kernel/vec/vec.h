/* vec.h - inner loops of the layer operators: sums, softmax, normalisation, pooling, recurrent
** cells, over rows.
**
** A table of functions per float type, compiled for each instruction set (kernel/vec/isa/vec.c)
** and chosen once. Operands are untyped so that an operator file is written once for float32 and
** float64: `vec_at` steps in elements. Scalars travel as double. Sums add blocks of a row in its
** own type and the blocks in double, in an order that depends on n alone. A "column" function works
** on n neighbouring columns of a matrix with k rows that are `stride` elements apart, at most
** ROW_COLS of them in a call. Pointers may be equal where a comment says so; they never overlap
** otherwise.
*/
#pragma once
#include "kernel/kernel.h"

/* Arguments of `dropout`. */
struct drop {
  struct rng_state rng;
  uint32_t node;
  /* probability that an element is kept: 1 - p */
  double keep;
};

/* Hyperparameters of `adam`, by their names in adam_update. */
struct adam { double lr, beta1, beta2, epsilon, wd, rescale; };

/* Arguments of `svm`. */
struct svm {
  double margin;
  /* factor of the gradient */
  double scale;
  /* the hinge loss, else its square */
  bool linear;
};

/* max(0, a x + c), a and c per channel: its gradient is u where a x + c > 0, else 0 u. */
struct ramp { const double *a, *c; };

/* Arguments of `lrn`. */
struct lrn {
  /* alpha of LRN over nsize */
  double alpha;
  double beta, knorm;
  /* the window of channel c is c - half .. c + half */
  int64_t half;
};

/* Images (c, h, w) that are sampled at n places. */
struct image { int64_t c, h, w, n; };

/* A row of windows over channels in blocks. */
struct pool_row {
  /* lines under each window */
  int64_t rows;
  /* places from one line to the next */
  int64_t line;
  /* places of a line */
  int64_t in;
  /* places of a window along a line */
  int64_t kernel;
  /* places from one window to the next */
  int64_t stride;
  /* places by which the first window begins before the line */
  int64_t pad;
  /* number of windows */
  int64_t n;
  /* channels of a block: 16, 8 or 4 */
  int b;
  /* number of the first tap */
  int tap;
  /* every maximum gets the gradient, not only the first one */
  bool all;
};

enum {
  /* the tap of a window without a maximum */
  NO_TAP = 255,
  /* most columns of a call of a column function */
  ROW_COLS = 256
};

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
  /* Computes y = max(y, 0), of NaN NaN. */
  void   (*relu)(void *y, int64_t n);
  /* Computes d = u where a x + c > 0, else 0 u. */
  void   (*relu_back)(void *d, const void *u, const void *x, double a, double c, int64_t n);
  /* Computes the sigmoid of x. y may be x. */
  void   (*sigmoid)(void *y, const void *x, int64_t n);
  /* Transposes x (rows, cols) to y (cols, rows). */
  void   (*transpose)(void *y, const void *x, int64_t rows, int64_t cols);
  /* Drops elements first .. first + n - 1 of a tensor, scales the others by 1 / keep and writes the
  ** factors to `mask` unless it is NULL. y may be x. */
  void   (*dropout)(void *y, const void *x, void *mask, const struct drop *d, int64_t first,
      int64_t n);
  /* Computes the weights y after a step of Adam from w, bit for bit as the formula of adam_update
  ** does. y may be w. */
  void   (*adam)(void *y, const void *w, const void *g, void *mean, void *var, const struct adam *k,
      int64_t n);
  /* Computes the gradient of every class as if none were the target. */
  void   (*svm)(void *dx, const void *y, const struct svm *s, int64_t n);

  /* -- sums -- */

  /* Returns the sum of x. */
  double (*sum)(const void *x, int64_t n);
  /* Returns the sum of (x - mean)^2. */
  double (*sum_square)(const void *x, double mean, int64_t n);
  /* Returns the sum of x y. */
  double (*dot)(const void *x, const void *y, int64_t n);
  /* Returns the sum of |x - y|. */
  double (*sum_gap)(const void *x, const void *y, int64_t n);
  /* Returns the maximum of what is not NaN, -infinity if there is no such element. */
  double (*max)(const void *x, int64_t n);
  /* Sets out[0] to the sum of u, out[1] to the sum of u (x - mean). */
  void   (*sum_dot)(const void *u, const void *x, double mean, int64_t n, double out[2]);
  /* Returns the number of elements above `limit`. */
  int64_t (*count_above)(const void *x, double limit, int64_t n);

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
  /* Adds u to s and u (x - mean) to t, with the gradient of `relu` at x in the place of u unless
  ** relu is NULL. */
  void   (*block_dot)(double *s, double *t, const void *u, const void *x, const double *mean,
      const struct ramp *relu, int b, int64_t n);
  /* Computes y = a x + c, or max(a x + c, 0) if `relu`. y may be x. */
  void   (*block_affine)(void *y, const void *x, const double *a, const double *c, bool relu, int b,
      int64_t n);
  /* Computes y = f u + g v + h, with the gradient of `relu` at v in the place of u unless relu is
  ** NULL. y may be u. */
  void   (*block_affine2)(void *y, const void *u, const void *v, const double *f, const double *g,
      const double *h, const struct ramp *relu, int b, int64_t n);

  /* -- softmax: `scale` is 1 / temperature, negative for softmin -- */

  /* Computes the softmax of scale x, or its logarithm if `log`. y may be x. */
  void   (*soft)(void *y, const void *x, double scale, bool log, int64_t n);
  /* Computes the gradient of `soft` from its result y. */
  void   (*soft_back)(void *dx, const void *y, const void *dy, double scale, bool log, int64_t n);
  /* Computes `soft` of each column. */
  void   (*soft_cols)(void *y, const void *x, double scale, bool log, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `soft_cols` from its result y. */
  void   (*soft_cols_back)(void *dx, const void *y, const void *dy, double scale, bool log,
      int64_t k, int64_t stride, int64_t n);
  /* Computes y = e^(x - m), where no x is above m, and returns the sum of y. y may be x. */
  double (*exp_sum)(void *y, const void *x, double m, int64_t n);
  /* Computes dx = (dy - mean) y, and 0 where y is 0. dx may be dy. */
  void   (*soft_gap)(void *dx, const void *y, const void *dy, double mean, int64_t n);

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
  /* Divides each column by its norm, the root of eps plus its squares, and writes the norms to
  ** `norm` unless it is NULL. */
  void   (*l2_cols)(void *y, void *norm, const void *x, double eps, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `l2_cols` from its results y and norm. */
  void   (*l2_cols_back)(void *dx, const void *dy, const void *y, const void *norm, int64_t k,
      int64_t stride, int64_t n);
  /* Computes local response normalisation of each column: norm = knorm + alpha times the squares of
  ** the window, y = x norm^-beta. y and norm may be NULL. */
  void   (*lrn)(void *y, void *norm, const void *x, const struct lrn *p, int64_t k, int64_t stride,
      int64_t n);
  /* Computes the gradient of `lrn` from its result norm. `work` has the size of x. */
  void   (*lrn_back)(void *dx, void *work, const void *dy, const void *x, const void *norm,
      const struct lrn *p, int64_t k, int64_t stride, int64_t n);

  /* -- pooling: one tap of a window over n outputs whose inputs are `stride` apart -- */

  /* Computes y = max(y, x). */
  void   (*tap_max)(void *y, const void *x, int64_t stride, int64_t n);
  /* Adds x^power to y. */
  void   (*tap_add)(void *y, const void *x, int64_t stride, int power, int64_t n);
  /* Adds left to dx where x == y, and then sets left to 0 there unless `all`. */
  void   (*tap_max_back)(void *dx, void *left, const void *x, const void *y, int64_t stride,
      bool all, int64_t n);
  /* Sets argmax to `here` where x == y. */
  void   (*argmax)(int32_t *argmax, const void *x, const void *y, int64_t stride, int32_t here,
      int64_t n);
  /* Adds dy[i] to dx[stride i + argmax[i]] unless argmax[i] is INT32_MIN. */
  void   (*scatter_argmax)(void *dx, const int32_t *argmax, const void *dy, int64_t stride,
      int64_t n);
  /* Adds g to dx. */
  void   (*tap_add_back)(void *dx, const void *g, int64_t stride, int64_t n);
  /* Adds g (x / y)^(power - 1) to dx where y is not 0. */
  void   (*tap_power_back)(void *dx, const void *g, const void *x, const void *y, int64_t stride,
      int power, int64_t n);
  /* Computes the maxima y of windows 2 x 2, 2 apart, over the input rows x0 and x1. */
  void   (*max2)(void *y, const void *x0, const void *x1, int64_t n);
  /* Sets argmax to the first of the four taps that is y, else to NO_TAP. */
  void   (*max2_argmax)(uint8_t *argmax, const void *x0, const void *x1, const void *y, int64_t n);
  /* Sets both rows to dy at the taps of argmax, and to 0 elsewhere. */
  void   (*max2_back)(void *dx0, void *dx1, const uint8_t *argmax, const void *dy, int64_t n);
  /* Computes y = y^(1 / power). */
  void   (*root)(void *y, int power, int64_t n);

  /* -- pooling of a row of windows over channels in blocks -- */

  /* Computes the maximum of y and each window if `max`, else adds the window to y. */
  void   (*block_pool)(void *y, const void *x, const struct pool_row *p, bool max);
  /* Sets argmax to the first tap that is y, else to NO_TAP. */
  void   (*block_argmax)(uint8_t *argmax, const void *y, const void *x, const struct pool_row *p);
  /* Adds dy to dx at the taps of argmax. */
  void   (*block_scatter_argmax)(void *dx, const uint8_t *argmax, const void *dy,
      const struct pool_row *p);
  /* Adds dy to dx, at the maximum y of x if `max`, else at all taps and without reading x and y. */
  void   (*block_pool_back)(void *dx, const void *dy, const void *x, const void *y,
      const struct pool_row *p, bool max);

  /* -- recurrent cells of n units for one sample; pre: sums of products -- */

  /* Computes h = tanh(pre + bias), or max(pre + bias, 0) if `relu`. */
  void   (*rnn)(void *h, const void *pre, const void *bias, bool relu, int64_t n);
  /* Computes the gradient of pre from h. */
  void   (*rnn_back)(void *dpre, const void *h, const void *dh, bool relu, int64_t n);
  /* Computes h, the cell c and the activations of the gates i f g o. gate may be pre, c may be
  ** c0. */
  void   (*lstm)(void *h, void *c, void *gate, const void *pre, const void *bias, const void *c0,
      int64_t n);
  /* Computes the gradient of pre, and replaces the gradient of c in dc by that of c0. */
  void   (*lstm_back)(void *dpre, void *dc, const void *gate, const void *c, const void *c0,
      const void *dh, int64_t n);
  /* Computes h again from the gates and the cell. */
  void   (*lstm_out)(void *h, const void *gate, const void *c, int64_t n);
  /* Computes h, the activations of the gates r z n, and hn, the product inside gate n. */
  void   (*gru)(void *h, void *gate, void *hn, const void *x, const void *hx, const void *bx,
      const void *bh, const void *h0, int64_t n);
  /* Computes the gradients of x and hx, and replaces the gradient of h in dh by that part of h0's
  ** that does not pass through hx. */
  void   (*gru_back)(void *dx, void *dhx, void *dh, const void *gate, const void *hn,
      const void *h0, int64_t n);

  /* -- images; a grid has h w places: x in -1 .. 1 (left to right), then y (top to bottom) -- */

  /* Computes theta (2, 3) times (x, y, 1) of a regular grid. */
  void   (*grid)(void *grid, const void *theta, int64_t h, int64_t w);
  /* Computes the gradient of theta. */
  void   (*grid_back)(void *dtheta, const void *dgrid, int64_t h, int64_t w);
  /* Computes bilinear samples y (c, n) of x; pixels outside it count as 0. */
  void   (*sample)(void *y, const void *x, const void *grid, const struct image *s);
  /* Adds the gradient of x to dx and sets dgrid to that of the grid. Either may be NULL. */
  void   (*sample_back)(void *dx, void *dgrid, const void *dy, const void *x, const void *grid,
      const struct image *s);
  /* Writes each x `scale` times. */
  void   (*repeat)(void *y, const void *x, int64_t scale, int64_t n);
  /* Adds sums of `scale` neighbours of x to y. */
  void   (*collect)(void *y, const void *x, int64_t scale, int64_t n);
  /* Adds a x[i] to y[stride i]. */
  void   (*axpy_out)(void *y, const void *x, double a, int64_t stride, int64_t n);
  /* Adds a x[stride i] to y[i]. */
  void   (*axpy_in)(void *y, const void *x, double a, int64_t stride, int64_t n);
  /* Returns the sum of y[stride i] x[i]. */
  double (*dot_out)(const void *y, const void *x, int64_t stride, int64_t n);
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

/* Returns element i, of any dtype: labels, lengths. */
double  number_at(const struct operand *a, int64_t i);
/* Returns element i truncated and clipped to 0 .. n - 1, 0 for NaN. */
int64_t index_at(const struct operand *a, int64_t i, int64_t n);
/* Returns element i truncated, INT64_MIN for NaN and for what does not fit. */
int64_t whole_at(const struct operand *a, int64_t i);
