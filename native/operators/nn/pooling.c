/* pooling.c - Pooling, Pooling_v1, _contrib_AdaptiveAvgPooling2D.
**
** Every layout becomes planes of (depth, height, width, inner): channel-first data has outer = n
** * channels planes and inner = 1, channel-last data n planes and inner = channels. An output
** row is built tap by tap: for each place of the window, the outputs for which it lies inside
** the data take their maximum with it, or add it. So inner loops run along the width (or the
** channels), whatever the window. With inner = 1 the window's rows are first folded into one
** line, then its columns. The gradient of max goes over the taps again and compares; since taps
** come in row-major order the first maximum takes all. 2 x 2 windows with stride 2, and windows
** as large as a plane, have loops of their own.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"
#include "operators/quantized/quantize.h"

struct pool_param { struct dims kernel, stride, pad; int64_t pool_type, global_pool, cudnn_off, pooling_convention,
                    p_value, count_include_pad, layout; };
enum { POOL_AVG, POOL_LP, POOL_MAX, POOL_SUM };
enum { FULL, SAME, VALID };
enum { LAYOUT_NWC = 5, LAYOUT_NHWC = 4, LAYOUT_NDHWC = 3 };
#define FIELD(f) offsetof(struct pool_param, f)
static const struct param pool_params[] = {
  { "kernel",             P_SHAPE, FIELD(kernel),             "()",    "size of the window: 1, 2 or 3 numbers", NULL, SIZES_RANGE },
  { "pool_type",          P_ENUM,  FIELD(pool_type),          "max",   "what a window becomes", "avg|lp|max|sum" },
  { "global_pool",        P_BOOL,  FIELD(global_pool),        "0",
    "one window over everything; kernel, stride and pad have no effect" },
  { "cudnn_off",          P_BOOL,  FIELD(cudnn_off),          "0",     "without effect on results" },
  { "pooling_convention", P_ENUM,  FIELD(pooling_convention), "valid",
    "rounding of the output's size: valid down, full up", "full|same|valid" },
  { "stride",             P_SHAPE, FIELD(stride),             "()",    "step of the window; () is 1", NULL, SIZES_RANGE },
  { "pad",                P_SHAPE, FIELD(pad),                "()",    "elements around the data; () is 0", NULL, SIZES_RANGE },
  { "p_value",            P_INT,   FIELD(p_value),            "None",  "power of lp pooling: 1, 2 or 3", NULL, NULL, 1 },
  { "count_include_pad",  P_BOOL,  FIELD(count_include_pad),  "None",
    "avg divides by the window's size with padding (None, true) or without", NULL, NULL, 1 },
  { "layout",             P_ENUM,  FIELD(layout),             "None",  "order of the axes; None: channels on axis 1",
    "NCDHW|NCHW|NCW|NDHWC|NHWC|NWC", NULL, 1 },
  { 0 }
};

/* The older operator: fewer parameters, other enums. */
static const struct param pool1_params[] = {
  { "kernel",             P_SHAPE, FIELD(kernel),             "()",    "size of the window: 2 or 3 numbers", NULL, SIZES_RANGE },
  { "pool_type",          P_ENUM,  FIELD(pool_type),          "max",   "what a window becomes", "avg|max|sum" },
  { "global_pool",        P_BOOL,  FIELD(global_pool),        "0",
    "one window over everything; kernel, stride and pad have no effect" },
  { "pooling_convention", P_ENUM,  FIELD(pooling_convention), "valid",
    "rounding of the output's size: valid down, full up", "full|valid" },
  { "stride",             P_SHAPE, FIELD(stride),             "()",    "step of the window; () is 1", NULL, SIZES_RANGE },
  { "pad",                P_SHAPE, FIELD(pad),                "()",    "zeros around the data; () is 0", NULL, SIZES_RANGE },
  { 0 }
};

static int pool_check(void *param)
{
  struct pool_param *p = param;
  int64_t n = p->kernel.n;
  if (!p->global_pool)
    NEED(n >= 1 && n <= 3, TY_EVALUE, "Pooling: kernel: expected 1 to 3 numbers, got %lld",
        (long long)n);
  NEED(p->pool_type != POOL_LP || p->p_value != NONE, TY_EVALUE,
      "Pooling: p_value: pool_type lp needs 1, 2 or 3");
  NEED(p->pool_type != POOL_LP || (p->p_value >= 1 && p->p_value <= 3), TY_EVALUE,
      "Pooling: p_value: expected 1, 2 or 3, got %lld", (long long)p->p_value);
  NEED(p->pooling_convention != SAME, TY_EUNSUPPORTED,
      "Pooling: pooling_convention same is not supported; expected valid or full");
  for (int64_t i = 0; !p->global_pool && i < n; i++)
    NEED(p->kernel.d[i] > 0, TY_EVALUE, "Pooling: kernel: expected positive numbers");
  NEED(p->global_pool || !p->stride.n || p->stride.n == n, TY_EVALUE,
      "Pooling: stride: expected %lld numbers, as kernel has, got %lld", (long long)n,
      (long long)p->stride.n);
  NEED(p->global_pool || !p->pad.n || p->pad.n == n, TY_EVALUE,
      "Pooling: pad: expected %lld numbers, as kernel has, got %lld", (long long)n,
      (long long)p->pad.n);
  for (int64_t i = 0; !p->global_pool && i < p->stride.n; i++)
    NEED(p->stride.d[i] > 0, TY_EVALUE, "Pooling: stride: expected positive numbers");
  for (int64_t i = 0; !p->global_pool && i < p->pad.n; i++)
    NEED(p->pad.d[i] >= 0, TY_EVALUE, "Pooling: pad: expected numbers from 0");
  return TY_OK;
}

