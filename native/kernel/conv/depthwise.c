/* depthwise.c - windows that see one channel only (depthwise): rows times numbers, no product of
** matrices.
**
** A unit is one plane of the output (of the data's gradient: of the data; of the weight's: one
** filter). For each tap of the window the part of a row inside the image is added with
** the tap's weight.
*/
#include "kernel/conv/inner.h"

struct depth {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;
  const char *x, *weight, *bias, *dy;
  char *to;
  int64_t taps, in, out;
  int act;
  bool add;
};

bool depthwise_profitable(const struct window *w)
{
  return w->channels == 1 && w->groups >= 4 && w->filters <= 8;
}

static double weight_of(const struct depth *d, int64_t i)
{
  return d->size == 8 ? ((const double *)d->weight)[i] : (double)((const float *)d->weight)[i];
}

/* What a tap of the window sees for one output row: first column, columns, place in the image.
** Negative n: nothing. */
struct sight { int64_t first, n, from; };

static struct sight find_sight(const struct window *w, int64_t row, int64_t tap)
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

static void forward_planes(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    int64_t filter = u % (w->groups * w->filters);
    const char *x = d->x + (size_t)(u / w->filters * d->in) * d->size;
    char *y = d->to + (size_t)(u * d->out) * d->size;
    memset(y, 0, (size_t)d->out * d->size);
    if (d->bias) d->t->axpy(d->out, 1, d->bias + (size_t)filter * d->size, 0, y);
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
      for (int64_t t = 0; t < d->taps; t++) {
        struct sight s = find_sight(w, r, t);
        if (s.n > 0)
          d->t->axpy(s.n, weight_of(d, filter * d->taps + t), x + (size_t)s.from * d->size,
              w->stride[2], y + (size_t)(r * w->out[2] + s.first) * d->size);
      }
    d->t->act(d->act, d->out, y);
  }
}

/* Adds: y[i * step] += a x[i]. */
static void scatter_row(
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

static void data_planes(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    char *x = d->to + (size_t)(u * d->in) * d->size;
    if (!d->add) memset(x, 0, (size_t)d->in * d->size);
    for (int64_t f = 0; f < w->filters; f++)
      for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
        for (int64_t t = 0; t < d->taps; t++) {
          struct sight s = find_sight(w, r, t);
          const char *dy = d->dy +
              (size_t)((u * w->filters + f) * d->out + r * w->out[2] + s.first) * d->size;
          if (s.n > 0)
            scatter_row(d, s.n, weight_of(d, (u % w->groups * w->filters + f) * d->taps + t), dy,
                x + (size_t)s.from * d->size, w->stride[2]);
        }
  }
}

static double tap_sum(const struct depth *d, int64_t filter, int64_t tap)
{
  const struct window *w = d->w;
  double sum = 0;
  for (int64_t i = 0; i < w->n; i++) {
    int64_t plane = i * w->groups * w->filters + filter;
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++) {
      struct sight s = find_sight(w, r, tap);
      if (s.n > 0)
        sum += d->t->dot(s.n, d->x + (size_t)(plane / w->filters * d->in + s.from) * d->size,
            w->stride[2], d->dy + (size_t)(plane * d->out + r * w->out[2] + s.first) * d->size);
    }
  }
  return sum;
}

static void weight_filters(int64_t begin, int64_t end, void *context)
{
  const struct depth *d = context;
  for (int64_t i = begin * d->taps; i < end * d->taps; i++) {
    double v = tap_sum(d, i / d->taps, i % d->taps);
    if (d->size == 8)
      ((double *)d->to)[i] = v + (d->add ? ((double *)d->to)[i] : 0);
    else
      ((float *)d->to)[i] = (float)(v + (d->add ? ((float *)d->to)[i] : 0));
  }
}

static struct depth depth_of(const struct window *w, void *to, bool add)
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

static double plane_ns(const struct depth *d, int64_t planes)
{
  return cost_ns(DEPTHWISE_NS, planes * d->taps * d->out);
}

void depth_forward(
    const struct window *w, const void *x, const void *weight, const void *bias, int act, void *y)
{
  struct depth d = depth_of(w, y, false);
  d.x = x;
  d.weight = weight;
  d.bias = bias;
  d.act = act;
  parallel_for_stoppable(w->n * w->groups * w->filters, plane_ns(&d, 1), forward_planes, &d);
}

void depth_data(const struct window *w, const void *dy, const void *weight, void *dx, bool add)
{
  struct depth d = depth_of(w, dx, add);
  d.dy = dy;
  d.weight = weight;
  parallel_for_stoppable(w->n * w->groups, plane_ns(&d, w->filters), data_planes, &d);
}

void depth_weight(const struct window *w, const void *x, const void *dy, void *dw, bool add)
{
  struct depth d = depth_of(w, dw, add);
  d.x = x;
  d.dy = dy;
  parallel_for_stoppable(w->groups * w->filters, plane_ns(&d, w->n), weight_filters, &d);
}
