/* pooling.h - common parts of the pooling files: parameters, windows, a run.
**
** Every layout is treated as `outer` planes of (depth, height, width, inner): channels first have
** batch * channels planes and inner = 1; channels last a plane per sample and inner = channels;
** channels in blocks a plane per block and inner = its size. A plane is computed piece by piece; a
** piece is a part of one output row.
*/
#pragma once
#include "kernel/vec/pool.h"
#include "op/op.h"
#include "operators/nn/layout.h"

struct pool_param {
  struct dims kernel, stride, pad;
  int64_t pool_type, global_pool, cudnn_off, pooling_convention, p_value, count_include_pad, layout;
  /* set by the check of Pooling_v1: padding counts as zeros */
  bool pad_is_zeros;
};
enum { POOL_AVG, POOL_LP, POOL_MAX, POOL_SUM };
enum { POOL_FULL, POOL_SAME, POOL_VALID };            /* pooling_convention */

struct pool_axis { int64_t in, out, kernel, stride, pad; };
struct pool_planes {
  struct pool_axis a[3];                              /* depth, height, width; missing: size 1 */
  int64_t outer, inner;
  int     ndim;                                       /* of the window */
};
struct pool_axis   pool_make_axis(const struct pool_param *p, int64_t size, int i);
struct pool_planes pool_make_planes(const struct pool_param *p, const ty_desc *in);

enum { POOL_WIDE = 512 };                             /* elements of a piece */
struct pool {
  const struct vec_ops *r;
  struct pool_planes g;
  int64_t type, power;
  bool    with_pad;                                   /* avg: padding counts in the divisor */
  bool    zeros;                                      /* padding counts as zeros */
  bool    back;
  bool    blocks;                                     /* channels in blocks */
  bool    separable;                                  /* maxima of rows first, then of columns */
  bool    pairs;                                      /* 2 x 2 windows with stride 2 */
  bool    whole;                                      /* one window per plane */
  bool    small;                                      /* maxima only, over few columns each */
  /* backward: 0 where y is not above 0 (relu) */
  bool    masked;
  double  lowest;                                     /* forward: lower bound of maxima */
  const void *x, *y, *dy;
  uint8_t *argmax;                                    /* NULL: not needed, or not available */
  void   *out;                                        /* y forward, dx backward */
};
/* Outputs w .. w + n - 1 of row (d, h), channels c .. c + m - 1 of channel-last data (m < inner
** only if n is 1). */
struct pool_piece { int64_t plane, d, h, w, n, c, m; };

/* Returns the first tap of the window at output o that is inside the data. */
static inline int64_t pool_first_tap(const struct pool_axis *a, int64_t o)
{
  return MAX(a->pad - o * a->stride, 0);
}
/* Returns the tap after the last one that is inside the data. */
static inline int64_t pool_end_tap(const struct pool_axis *a, int64_t o)
{
  return MIN(a->kernel, a->in + a->pad - o * a->stride);
}

/* Returns n / by rounded up, 0 for n below 0. */
static inline int64_t pool_ceil_div(int64_t n, int64_t by) { return n > 0 ? (n + by - 1) / by : 0; }

/* Returns the number of outputs of a piece whose tap k is inside the width, and sets *first to the
** first of them. A number of 0 or less means that there are none. */
static inline int64_t pool_outputs_under(
    const struct pool_axis *w, const struct pool_piece *q, int64_t k, int64_t *first)
{
  *first = MAX(q->w, pool_ceil_div(w->pad - k, w->stride));
  return MIN(q->w + q->n, pool_ceil_div(w->in + w->pad - k, w->stride)) - *first;
}

/* Returns the index of output column w of a piece, at its first channel. */
static inline int64_t pool_output_at(const struct pool *p, const struct pool_piece *q, int64_t w)
{
  const struct pool_axis *a = p->g.a;
  return (((q->plane * a[0].out + q->d) * a[1].out + q->h) * a[2].out + w) * p->g.inner + q->c;
}

/* Returns the index of the input row under row (kd, kh) of a piece's windows. */
static inline int64_t pool_line_at(
    const struct pool *p, const struct pool_piece *q, int64_t kd, int64_t kh)
{
  const struct pool_axis *a = p->g.a;
  int64_t z = q->d * a[0].stride - a[0].pad + kd, y = q->h * a[1].stride - a[1].pad + kh;
  return ((q->plane * a[0].in + z) * a[1].in + y) * a[2].in;
}

/* Input columns x .. x + n - 1. */
struct pool_columns { int64_t x, n; };
/* Returns the input columns under a piece. */
static inline struct pool_columns pool_find_columns(
    const struct pool_axis *w, const struct pool_piece *q)
{
  int64_t x = MAX(q->w * w->stride - w->pad, 0),
          end = MIN((q->w + q->n - 1) * w->stride - w->pad + w->kernel, w->in);
  return (struct pool_columns){ x, MAX(end - x, 0) };
}

/* Processes one tap: the n inputs from in_at on, `stride` apart, belong to the n outputs from
** out_at on, which are row[row_at ..]. */
typedef void (*pool_tap_fn)(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n);
void pool_each_tap(const struct pool *p, const struct pool_piece *q, void *row, pool_tap_fn tap);
/* Divides a piece of an output row by the sizes of its windows. */
void pool_average_row(const struct pool *p, const struct pool_piece *q, void *row);
/* Returns whether a window covers padding. */
bool pool_covers_pad(const struct pool *p, const struct pool_piece *q, int64_t w);
/* Returns the windows of a piece of channels in blocks. *x: offset of their first line. */
struct pool_row pool_block_row(const struct pool *p, const struct pool_piece *q, int64_t *x);

struct pool pool_make(const struct call *c, const struct operand *data);
void pool_run(struct pool *p);

/* Cases of pool_run, for one direction each: a piece; a plane with `small` or `pairs`; a plane of n
** elements with `whole`. */
void pool_piece_forward(const struct pool *p, const struct pool_piece *q);
void pool_piece_backward(const struct pool *p, const struct pool_piece *q);
void pool_small_forward(const struct pool *p, int64_t plane);
void pool_pairs_forward(const struct pool *p, int64_t plane);
void pool_pairs_backward(const struct pool *p, int64_t plane);
void pool_whole_forward(const struct pool *p, int64_t plane, int64_t n);
void pool_whole_backward(const struct pool *p, int64_t plane, int64_t n);