static int pool1_check(void *param) /* its choices, in Pooling's numbers */
{
  static const int type[] = { POOL_AVG, POOL_MAX, POOL_SUM }, convention[] = { FULL, VALID };
  struct pool_param *p = param;
  p->pool_type = type[p->pool_type];
  p->pooling_convention = convention[p->pooling_convention];
  p->p_value = NONE;
  p->count_include_pad = p->layout = -1;
  return pool_check(param);
}

/* -- geometry ---------------------------------------------------------------------------------- */

struct axis { int64_t in, out, kernel, stride, pad; };
struct planes {
  /* depth, height, width; missing ones have size 1 */
  struct axis a[3];
  int64_t outer, inner;
  int     ndim;                                       /* of the window */
};

static bool channel_last(const struct pool_param *p) { return p->layout >= LAYOUT_NDHWC; }
static int  first_axis(const struct pool_param *p) { return channel_last(p) ? 1 : 2; }

static struct axis axis_at(const struct pool_param *p, int64_t size, int i)
{
  struct axis a = { size, 1, size, 1, 0 };
  if (p->global_pool) return a;
  a.kernel = p->kernel.d[i];
  if (p->stride.n) a.stride = p->stride.d[i];
  if (p->pad.n) a.pad = p->pad.d[i];
  int64_t room = size + 2 * a.pad - a.kernel;
  a.out = 1 + (room + (p->pooling_convention == FULL ? a.stride - 1 : 0)) / a.stride;
  return a;
}

static struct planes planes_of(const struct pool_param *p, const ty_desc *in)
{
  struct planes g = { { { 1, 1, 1, 1, 0 }, { 1, 1, 1, 1, 0 }, { 1, 1, 1, 1, 0 } }, in->dim[0], 1,
    in->ndim - 2 };
  for (int i = 0; i < g.ndim; i++) g.a[3 - g.ndim + i] = axis_at(p, in->dim[first_axis(p) + i], i);
  if (channel_last(p))
    g.inner = in->dim[in->ndim - 1];
  else
    g.outer *= in->dim[1];
  return g;
}

/* The gradient reads the byte of each window. */
static bool has_places(const struct pool_param *p)
{
  int64_t taps = 1;
  for (int64_t i = 0; i < p->kernel.n; i++) taps = MIN(taps, NO_PLACE) * p->kernel.d[i];
  return p->pool_type == POOL_MAX && !p->global_pool && p->kernel.n > 0 && p->kernel.n < 3 &&
      !channel_last(p) && taps <= NO_PLACE;
}

static int pool_type(struct infer *s)
{
  if (s->nout > 1) TRY(type_is(s, &s->out[1], TY_U8));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int pool_shape(struct infer *s)
{
  const struct pool_param *p = s->param;
  ty_desc d = s->in[0], *in = &s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim < 3 || d.ndim > 5)
    return infer_fail(s, TY_ESHAPE, in,
        "expected 3 to 5 dimensions (batch, channels, 1 to 3 of space), got %d", d.ndim);
  if (!p->global_pool && p->kernel.n != d.ndim - 2)
    return infer_fail(s, TY_ESHAPE, in,
        "kernel has %lld numbers, but data has %d dimensions of space", (long long)p->kernel.n,
        d.ndim - 2);
  for (int i = 0; i < d.ndim - 2; i++) {
    int64_t *size = &d.dim[first_axis(p) + i];
    struct axis a = axis_at(p, *size, i);
    if (*size && a.kernel > a.in + 2 * a.pad)
      return infer_fail(s, TY_ESHAPE, in,
          "kernel %lld is larger than the data with its padding, %lld, on axis %d",
          (long long)a.kernel, (long long)(a.in + 2 * a.pad), first_axis(p) + i);
    *size = p->global_pool ? 1 : *size ? a.out : 0;
  }
  if (s->nout > 1) TRY(shape_as(s, &s->out[1], &d));
  return shape_as(s, &s->out[0], &d);
}

/* -- one output row ---------------------------------------------------------------------------- */

