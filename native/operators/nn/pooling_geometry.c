/* pooling_geometry.c - which inputs are under a window, and which outputs are under a tap.
**
** An output row is computed tap by tap: for each tap of the window, all outputs for which that tap
** is inside the data are updated together, so that inner loops run along the width (or the
** channels) for any window.
*/
#include "operators/nn/pooling.h"

struct pool_axis pool_make_axis(const struct pool_param *p, int64_t size, int i)
{
  struct pool_axis a = { size, 1, size, 1, 0 };
  if (p->global_pool) return a;
  a.kernel = p->kernel.d[i];
  if (p->stride.n) a.stride = p->stride.d[i];
  if (p->pad.n) a.pad = p->pad.d[i];
  int64_t steps = size + 2 * a.pad - a.kernel;
  switch (p->pooling_convention) {
  case POOL_SAME: a.out = pool_ceil_div(size, a.stride); break;
  case POOL_FULL: a.out = 1 + (steps + a.stride - 1) / a.stride; break;
  default:        a.out = 1 + steps / a.stride;
  }
  return a;
}

struct pool_planes pool_make_planes(const struct pool_param *p, const ty_desc *in)
{
  const struct pool_axis one = { 1, 1, 1, 1, 0 };
  struct pool_planes g = { { one, one, one }, in->dim[0], 1, in->ndim - 2 };
  for (int i = 0; i < g.ndim; i++)
    g.a[3 - g.ndim + i] = pool_make_axis(p, in->dim[layout_first_axis(p->layout) + i], i);
  if (layout_channels_last(p->layout))
    g.inner = in->dim[in->ndim - 1];
  else
    g.outer *= in->dim[1];
  return g;
}

/* Joins the rows of a plane to one long row, if windows have one row each and fill the rows. */
static void join_rows(struct pool_planes *g)
{
  struct pool_axis *w = &g->a[2];
  const bool fills = !w->pad && w->kernel <= w->stride && w->in == w->out * w->stride;
  for (int i = 1; i >= 0 && fills; i--) {
    struct pool_axis *a = &g->a[i];
    if (a->kernel != 1 || a->stride != 1 || a->pad) return;
    w->in *= a->in;
    w->out *= a->out;
    a->in = a->out = 1;
  }
}

struct pool pool_make(const struct call *c, const struct operand *data)
{
  const struct pool_param *p = c->param;
  struct pool_planes g = pool_make_planes(p, &data->d);
  if (data->block) g.outer /= data->block, g.inner = data->block;
  join_rows(&g);
  return (struct pool){ .r = vec_ops_of(data->d.dtype),
    .g = g,
    .type = p->pool_type,
    .power = p->pool_type == POOL_LP ? p->p_value : 1,
    .with_pad = p->count_include_pad != 0,
    .zeros = p->pad_is_zeros,
    .blocks = data->block && data->d.ndim < 5 && p->pool_type != POOL_LP };
}

/* -- windows ----------------------------------------------------------------------------------- */

/* Returns the size of the window with the padding that it covers; at most 0 beyond it. */
static int64_t covered_size(const struct pool_axis *a, int64_t o)
{
  int64_t start = o * a->stride - a->pad;
  return MIN(start + a->kernel, a->in + a->pad) - start;
}

static bool axis_covers_pad(const struct pool_axis *a, int64_t o)
{
  return o * a->stride < a->pad || o * a->stride - a->pad + covered_size(a, o) > a->in;
}

bool pool_covers_pad(const struct pool *p, const struct pool_piece *q, int64_t w)
{
  const struct pool_axis *a = p->g.a;
  return axis_covers_pad(&a[0], q->d) || axis_covers_pad(&a[1], q->h) || axis_covers_pad(&a[2], w);
}

/* Returns 1 / the divisor of avg for the window at column w. */
static double inverse_size(const struct pool *p, const struct pool_piece *q, int64_t w)
{
  const struct pool_axis *a = p->g.a;
  int64_t o[3] = { q->d, q->h, w };
  double n = 1;
  for (int i = 0; i < 3; i++) {
    int64_t taps = pool_end_tap(&a[i], o[i]) - pool_first_tap(&a[i], o[i]);
    n *= (double)(p->zeros ? a[i].kernel : p->with_pad ? covered_size(&a[i], o[i]) : taps);
  }
  return n != 0 ? 1 / n : p->g.ndim == 3 ? NAN : 0; /* a window without elements */
}

/* Divides sums by the sizes of their windows; those inside the width have one size in common. */
void pool_average_row(const struct pool *p, const struct pool_piece *q, void *row)
{
  const struct pool_axis *a = &p->g.a[2];
  int64_t last = a->in + a->pad - a->kernel, inside = MAX(pool_ceil_div(a->pad, a->stride), q->w),
          end = last < 0 ? 0 : MIN(last / a->stride + 1, q->w + q->n);
  for (int64_t w = q->w; w < q->w + q->n;) {
    int64_t n = w == inside && end > w ? end - w : 1;
    void *y = vec_at(p->r, row, (w - q->w) * q->m);
    p->r->affine(y, y, inverse_size(p, q, w), 0, n * q->m);
    w += n;
  }
}

/* Calls tap for row (kd, kh) of a piece's windows. */
static void tap_row(const struct pool *p, const struct pool_piece *q, int64_t kd, int64_t kh,
    void *row, pool_tap_fn tap)
{
  const struct pool_axis *w = &p->g.a[2];
  int64_t inner = p->g.inner, line = pool_line_at(p, q, kd, kh);
  for (int64_t k = 0; k < w->kernel; k++) {
    int64_t from, n = pool_outputs_under(w, q, k, &from);
    int64_t in_at = (line + from * w->stride - w->pad + k) * inner + q->c,
            out_at = pool_output_at(p, q, from), row_at = (from - q->w) * q->m;
    if (n <= 0) continue;
    if (inner == 1)
      tap(p, row, in_at, out_at, row_at, w->stride, n);
    else
      for (int64_t i = 0; i < n; i++)
        tap(p, row, in_at + i * w->stride * inner, out_at + i * inner, row_at + i * q->m, 1, q->m);
  }
}

void pool_each_tap(const struct pool *p, const struct pool_piece *q, void *row, pool_tap_fn tap)
{
  const struct pool_axis *d = &p->g.a[0], *h = &p->g.a[1];
  for (int64_t kd = pool_first_tap(d, q->d); kd < pool_end_tap(d, q->d); kd++)
    for (int64_t kh = pool_first_tap(h, q->h); kh < pool_end_tap(h, q->h); kh++)
      tap_row(p, q, kd, kh, row, tap);
}

struct pool_row pool_block_row(const struct pool *p, const struct pool_piece *q, int64_t *x)
{
  const struct pool_axis *h = &p->g.a[1], *w = &p->g.a[2];
  int64_t kh = pool_first_tap(h, q->h);
  *x = pool_line_at(p, q, 0, kh) * p->g.inner;
  return (struct pool_row){ .rows = MAX(pool_end_tap(h, q->h) - kh, 0),
    .line = w->in,
    .in = w->in,
    .kernel = w->kernel,
    .stride = w->stride,
    .pad = w->pad - q->w * w->stride,
    .n = q->n,
    .b = (int)p->g.inner,
    .all = p->zeros,
    .tap = (int)(kh * w->kernel) };
}
