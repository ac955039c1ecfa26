/* depthwise.c - convolutions with one channel per group: rows times scalars instead of matrix
** products.
**
** A unit is one plane of the output (for the gradient of the data: of the data; for that of the
** weight: one filter). Forward copies some rows of the image with padding, so that an output row is
** one sum over the taps, in registers. The other functions add, for each tap, the part of a row
** that it reads inside the image, times the tap's weight. */
#include "kernel/conv/inner.h"

struct depth {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;
  const char *x, *weight, *dy;
  char *to;
  char *tmp;                                          /* forward only: depth_scratch bytes */
  const struct convolve_end *end;                     /* forward only */
  int64_t taps, in, out;
  bool add;
};

bool depthwise_profitable(const struct window *w)
{
  return w->channels == 1 && w->groups >= 4 && w->filters <= 8;
}

static double depthwise_weight_of(const struct depth *d, int64_t i)
{
  return d->size == 8 ? ((const double *)d->weight)[i] : (double)((const float *)d->weight)[i];
}

/* The outputs of one row for which a tap reads inside the image: the first column, their number,
** and the offset in the image of the element that the first one reads. n <= 0: there are none. */
struct sight { int64_t first, n, from; };

static struct sight depthwise_find_sight(const struct window *w, int64_t row, int64_t tap)
{
  int64_t x = tap % w->kernel[2], y = tap / w->kernel[2] % w->kernel[1],
          z = tap / w->kernel[2] / w->kernel[1];
  int64_t iz = row / w->out[1] * w->stride[0] - w->pad[0] + z * w->dilate[0],
          iy = row % w->out[1] * w->stride[1] - w->pad[1] + y * w->dilate[1];
  int64_t ix = x * w->dilate[2] - w->pad[2], s = w->stride[2];
  if (iz < 0 || iz >= w->in[0] || iy < 0 || iy >= w->in[1] || ix >= w->in[2])
    return (struct sight){ 0, -1, 0 };
  int64_t first = ix < 0 ? (-ix + s - 1) / s : 0, end = MIN(w->out[2], (w->in[2] - ix + s - 1) / s);
  return (struct sight){ first, end - first, (iz * w->in[1] + iy) * w->in[2] + ix + first * s };
}

/* -- forward ----------------------------------------------------------------------------------- */

/* The padded part of an image under some output rows. Column c is element c / stride of phase c %
** stride, so that the inputs of a tap for neighbouring outputs are contiguous. */
struct padded {
  int64_t rows;                                       /* output rows */
  int64_t height;                                     /* image rows under them */
  int64_t phase;                                      /* elements of a phase */
  int64_t line;                                       /* elements of a row, all phases */
};

static struct padded depthwise_make_padded(const struct window *w)
{
  const int64_t stride = w->stride[2], reach = (w->kernel[1] - 1) * w->dilate[1] + 1,
                bytes = (int64_t)dtype_size(w->dtype);
  struct padded p = {
    .phase = w->out[2] + (w->kernel[2] - 1) * w->dilate[2] / stride + gemm_type(w->dtype)->w
  };
  p.line = stride * p.phase;
  const int64_t fit = DEPTHWISE_PIECE / bytes / p.line;
  p.rows = MAX(1, MIN(w->out[1], (fit - reach) / w->stride[1] + 1));
  p.height = (p.rows - 1) * w->stride[1] + reach;
  return p;
}

static size_t depthwise_count_padded_bytes(const struct window *w)
{
  const struct padded p = depthwise_make_padded(w);
  return align_up((size_t)(p.height * p.line + window_taps(w)) * dtype_size(w->dtype), ALIGN);
}

/* Returns whether a few padded rows of a plane are small enough to be copied; if not, planes are
** computed tap by tap. */
static bool depthwise_is_padded(const struct window *w)
{
  return w->in[0] == 1 && w->kernel[0] == 1 && !w->pad[0] &&
      depthwise_count_padded_bytes(w) <= 8 * DEPTHWISE_PIECE;
}

static size_t depthwise_count_offsets_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

size_t depth_scratch(const struct window *w)
{
  if (!depthwise_is_padded(w)) return 0;
  return depthwise_count_offsets_bytes(w) +
      depthwise_count_padded_bytes(w) * (size_t)parallel_threads();
}

static void depthwise_copy_apart(int64_t n, const char *x, int64_t stride, size_t size, char *to)
{
  if (stride == 1)
    memcpy(to, x, (size_t)n * size);
  else if (size == sizeof(double))
    for (int64_t i = 0; i < n; i++) ((double *)to)[i] = ((const double *)x)[i * stride];
  else
    for (int64_t i = 0; i < n; i++) ((float *)to)[i] = ((const float *)x)[i * stride];
}