enum { WIDE = 512 };                                  /* elements of a piece of an output row */
struct pool {
  const struct vec_ops *r;
  struct planes g;
  int64_t type, power;
  bool    with_pad, zeros, back;                      /* zeros: padding takes part (Pooling_v1) */
  /* channels in blocks, 2 x 2 windows, one window per plane, folded rows */
  bool    blocks, pairs, whole, folds;
  const void *x, *y, *dy;
  /* NULL: not wanted forward, not there backward */
  uint8_t *places;
  /* backward: there is none where y is not above 0 */
  bool    masked;
  void   *out;                                        /* y forward, dx backward */
};
/* Outputs w .. w + n - 1 of row (d, h), channels c .. c + m - 1 of channel-last data (m < inner
** only if n is 1). */
struct piece { int64_t plane, d, h, w, n, c, m; };

/* The places k of a window that lie inside the data: first_in .. last_in - 1. */
static int64_t first_in(const struct axis *a, int64_t o) { return MAX(a->pad - o * a->stride, 0); }
static int64_t last_in(const struct axis *a, int64_t o)
{
  return MIN(a->kernel, a->in + a->pad - o * a->stride);
}
static int64_t up(int64_t n, int64_t by) { return n > 0 ? (n + by - 1) / by : 0; }

/* Size of the window with the padding that it covers; at most 0 beyond it. */
static int64_t covered(const struct axis *a, int64_t o)
{
  int64_t start = o * a->stride - a->pad;
  return MIN(start + a->kernel, a->in + a->pad) - start;
}

static bool pads(const struct axis *a, int64_t o)
{
  return o * a->stride < a->pad || o * a->stride - a->pad + covered(a, o) > a->in;
}

/* What a sum over the window is multiplied by: the inverse of its size. */
static double share_of(const struct pool *p, const struct piece *q, int64_t w)
{
  const struct axis *a = p->g.a;
  int64_t o[3] = { q->d, q->h, w };
  double n = 1;
  for (int i = 0; i < 3; i++)
    n *= (double)(p->zeros ? a[i].kernel
            : p->with_pad  ? covered(&a[i], o[i])
                           : MAX(last_in(&a[i], o[i]) - first_in(&a[i], o[i]), 0));
  return n != 0 ? 1 / n : p->g.ndim == 3 ? NAN : 0; /* a window without elements */
}

/* Multiplies a piece of an output row by its windows' shares; the windows that lie inside the
** width have one in common. */
static void share_row(const struct pool *p, const struct piece *q, void *row)
{
  const struct axis *a = &p->g.a[2];
  int64_t room = a->in + a->pad - a->kernel, inside = MAX(up(a->pad, a->stride), q->w),
          end = room < 0 ? 0 : MIN(room / a->stride + 1, q->w + q->n);
  for (int64_t w = q->w; w < q->w + q->n;) {
    int64_t n = w == inside && end > w ? end - w : 1;
    void *y = at(p->r, row, (w - q->w) * q->m);
    p->r->affine(y, y, share_of(p, q, w), 0, n * q->m);
    w += n;
  }
}

static int64_t output_at(const struct pool *p, const struct piece *q, int64_t w)
{
  const struct axis *a = p->g.a;
  return (((q->plane * a[0].out + q->d) * a[1].out + q->h) * a[2].out + w) * p->g.inner + q->c;
}

/* One tap: n inputs from in_at on, `stride` apart, belong to outputs from out_at on, which are
** row[row_at ..]. */
typedef void (*tap_fn)(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n);

/* The input row under row (kd, kh) of a piece's windows. */
static int64_t line_at(const struct pool *p, const struct piece *q, int64_t kd, int64_t kh)
{
  const struct axis *a = p->g.a;
  int64_t z = q->d * a[0].stride - a[0].pad + kd, y = q->h * a[1].stride - a[1].pad + kh;
  return ((q->plane * a[0].in + z) * a[1].in + y) * a[2].in;
}

/* The outputs of a piece for which place k of the window lies inside the width: the first, and
** how many; <= 0: none. */
static int64_t outputs_under(const struct axis *w, const struct piece *q, int64_t k, int64_t *first)
{
  *first = MAX(q->w, up(w->pad - k, w->stride));
  return MIN(q->w + q->n, up(w->in + w->pad - k, w->stride)) - *first;
}

static void row_taps(
    const struct pool *p, const struct piece *q, int64_t kd, int64_t kh, void *row, tap_fn tap)
{
  const struct axis *w = &p->g.a[2];
  int64_t inner = p->g.inner, line = line_at(p, q, kd, kh);
  for (int64_t k = 0; k < w->kernel; k++) {
    int64_t from, n = outputs_under(w, q, k, &from);
    int64_t in_at = (line + from * w->stride - w->pad + k) * inner + q->c,
            out_at = output_at(p, q, from), row_at = (from - q->w) * q->m;
    if (n <= 0) continue;
    if (inner == 1)
      tap(p, row, in_at, out_at, row_at, w->stride, n);
    else
      for (int64_t i = 0; i < n; i++)
        tap(p, row, in_at + i * w->stride * inner, out_at + i * inner, row_at + i * q->m, 1, q->m);
  }
}

