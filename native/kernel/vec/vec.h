/* vec.h - inner loops of the layer operators: sums, softmax, normalisation, pooling, recurrent
** cells, over rows.
**
** A table of functions per float type, compiled for each instruction set (kernel/vec/isa/vec.c)
** and chosen once. Operands are untyped so that an operator file is written once for float32 and
** float64: `at` steps in elements. Scalars travel as double. Sums add blocks of a row in its own
** type and the blocks in double, in an order that depends on n alone. A "column" function works
** on n neighbouring columns of a matrix with k rows that are `stride` elements apart. Pointers
** may be equal where a comment says so; they never overlap otherwise.
*/
#pragma once
#include "kernel/kernel.h"

/* dropout: probability `keep` = 1 - p */
struct drop { struct rng_state rng; uint32_t node; double keep; };
struct adam { double lr, beta1, beta2, epsilon, wd, rescale; };
struct svm  { double margin, scale; bool linear; };
/* max(0, a x + c), per channel: its gradient is u where a x + c > 0, else 0 u */
struct ramp { const double *a, *c; };
/* alpha / nsize; window of c - half .. c + half */
struct lrn  { double alpha, beta, knorm; int64_t half; };

/* (c, h, w), sampled at n places */
struct image { int64_t c, h, w, n; };

/* A row of n windows over channels in blocks of b: `rows` lines of `in` places, `line` places
** apart, under each window; `all`: every maximum gets the gradient, not only the first. */
/* tap: the number of the first */
struct pool_row { int64_t rows, line, in, kernel, stride, pad, n; int b, tap; bool all; };