/* Copies row y of a plane between its padding, which is set already; fills in zeros if y is
** outside. */
static void depthwise_pad_row(
    const struct depth *d, const struct padded *p, const char *plane, int64_t y, char *to)
{
  const struct window *w = d->w;
  const int64_t stride = w->stride[2];
  if (y < 0 || y >= w->in[1]) {
    memset(to, 0, (size_t)p->line * d->size);
    return;
  }
  if (stride == 1) {                                  /* avoids the divisions below */
    const int64_t first = MIN(p->phase, w->pad[2]), n = MIN(p->phase - first, w->in[2]);
    memcpy(to + (size_t)first * d->size, plane + (size_t)(y * w->in[2]) * d->size,
        (size_t)n * d->size);
    return;
  }
  for (int64_t f = 0; f < stride; f++, to += (size_t)p->phase * d->size) {
    const int64_t first = MIN(p->phase, MAX(0, (w->pad[2] - f + stride - 1) / stride)),
                  x = f + first * stride - w->pad[2],
                  n = MIN(p->phase - first, x < w->in[2] ? (w->in[2] - x - 1) / stride + 1 : 0);
    if (n)
      depthwise_copy_apart(n, plane + (size_t)(y * w->in[2] + x) * d->size, stride, d->size,
          to + (size_t)first * d->size);
  }
}

/* Returns a filter's weight; if there is a scale, their product, in `own`. */
static const char *depthwise_scale_weight(const struct depth *d, int64_t filter, char *own)
{
  const char *weight = d->weight + (size_t)(filter * d->taps) * d->size;
  if (!d->end->scale) return weight;
  for (int64_t t = 0; t < d->taps; t++)
    ((float *)own)[t] = ((const float *)weight)[t] * d->end->scale[filter];
  return own;
}

static double depthwise_bias_of(const struct depth *d, int64_t filter)
{
  if (!d->end->bias) return 0;
  return d->size == sizeof(double) ? ((const double *)d->end->bias)[filter]
                                   : (double)((const float *)d->end->bias)[filter];
}

static void depthwise_run_padded_planes(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  const struct window *w = d->w;
  const struct padded p = depthwise_make_padded(w);
  const int64_t *offset = (const int64_t *)d->tmp;
  char *piece = d->tmp + depthwise_count_offsets_bytes(w) +
      depthwise_count_padded_bytes(w) * (size_t)parallel_index(),
       *own = piece + (size_t)(p.height * p.line) * d->size;
  memset(piece, 0, (size_t)(p.height * p.line) * d->size);
  for (int64_t u = begin; u < end; u++) {
    const int64_t filter = u % (w->groups * w->filters);
    const char *x = d->x + (size_t)(u / w->filters * d->in) * d->size,
               *weight = depthwise_scale_weight(d, filter, own);
    const double bias = depthwise_bias_of(d, filter);
    char *y = d->to + (size_t)(u * d->out) * d->size;
    for (int64_t r = 0; r < w->out[1]; r += p.rows) {
      const int64_t rows = MIN(p.rows, w->out[1] - r),
                    height = (rows - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilate[1] + 1;
      for (int64_t i = 0; i < height; i++)
        depthwise_pad_row(
            d, &p, x, r * w->stride[1] - w->pad[1] + i, piece + (size_t)(i * p.line) * d->size);
      if (w->stride[1] == 1 && w->dilate[1] == 1) {
        const struct gemm_map map = { .rows = rows, .n = w->out[2], .down = (int)w->kernel[1],
          .across = (int)w->kernel[2], .tap = offset, .line = p.line, .to = w->out[2],
          .weight = weight, .start = bias, .add = d->end->add };
        d->t->window_map(&map, piece, y + (size_t)(r * w->out[2]) * d->size);
        continue;
      }
      for (int64_t i = 0; i < rows; i++)
        d->t->window_row(w->out[2], (int)d->taps, offset, weight, bias, d->end->add,
            piece + (size_t)(i * w->stride[1] * p.line) * d->size,
            y + (size_t)((r + i) * w->out[2]) * d->size);
    }
    d->t->act(d->end->act, d->out, y);
  }
}

static void depthwise_run_tap_planes(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    const int64_t filter = u % (w->groups * w->filters);
    const char *x = d->x + (size_t)(u / w->filters * d->in) * d->size;
    const double scale = d->end->scale ? (double)d->end->scale[filter] : 1;
    const char *bias = d->end->bias;
    char *y = d->to + (size_t)(u * d->out) * d->size;
    if (!d->end->add) memset(y, 0, (size_t)d->out * d->size);
    if (bias) d->t->axpy(d->out, 1, bias + (size_t)filter * d->size, 0, y);
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
      for (int64_t t = 0; t < d->taps; t++) {
        struct sight s = depthwise_find_sight(w, r, t);
        if (s.n > 0)
          d->t->axpy(s.n, scale * depthwise_weight_of(d, filter * d->taps + t),
              x + (size_t)s.from * d->size, w->stride[2],
              y + (size_t)(r * w->out[2] + s.first) * d->size);
      }
    d->t->act(d->end->act, d->out, y);
  }
}