static void all_taps(const struct pool *p, const struct piece *q, void *row, tap_fn tap)
{
  const struct axis *d = &p->g.a[0], *h = &p->g.a[1];
  for (int64_t kd = first_in(d, q->d); kd < last_in(d, q->d); kd++)
    for (int64_t kh = first_in(h, q->h); kh < last_in(h, q->h); kh++)
      row_taps(p, q, kd, kh, row, tap);
}

static void tap_forward(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n)
{
  const struct vec_ops *r = p->r;
  if (p->type == POOL_MAX)
    r->tap_max(at(r, p->out, out_at), at(r, p->x, in_at), stride, n);
  else
    r->tap_add(at(r, p->out, out_at), at(r, p->x, in_at), stride, (int)p->power, n);
}

static void tap_backward(const struct pool *p, void *row, int64_t in_at, int64_t out_at,
    int64_t row_at, int64_t stride, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *dx = at(r, p->out, in_at), *g = at(r, row, row_at), *x = at(r, p->x, in_at),
       *y = at(r, p->y, out_at);
  if (p->type == POOL_MAX)
    r->tap_max_back(dx, g, x, y, stride, p->zeros, n);
  else if (p->type == POOL_LP)
    r->tap_power_back(dx, g, x, y, stride, (int)p->power, n);
  else
    r->tap_add_back(dx, g, stride, n);
}

/* -- channels in blocks ------------------------------------------------------------------------ */