struct vec_ops {
  int    dtype;
  size_t size;
  /* one element */
  double (*get)(const void *x, int64_t i);
  void   (*set)(void *x, int64_t i, double v);
  /* whole rows */
  void   (*fill)(void *y, double v, int64_t n);
  void   (*store)(void *y, const double *x, int64_t n);
  void   (*add)(void *y, const void *x, int64_t n);                          /* y += x */
  /* y = a x + b; y may be x */
  void   (*affine)(void *y, const void *x, double a, double b, int64_t n);
  void   (*affine2)(void *y, const void *u, const void *v, double a, double b, double c, int64_t n);
                                                      /* y = a u + b v + c; y may be u */
  void   (*gap)(void *y, const void *u, const void *v, double a, int64_t n); /* y = a (u - v) */
  /* y = u > v ? a : -a */
  void   (*gap_sign)(void *y, const void *u, const void *v, double a, int64_t n);
  void   (*multiply)(void *y, const void *x, int64_t n);                     /* y *= x */
  /* y = max(y, 0), NaN stays */
  void   (*relu)(void *y, int64_t n);
  void   (*relu_back)(void *d, const void *u, const void *x, double a, double c, int64_t n);
                                                      /* d = u where a x + c > 0, else 0 u */
  void   (*sigmoid)(void *y, const void *x, int64_t n);                      /* y may be x */
  /* y (cols, rows) from x (rows, cols) */
  void   (*transpose)(void *y, const void *x, int64_t rows, int64_t cols);
  void   (*dropout)(void *y, const void *x, void *mask, const struct drop *d, int64_t first,
      int64_t n);
                                                      /* elements first .. first + n - 1; y may
                                                      ** be x; mask may be NULL */
  void   (*adam)(void *y, const void *w, const void *g, void *mean, void *var, const struct adam *k,
      int64_t n);
                                                      /* bit for bit the formula of adam_update;
                                                      ** y may be w */
  void   (*svm)(void *dx, const void *y, const struct svm *s, int64_t n);
                                                      /* gradient of every class as if none were
                                                      ** the target */
  /* sums */
  double (*sum)(const void *x, int64_t n);
  double (*sum_square)(const void *x, double mean, int64_t n);               /* of (x - mean)^2 */
  double (*dot)(const void *x, const void *y, int64_t n);
  double (*sum_gap)(const void *x, const void *y, int64_t n);                /* of |x - y| */
  /* NaN never wins; -infinity if nothing does */
  double (*max)(const void *x, int64_t n);
  /* of u; of u (x - mean) */
  void   (*sum_dot)(const void *u, const void *x, double mean, int64_t n, double out[2]);
  int64_t (*count_above)(const void *x, double limit, int64_t n);
  /* the same, per column, into and from double */
  void   (*col_sum)(double *s, const void *x, int64_t n);                    /* s += x */
  void   (*col_square)(double *s, const void *x, const double *mean, int64_t n);
  void   (*col_dot)(double *s, double *t, const void *u, const void *x, const double *mean,
      int64_t n);
  /* y may be x */
  void   (*col_affine)(void *y, const void *x, const double *a, const double *b, int64_t n);
  void   (*col_affine2)(void *y, const void *u, const void *v, const double *a, const double *b,
      const double *c, int64_t n);
  /* the same over n / b rows of b channels, b dividing 16 */
  void   (*block_sum)(double *s, const void *x, int b, int64_t n);           /* s += x */
  void   (*block_square)(double *s, const void *x, const double *mean, int b, int64_t n);
  /* relu, here and below: its gradient u is taken instead; NULL: u */
  void   (*block_dot)(double *s, double *t, const void *u, const void *x, const double *mean,
      const struct ramp *relu, int b, int64_t n);
  /* y may be x */
  void   (*block_affine)(void *y, const void *x, const double *a, const double *c, bool relu, int b,
      int64_t n);
  /* y may be u */
  void   (*block_affine2)(void *y, const void *u, const void *v, const double *f, const double *g,
      const double *h, const struct ramp *relu, int b, int64_t n);
  /* softmax of x / t: scale = 1 / t, negative for softmin; logs if `log` */
  void   (*soft)(void *y, const void *x, double scale, bool log, int64_t n); /* y may be x */
  void   (*soft_back)(void *dx, const void *y, const void *dy, double scale, bool log, int64_t n);
  void   (*soft_cols)(void *y, const void *x, double scale, bool log, int64_t k, int64_t stride,
      int64_t n);
  void   (*soft_cols_back)(void *dx, const void *y, const void *dy, double scale, bool log,
      int64_t k, int64_t stride, int64_t n);
  /* y = e^(x - m), where x <= m; returns the sum; y may be x */
  double (*exp_sum)(void *y, const void *x, double m, int64_t n);
  /* dx = (dy - mean) y, 0 where y is 0; dx may be dy */
  void   (*soft_gap)(void *dx, const void *y, const void *dy, double mean, int64_t n);
  /* normalisation with a gain and an offset per element: y = (x - mean) r gain + offset; offset and
  ** doffset NULL: there is none */
  void   (*norm)(void *y, const void *x, const void *gain, const void *offset, double mean,
      double r, int64_t n);
  void   (*norm_sums)(const void *dy, const void *x, const void *gain, double mean, double r,
      int64_t n, double out[2]);
                                                      /* of dy gain; of dy gain (x - mean) r */
  void   (*norm_back)(void *dx, const void *dy, const void *x, const void *gain, double mean,
      double r, const double mean_of[2], int64_t n);
  /* += */
  void   (*norm_params)(void *dgain, void *doffset, const void *dy, const void *x, double mean,
      double r, int64_t n);
  void   (*l2_cols)(void *y, void *norm, const void *x, double eps, int64_t k, int64_t stride,
      int64_t n);
  void   (*l2_cols_back)(void *dx, const void *dy, const void *y, const void *norm, int64_t k,
      int64_t stride, int64_t n);
  void   (*lrn)(void *y, void *norm, const void *x, const struct lrn *p, int64_t k, int64_t stride,
      int64_t n);
                                                      /* norm may be NULL */
  void   (*lrn_back)(void *dx, void *work, const void *dy, const void *x, const void *norm,
      const struct lrn *p, int64_t k, int64_t stride, int64_t n);
  /* pooling: one tap of a window over n outputs whose inputs lie `stride` apart */
  void   (*tap_max)(void *y, const void *x, int64_t stride, int64_t n);      /* y = max(y, x) */
  /* y += x^power */
  void   (*tap_add)(void *y, const void *x, int64_t stride, int power, int64_t n);
  void   (*tap_max_back)(void *dx, void *left, const void *x, const void *y, int64_t stride,
      bool all, int64_t n);
                                                      /* where x == y: dx += left, and unless
                                                      ** `all` left = 0 */
  void   (*argmax)(int32_t *argmax, const void *x, const void *y, int64_t stride, int32_t here,
      int64_t n);
                                                      /* where x == y: place = here */
  void   (*scatter_argmax)(void *dx, const int32_t *argmax, const void *dy, int64_t stride,
      int64_t n);
                                                      /* dx[stride i + place[i]] += dy[i] */
  /* dx += g */
  void   (*tap_add_back)(void *dx, const void *g, int64_t stride, int64_t n);
  void   (*tap_power_back)(void *dx, const void *g, const void *x, const void *y, int64_t stride,
      int power, int64_t n);
                                                      /* dx += g (x / y)^(power - 1) */
  void   (*max2)(void *y, const void *x0, const void *x1, int64_t n);
                                                      /* 2 x 2, stride 2: two input rows to one
                                                      ** output row */
  void   (*max2_argmax)(uint8_t *argmax, const void *x0, const void *x1, const void *y, int64_t n);
                                                      /* which of the four is y first, NO_TAP:
                                                      ** none */
  void   (*max2_back)(void *dx0, void *dx1, const uint8_t *argmax, const void *dy, int64_t n);
  void   (*root)(void *y, int power, int64_t n);                             /* y^(1 / power) */
  void   (*block_pool)(void *y, const void *x, const struct pool_row *p, bool max);
                                                      /* onto y as it is: maxima, or sums */
  void   (*block_argmax)(uint8_t *argmax, const void *y, const void *x, const struct pool_row *p);
                                                      /* which tap is y first, NO_TAP: none */
  void   (*block_scatter_argmax)(void *dx, const uint8_t *argmax, const void *dy,
      const struct pool_row *p);
                                                      /* dx += dy at that tap */
  void   (*block_pool_back)(void *dx, const void *dy, const void *x, const void *y,
      const struct pool_row *p, bool max);
                                                      /* dx += dy, at the maximum or at all; x,
                                                      ** y: for max */
  /* recurrent cells of n units, one sample. pre: sums of products; gate: activations, may be pre */
  void   (*rnn)(void *h, const void *pre, const void *bias, bool relu, int64_t n);
  void   (*rnn_back)(void *dpre, const void *h, const void *dh, bool relu, int64_t n);
  void   (*lstm)(void *h, void *c, void *gate, const void *pre, const void *bias, const void *c0,
      int64_t n);
                                                      /* i f g o; c may be c0 */
  void   (*lstm_back)(void *dpre, void *dc, const void *gate, const void *c, const void *c0,
      const void *dh, int64_t n);
                                                      /* dc: of c, then of c0 */
  void   (*lstm_out)(void *h, const void *gate, const void *c, int64_t n);   /* h again */
  void   (*gru)(void *h, void *gate, void *hn, const void *x, const void *hx, const void *bx,
      const void *bh, const void *h0, int64_t n);
                                                      /* r z n */
  void   (*gru_back)(void *dx, void *dhx, void *dh, const void *gate, const void *hn,
      const void *h0, int64_t n);
                                                      /* dh: of h, then of h0 less products */
  /* images. A grid holds h w places: x in -1 .. 1 (left to right), then y (top to bottom) */
  /* theta (2, 3) times (x, y, 1) of a regular grid */
  void   (*grid)(void *grid, const void *theta, int64_t h, int64_t w);
  void   (*grid_back)(void *dtheta, const void *dgrid, int64_t h, int64_t w);
  void   (*sample)(void *y, const void *x, const void *grid, const struct image *s);
                                                      /* y (c, n): bilinear, 0 outside */
  void   (*sample_back)(void *dx, void *dgrid, const void *dy, const void *x, const void *grid,
      const struct image *s);
                                                      /* dx +=; either may be NULL */
  /* each x scale times */
  void   (*repeat)(void *y, const void *x, int64_t scale, int64_t n);
  /* y += sums of `scale` neighbours */
  void   (*collect)(void *y, const void *x, int64_t scale, int64_t n);
  /* y[stride i] += a x[i] */
  void   (*axpy_out)(void *y, const void *x, double a, int64_t stride, int64_t n);
  /* y[i] += a x[stride i] */
  void   (*axpy_in)(void *y, const void *x, double a, int64_t stride, int64_t n);
  double (*dot_out)(const void *y, const void *x, int64_t stride, int64_t n);
                                                      /* sum of y[stride i] x[i] */
};
enum { NO_TAP = 255 };                              /* of a window without a maximum */
/* at most so many columns per call of a column function */
enum { ROW_COLS = 256 };

const struct vec_ops *vec_ops_of(int dtype);                /* TY_F32 or TY_F64 */
static inline void *vec_at(const struct vec_ops *r, const void *x, int64_t i)
{
  return x ? (char *)x + (int64_t)r->size * i : NULL;
}

/* A shape as (outer, k, inner) around one axis. */
struct split { int64_t outer, k, inner; };
static inline struct split split_at(const ty_desc *d, int axis)
{
  struct split s = { 1, d->dim[axis], 1 };
  for (int i = 0; i < axis; i++) s.outer *= d->dim[i];
  for (int i = axis + 1; i < d->ndim; i++) s.inner *= d->dim[i];
  return s;
}

double  number_at(const struct operand *a, int64_t i);    /* any dtype: labels, lengths */
/* truncated and clipped to 0 .. n - 1; NaN is 0 */
int64_t index_at(const struct operand *a, int64_t i, int64_t n);
/* truncated; INT64_MIN for NaN and what does not fit */
int64_t whole_at(const struct operand *a, int64_t i);