/* Lists the offset of each tap in the padded rows. */
static void depthwise_list_padded_offsets(const struct window *w, int64_t *offset)
{
  const struct padded p = depthwise_make_padded(w);
  const int64_t stride = w->stride[2];
  for (int64_t y = 0; y < w->kernel[1]; y++)
    for (int64_t x = 0; x < w->kernel[2]; x++) {
      const int64_t column = x * w->dilate[2];
      *offset++ = y * w->dilate[1] * p.line + column % stride * p.phase + column / stride;
    }
}

/* -- gradients --------------------------------------------------------------------------------- */

/* Adds a row: y[i * step] += a x[i]. */
static void depthwise_scatter_row(
    const struct depth *d, int64_t n, double a, const char *x, char *y, int64_t step)
{
  if (step == 1) {
    d->t->axpy(n, a, x, 1, y);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    if (d->size == 8)
      ((double *)y)[i * step] += a * ((const double *)x)[i];
    else
      ((float *)y)[i * step] += (float)a * ((const float *)x)[i];
  }
}

static void depthwise_run_data_planes(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    char *x = d->to + (size_t)(u * d->in) * d->size;
    if (!d->add) memset(x, 0, (size_t)d->in * d->size);
    for (int64_t f = 0; f < w->filters; f++)
      for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
        for (int64_t t = 0; t < d->taps; t++) {
          struct sight s = depthwise_find_sight(w, r, t);
          const char *dy = d->dy +
              (size_t)((u * w->filters + f) * d->out + r * w->out[2] + s.first) * d->size;
          if (s.n > 0)
            depthwise_scatter_row(d, s.n,
                depthwise_weight_of(d, (u % w->groups * w->filters + f) * d->taps + t), dy,
                x + (size_t)s.from * d->size, w->stride[2]);
        }
  }
}

static double depthwise_sum_tap(const struct depth *d, int64_t filter, int64_t tap)
{
  const struct window *w = d->w;
  double sum = 0;
  for (int64_t i = 0; i < w->n; i++) {
    int64_t plane = i * w->groups * w->filters + filter;
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++) {
      struct sight s = depthwise_find_sight(w, r, tap);
      if (s.n > 0)
        sum += d->t->dot(s.n, d->x + (size_t)(plane / w->filters * d->in + s.from) * d->size,
            w->stride[2], d->dy + (size_t)(plane * d->out + r * w->out[2] + s.first) * d->size);
    }
  }
  return sum;
}

static void depthwise_run_weight_filters(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  for (int64_t i = begin * d->taps; i < end * d->taps; i++) {
    double v = depthwise_sum_tap(d, i / d->taps, i % d->taps);
    if (d->size == 8)
      ((double *)d->to)[i] = v + (d->add ? ((double *)d->to)[i] : 0);
    else
      ((float *)d->to)[i] = (float)(v + (d->add ? ((float *)d->to)[i] : 0));
  }
}

static struct depth depthwise_make_pass(const struct window *w, void *to, bool add)
{
  return (struct depth){ .w = w,
    .t = gemm_type(w->dtype),
    .size = dtype_size(w->dtype),
    .to = to,
    .taps = window_taps(w),
    .in = window_in(w),
    .out = window_out(w),
    .add = add };
}

static double depthwise_estimate_ns(const struct depth *d, int64_t planes)
{
  return cost_ns(DEPTHWISE_NS, planes * d->taps * d->out);
}

void depth_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp)
{
  struct depth d = depthwise_make_pass(w, y, false);
  const bool padded = depthwise_is_padded(w);
  d.x = x;
  d.weight = weight;
  d.end = end;
  d.tmp = tmp;
  if (padded) depthwise_list_padded_offsets(w, tmp);
  parallel_for_stoppable(w->n * w->groups * w->filters,
      cost_ns(padded ? DEPTHWISE_FORWARD_NS : DEPTHWISE_NS, d.taps * d.out),
      padded ? depthwise_run_padded_planes : depthwise_run_tap_planes, &d);
}

void depth_data(const struct window *w, const void *dy, const void *weight, void *dx, bool add)
{
  struct depth d = depthwise_make_pass(w, dx, add);
  d.dy = dy;
  d.weight = weight;
  parallel_for_stoppable(
      w->n * w->groups, depthwise_estimate_ns(&d, w->filters), depthwise_run_data_planes, &d);
}

void depth_weight(const struct window *w, const void *x, const void *dy, void *dw, bool add)
{
  struct depth d = depthwise_make_pass(w, dw, add);
  d.x = x;
  d.dy = dy;
  parallel_for_stoppable(
      w->groups * w->filters, depthwise_estimate_ns(&d, w->n), depthwise_run_weight_filters, &d);
}