/* The windows of a piece, whose last axis is a whole block; x: places before the first line */
static struct pool_row windows_of(const struct pool *p, const struct piece *q, int64_t *x)
{
  const struct axis *h = &p->g.a[1], *w = &p->g.a[2];
  int64_t kh = first_in(h, q->h);
  *x = line_at(p, q, 0, kh) * p->g.inner;
  return (struct pool_row){ .rows = MAX(last_in(h, q->h) - kh, 0),
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

static void block_forward(const struct pool *p, const struct piece *q, void *y)
{
  int64_t x;
  struct pool_row w = windows_of(p, q, &x);
  p->r->block_pool(y, at(p->r, p->x, x), &w, p->type == POOL_MAX);
  if (p->places) p->r->block_place(p->places + output_at(p, q, q->w), y, at(p->r, p->x, x), &w);
}

static void block_backward(const struct pool *p, const struct piece *q, const void *dy)
{
  int64_t x;
  struct pool_row w = windows_of(p, q, &x);
  void *y = at(p->r, p->y, output_at(p, q, q->w));
  if (p->places) {
    p->r->block_scatter_argmax(at(p->r, p->out, x), p->places + output_at(p, q, q->w), dy, &w);
    return;
  }
  p->r->block_pool_back(at(p->r, p->out, x), dy, at(p->r, p->x, x), y, &w, p->type == POOL_MAX);
}

/* -- folded rows: inner = 1 -------------------------------------------------------------------- */

/* Columns x .. x + n - 1 of the input lie under a piece. */
struct span { int64_t x, n; };
static struct span span_of(const struct axis *w, const struct piece *q)
{
  int64_t x = MAX(q->w * w->stride - w->pad, 0),
          end = MIN((q->w + q->n - 1) * w->stride - w->pad + w->kernel, w->in);
  return (struct span){ x, MAX(end - x, 0) };
}

/* Columns of the windows: from the folded line to the outputs, or back. */
static void fold_columns(
    const struct pool *p, const struct piece *q, const struct span *s, void *line, void *row)
{
  const struct vec_ops *r = p->r;
  const struct axis *w = &p->g.a[2];
  for (int64_t k = 0; k < w->kernel; k++) {
    int64_t from, n = outputs_under(w, q, k, &from);
    if (n <= 0) continue;
    void *x = at(r, line, from * w->stride - w->pad + k - s->x), *y = at(r, row, from - q->w);
    if (p->back)
      r->tap_add_back(x, y, w->stride, n);
    else if (p->type == POOL_MAX)
      r->tap_max(y, x, w->stride, n);
    else
      r->tap_add(y, x, w->stride, 1, n);
  }
}

static void fold_rows(const struct pool *p, const struct piece *q, const struct span *s, void *line)
{
  const struct vec_ops *r = p->r;
  const struct axis *d = &p->g.a[0], *h = &p->g.a[1];
  for (int64_t kd = first_in(d, q->d); kd < last_in(d, q->d); kd++)
    for (int64_t kh = first_in(h, q->h); kh < last_in(h, q->h); kh++) {
      int64_t start = line_at(p, q, kd, kh) + s->x;
      if (p->back)
        r->add(at(r, p->out, start), line, s->n);
      else if (p->type == POOL_MAX)
        r->tap_max(line, at(r, p->x, start), 1, s->n);
      else
        r->tap_add(line, at(r, p->x, start), 1, (int)p->power, s->n);
    }
}

static double nothing(const struct pool *p) /* what a window without elements becomes */
{
  return p->type != POOL_MAX || p->back ? 0
      : p->r->dtype == TY_F64           ? -1.7976931348623157e308
                                        : -3.4028234663852886e38;
}

static void fold(const struct pool *p, const struct piece *q, void *row)
{
  _Alignas(64) char line[WIDE * sizeof(double)];
  struct span s = span_of(&p->g.a[2], q);
  p->r->fill(line, nothing(p), s.n);
  if (p->back) fold_columns(p, q, &s, line, row);
  fold_rows(p, q, &s, line);
  if (!p->back) fold_columns(p, q, &s, line, row);
}

/* The bytes of a piece. Taps go backwards, so that the first maximum of a window has the last
** word. */
static void place_piece(const struct pool *p, const struct piece *q)
{
  int32_t place[WIDE];
  const struct axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t i = 0; i < q->n; i++) place[i] = NO_PLACE;
  for (int64_t kh = last_in(h, q->h) - 1; kh >= first_in(h, q->h); kh--)
    for (int64_t k = w->kernel - 1; k >= 0; k--) {
      int64_t from, n = outputs_under(w, q, k, &from),
                    x = line_at(p, q, 0, kh) + from * w->stride - w->pad + k;
      if (n > 0)
        p->r->argmax(place + (from - q->w), at(p->r, p->x, x),
            at(p->r, p->out, output_at(p, q, from)), w->stride, (int32_t)(kh * w->kernel + k), n);
    }
  uint8_t *out = p->places + output_at(p, q, q->w);
  for (int64_t i = 0; i < q->n; i++) out[i] = (uint8_t)place[i];
}

static void scatter_argmax_range(const struct pool *p, const struct piece *q, const void *dy)
{
  int32_t place[WIDE],
      start[NO_PLACE + 1]; /* in the plane, less stride times the output's column */
  const struct axis *a = p->g.a, *h = &a[1], *w = &a[2];
  const uint8_t *tap = p->places + output_at(p, q, q->w);
  const int64_t plane = q->plane * h->in * w->in,
                corner = (q->h * h->stride - h->pad) * w->in - w->pad;
  for (int64_t k = 0; k < h->kernel * w->kernel; k++)
    start[k] = (int32_t)(corner + k / w->kernel * w->in + k % w->kernel);
  for (int64_t i = 0; i < q->n; i++) place[i] = tap[i] == NO_PLACE ? INT32_MIN : start[tap[i]];
  p->r->scatter_argmax(at(p->r, p->out, plane + q->w * w->stride), place, dy, w->stride, q->n);
}

/* -- pieces ------------------------------------------------------------------------------------ */

/* Padding counts as zeros: a maximum below 0 becomes 0 where the window covers some. */
static void raise_to_zero(const struct pool *p, const struct piece *q, void *y)
{
  const struct vec_ops *r = p->r;
  for (int64_t w = 0; w < q->n; w++) {
    if (!pads(&p->g.a[0], q->d) && !pads(&p->g.a[1], q->h) && !pads(&p->g.a[2], q->w + w)) continue;
    for (int64_t i = w * q->m; i < (w + 1) * q->m; i++)
      if (r->get(y, i) < 0) r->set(y, i, 0);
  }
}

static void forward_piece(const struct pool *p, const struct piece *q)
{
  const struct vec_ops *r = p->r;
  void *y = at(r, p->out, output_at(p, q, q->w));
  r->fill(y, nothing(p), q->n * q->m);
  if (p->folds)
    fold(p, q, y);
  else if (p->blocks)
    block_forward(p, q, y);
  else
    all_taps(p, q, NULL, tap_forward);
  if (p->type == POOL_AVG) share_row(p, q, y);
  if (p->type == POOL_MAX && p->zeros) raise_to_zero(p, q, y);
  if (p->type == POOL_LP) r->root(y, (int)p->power, q->n * q->m);
  if (p->places && !p->blocks) place_piece(p, q);
}

static void take_head(const struct pool *p, int64_t from, int64_t n, void *row)
{
  const struct vec_ops *r = p->r;
  if (p->masked)
    r->relu_back(row, at(r, p->dy, from), at(r, p->y, from), 1, 0, n);
  else
    memcpy(row, at(r, p->dy, from), r->size * (size_t)n);
}

/* The taps hand on a copy of the head gradients: divided by the window for avg, shrinking as
** maxima are found for max. */
static void backward_piece(const struct pool *p, const struct piece *q)
{
  _Alignas(64) char row[WIDE * sizeof(double)];
  take_head(p, output_at(p, q, q->w), q->n * q->m, row);
  if (p->places && !p->blocks) {
    scatter_argmax_range(p, q, row);
    return;
  }
  if (p->type == POOL_AVG) share_row(p, q, row);
  if (p->folds)
    fold(p, q, row);
  else if (p->blocks)
    block_backward(p, q, row);
  else
    all_taps(p, q, row, tap_backward);
}

/* -- planes ------------------------------------------------------------------------------------ */

static void pair_plane(const struct pool *p, int64_t plane)
{
  const struct vec_ops *r = p->r;
  const struct axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t y = 0; y < h->out; y++) {
    int64_t in = (plane * h->in + 2 * y) * w->in, out = (plane * h->out + y) * w->out;
    void *x0 = at(r, p->x, in), *x1 = at(r, p->x, in + w->in);
    r->max2(at(r, p->out, out), x0, x1, w->out);
    if (p->places) r->max2_place(p->places + out, x0, x1, at(r, p->out, out), w->out);
  }
}

static void pair_plane_back(const struct pool *p, int64_t plane)
{
  _Alignas(64) char row[WIDE * sizeof(double)];
  const struct vec_ops *r = p->r;
  const struct axis *h = &p->g.a[1], *w = &p->g.a[2];
  for (int64_t y = 0; y < h->out; y++)
    for (int64_t x = 0, n; x < w->out; x += n) {
      int64_t in = (plane * h->in + 2 * y) * w->in + 2 * x, out = (plane * h->out + y) * w->out + x;
      n = MIN(w->out - x, WIDE);
      take_head(p, out, n, row);
      r->max2_back(at(r, p->out, in), at(r, p->out, in + w->in), p->places + out, row, n);
    }
}

/* One window that is the whole plane of n elements; not for lp. */
static void whole_plane(const struct pool *p, int64_t plane, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *x = at(r, p->x, plane * n), *y = at(r, p->out, plane);
  r->set(y, 0,
      p->type == POOL_MAX ? fmax(r->max(x, n), nothing(p))
                          : r->sum(x, n) * (p->type == POOL_AVG ? 1 / (double)n : 1));
  if (!p->places) return;
  int64_t i = 0;
  while (i < n && r->get(x, i) != r->get(y, 0)) i++;
  p->places[plane] = (uint8_t)(i < n ? i : NO_PLACE);
}

static void whole_plane_back(const struct pool *p, int64_t plane, int64_t n)
{
  const struct vec_ops *r = p->r;
  void *x = at(r, p->x, plane * n), *dx = at(r, p->out, plane * n);
  double g = r->get(p->dy, plane) * (p->type == POOL_AVG ? 1 / (double)n : 1);
  if (p->masked && !(r->get(p->y, plane) > 0)) g *= 0;
  r->fill(dx, p->type == POOL_MAX ? 0 : g, n);
  if (p->places && p->places[plane] != NO_PLACE) r->set(dx, p->places[plane], g);
  if (p->type != POOL_MAX || p->places) return;
  for (int64_t i = 0; i < n; i++)
    if (r->get(x, i) == r->get(p->y, plane)) {
      r->set(dx, i, g);
      if (!p->zeros) return;
    }
}

static void piece_all(const struct pool *p, struct piece q)
{
  int64_t inner = p->g.inner, width = p->g.a[2].out,
          most = p->folds ? (WIDE - p->g.a[2].kernel) / p->g.a[2].stride + 1 : WIDE;
  for (q.c = 0; q.c < inner; q.c += q.m) {
    q.m = MIN(inner - q.c, WIDE);
    for (q.w = 0; q.w < width; q.w += q.n) {
      q.n = q.m < inner ? 1 : MIN(width - q.w, most / q.m);
      if (p->back)
        backward_piece(p, &q);
      else
        forward_piece(p, &q);
    }
  }
}

static void pool_body(int64_t begin, int64_t end, void *context)
{
  const struct pool *p = context;
  const struct axis *a = p->g.a;
  int64_t plane = a[0].in * a[1].in * a[2].in * p->g.inner;
  bool covers = p->pairs && 2 * a[1].out == a[1].in && 2 * a[2].out == a[2].in;
  for (int64_t i = begin; i < end; i++) {
    if (p->whole) {
      (p->back ? whole_plane_back : whole_plane)(p, i, plane);
      continue;
    }
    if (p->back && !covers) memset(at(p->r, p->out, i * plane), 0, p->r->size * (size_t)plane);
    if (p->pairs) {
      (p->back ? pair_plane_back : pair_plane)(p, i);
      continue;
    }
    for (int64_t d = 0; d < a[0].out; d++)
      for (int64_t h = 0; h < a[1].out; h++)
        piece_all(p, (struct piece){ .plane = i, .d = d, .h = h });
  }
}

static bool two_by_two(const struct planes *g)
{
  for (int i = 1; i < 3; i++)
    if (g->a[i].kernel != 2 || g->a[i].stride != 2 || g->a[i].pad || 2 * g->a[i].out > g->a[i].in)
      return false;
  return g->ndim == 2 && g->inner == 1;
}

static bool whole_planes(const struct planes *g)
{
  for (int i = 0; i < 3; i++)
    if (g->a[i].kernel != g->a[i].in || g->a[i].out != 1 || g->a[i].pad) return false;
  return g->inner == 1;
}

static void pool_run(struct pool *p)
{
  const struct axis *a = p->g.a;
  int64_t taps = a[0].kernel * a[1].kernel * a[2].kernel,
          outputs = a[0].out * a[1].out * a[2].out * p->g.inner;
  p->pairs = p->type == POOL_MAX && !p->zeros && two_by_two(&p->g) && (!p->back || p->places);
  p->whole = p->type != POOL_LP && whole_planes(&p->g);
  p->folds = p->g.inner == 1 && a[2].kernel <= WIDE / 2 &&
      !(p->back && (p->type == POOL_MAX || p->type == POOL_LP));
  parallel(p->g.outer, grain_of(taps * outputs), pool_body, p);
}

/* Channels in blocks are planes of a block each, with the channels last. */
static struct planes planes_in(const struct call *c, const struct operand *data)
{
  struct planes g = planes_of(c->param, &data->d);
  if (data->block) g.outer /= data->block, g.inner = data->block;
  return g;
}

static struct pool pool_of(const struct call *c, const struct operand *data)
{
  const struct pool_param *p = c->param;
  bool older = !strcmp(c->op->name, "Pooling_v1");
  return (struct pool){ .r = vec_ops_of(data->d.dtype),
    .g = planes_in(c, data),
    .type = p->pool_type,
    .power = p->pool_type == POOL_LP ? p->p_value : 1,
    .with_pad = p->count_include_pad != 0,
    .zeros = older,
    .blocks = data->block && data->d.ndim < 5 && p->pool_type != POOL_LP };
}

static int pool_forward(struct call *c)
{
  struct pool p = pool_of(c, &c->in[0]);
  p.x = c->in[0].p;
  p.out = c->out[0].p ? c->out[0].p : c->tmp;
  p.places = c->nout > 1 && has_places(c->param) ? c->out[1].p : NULL;
  if (c->out[0].p || p.places) pool_run(&p);
  return TY_OK;
}

/* in: head gradient, then the places of max, or data and output for max and lp. */
static int pool_backward(struct call *c)
{
  struct pool p = pool_of(c, &c->out[0]);
  p.back = true;
  p.dy = c->in[0].p;
  if (c->nin == 2 || c->act) p.places = c->in[1].p;
  p.masked = c->act != ACT_NONE;
  if (c->nin > 2) p.x = p.masked ? NULL : c->in[1].p, p.y = c->in[2].p;
  p.out = c->out[0].p;
  if (p.out) pool_run(&p);
  return TY_OK;
}

static const char *pool1_grad(const void *param)
{
  int64_t type = ((const struct pool_param *)param)->pool_type;
  return type == POOL_MAX || type == POOL_LP ? "g0 i0 o0" : "g0";
}
static const char *pool_grad(const void *param)
{
  return has_places(param) ? "g0 o1" : pool1_grad(param);
}

/* The maxima, if only their places are wanted. */
static size_t pool_scratch(const struct call *c)
{
  return c->out[0].p ? 0 : desc_bytes(&c->out[0].d);
}

static const char *refuse(const struct call *c)
{
  if (!dtype_float(c->out[0].d.dtype)) return "data is not of a float dtype";
  return in_blocks(c) && channel_last(c->param) ? "channels last" : NULL;
}

static const struct kernel pool_cpu[] = {
  { "taps", pool_forward,  T_FLOAT | T(TY_U8), refuse, pool_scratch, .flags = K_ALIKE, .blocks = IN_BLOCKS(1, 3) }, { 0 }
};
static const struct kernel pool_back_cpu[] = {
  { "taps", pool_backward, T_FLOAT | T(TY_U8), refuse, .flags = K_ALIKE | K_MASK, .blocks = IN_BLOCKS(7, 1) }, { 0 }
};

/* -- adaptive ---------------------------------------------------------------------------------- */

struct adaptive_param { struct dims output_size; };
static const struct param adaptive_params[] = {
  { "output_size", P_SHAPE, offsetof(struct adaptive_param, output_size), "()",
    "height and width of the output, or one number for both; () is 1", NULL, SIZES_RANGE },
  { 0 }
};

static int64_t adaptive_size(const struct adaptive_param *p, int i)
{
  return p->output_size.n <= 0 ? 1 : p->output_size.d[p->output_size.n > 1 ? i : 0];
}

static int adaptive_shape(struct infer *s)
{
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim != 4)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected (batch, channels, height, width), got %d dimensions", d.ndim);
  for (int i = 0; i < 2; i++) {
    int64_t n = adaptive_size(s->param, i);
    if (n < 1)
      return infer_fail(
          s, TY_EVALUE, NULL, "output_size: expected positive numbers, got %lld", (long long)n);
    d.dim[2 + i] = n;
  }
  return shape_as(s, &s->out[0], &d);
}

struct adaptive { const struct vec_ops *r; const ty_desc *in, *out; const void *x; void *y; bool back; };

/* Window o of n: from floor(o in / n) to ceil((o + 1) in / n). */
static int64_t window_from(int64_t o, int64_t in, int64_t n) { return o * in / n; }
static int64_t window_to(int64_t o, int64_t in, int64_t n) { return ((o + 1) * in + n - 1) / n; }

static void adaptive_window(const struct adaptive *p, int64_t plane, int64_t oy, int64_t ox)
{
  const struct vec_ops *r = p->r;
  int64_t h = p->in->dim[2], w = p->in->dim[3], oh = p->out->dim[2], ow = p->out->dim[3],
          cell = (plane * oh + oy) * ow + ox;
  int64_t y0 = window_from(oy, h, oh), y1 = window_to(oy, h, oh), x0 = window_from(ox, w, ow),
          x1 = window_to(ox, w, ow);
  double count = (double)((y1 - y0) * (x1 - x0)), sum = 0;
  for (int64_t y = y0; y < y1; y++) {
    int64_t line = (plane * h + y) * w + x0;
    if (p->back)
      r->affine(at(r, p->y, line), at(r, p->y, line), 1, r->get(p->x, cell) / count, x1 - x0);
    else
      sum += r->sum(at(r, p->x, line), x1 - x0);
  }
  if (!p->back) r->set(p->y, cell, sum / count);
}

static void adaptive_body(int64_t begin, int64_t end, void *context)
{
  const struct adaptive *p = context;
  int64_t size = p->in->dim[2] * p->in->dim[3];
  for (int64_t i = begin; i < end; i++) {
    if (p->back) memset(at(p->r, p->y, i * size), 0, p->r->size * (size_t)size);
    for (int64_t y = 0; y < p->out->dim[2]; y++)
      for (int64_t x = 0; x < p->out->dim[3]; x++) adaptive_window(p, i, y, x);
  }
}

static int adaptive_run(const ty_desc *in, const ty_desc *out, const void *x, void *y, bool back)
{
  struct adaptive p = { vec_ops_of(in->dtype), in, out, x, y, back };
  if (y) parallel(in->dim[0] * in->dim[1], grain_of(in->dim[2] * in->dim[3]), adaptive_body, &p);
  return TY_OK;
}

static int adaptive_forward(struct call *c)
{
  return adaptive_run(&c->in[0].d, &c->out[0].d, c->in[0].p, c->out[0].p, false);
}
static int adaptive_backward(struct call *c)
{
  return adaptive_run(&c->out[0].d, &c->in[0].d, c->in[0].p, c->out[0].p, true);
}
static const struct kernel adaptive_cpu[] = { { "rows", adaptive_forward, T_FLOAT }, { 0 } };
static const struct kernel adaptive_back_cpu[] = { { "rows", adaptive_backward, T_FLOAT }, { 0 } };

const struct op op_pooling[] = {
  { .name = "Pooling", .alias = "_npx_pooling", .in = "data", .out = "output {places}",
    .doc = "Maximum, mean, sum or power mean over windows of 1 to 3 axes. The gradient of max goes to the first "
           "maximum of a window.",
    .param = pool_params, .param_size = sizeof(struct pool_param), .check = pool_check, .shape = pool_shape, .type = pool_type,
    .grad_of = pool_grad, .cpu = pool_cpu, .back_cpu = pool_back_cpu },
  { .name = "Pooling_v1", .in = "data",
    .doc = "Older pooling over windows of 2 or 3 axes: padding counts as zeros, avg divides by the whole window, and "
           "every maximum of a window gets its gradient.",
    .param = pool1_params, .param_size = sizeof(struct pool_param), .check = pool1_check, .shape = pool_shape,
    .grad_of = pool1_grad,
    .cpu = pool_cpu, .back_cpu = pool_back_cpu },
  { .name = "_contrib_quantized_pooling", .in = "data min_data max_data", .out = "output min_output max_output",
    .doc = "Pooling of 8-bit data, means rounded to the nearest level; the range stays.",
    .param = pool_params, .param_size = sizeof(struct pool_param), .check = pool_check, .shape = layer8_shape, .type = layer8_type,
    .cpu = layer8_cpu },
  { .name = "_contrib_AdaptiveAvgPooling2D", .in = "data",
    .doc = "Mean over windows chosen so that the output has output_size: (batch, channels, height, width).",
    .param = adaptive_params, .param_size = sizeof(struct adaptive_param), .shape = adaptive_shape, .grad = "g0",
    .cpu = adaptive_cpu, .back_cpu = adaptive_back_cpu },
  { 0 }
};
