/* few.c - convolutions with a few positions: dot products of filters and windows.
**
** The inputs of all windows are copied, one window after the other. Each filter is then read in
** place along its depth and multiplied by all of them. With so few products, reading the weight
** takes most of the time, and packing it would not help. */
#include "kernel/conv/inner.h"

enum { FILTERS = 4 };                                 /* filters multiplied together */

bool few_profitable(const struct window *w)
{
  const int64_t out = window_out(w);
  return w->groups == 1 && window_positions(w) <= FEW_POSITIONS && (w->n == 1 || out >= FEW_EACH) &&
      window_depth(w) >= FEW_DEPTH;
}

/* Returns the bytes of the windows of one image. */
size_t few_scratch(const struct window *w)
{
  return (size_t)(window_out(w) * window_depth(w)) * dtype_size(w->dtype);
}

/* -- inputs of windows ------------------------------------------------------------------------- */

/* Copies the elements of row (z, y) of one channel that the taps along the width read, from column
** x on. inside: whether the row is inside the image; else the elements are zeros. */
static void few_copy_row(
    const struct window *w, const char *row, bool inside, int64_t x, size_t size, char *to)
{
  for (int64_t k = 0; k < w->kernel[2]; k++, x += w->dilate[2], to += size)
    if (inside && x >= 0 && x < w->in[2])
      memcpy(to, row + (size_t)x * size, size);
    else
      memset(to, 0, size);
}

/* Copies the inputs of position j of an image. */
static void few_copy_window(const struct window *w, const char *image, int64_t j, char *to)
{
  const size_t size = dtype_size(w->dtype), taps = (size_t)w->kernel[2] * size;
  const int64_t x = j % w->out[2] * w->stride[2] - w->pad[2],
                y = j / w->out[2] % w->out[1] * w->stride[1] - w->pad[1],
                z = j / w->out[2] / w->out[1] * w->stride[0] - w->pad[0];
  const bool whole = w->dilate[2] == 1 && x >= 0 && x + w->kernel[2] <= w->in[2];
  for (int64_t c = 0; c < w->channels; c++)
    for (int64_t kz = 0; kz < w->kernel[0]; kz++)
      for (int64_t ky = 0; ky < w->kernel[1]; ky++, to += taps) {
        const int64_t iz = z + kz * w->dilate[0], iy = y + ky * w->dilate[1];
        const bool inside = iz >= 0 && iz < w->in[0] && iy >= 0 && iy < w->in[1];
        const char *row = image +
            (inside ? (size_t)(((c * w->in[0] + iz) * w->in[1] + iy) * w->in[2]) * size : 0);
        if (inside && whole)
          memcpy(to, row + (size_t)x * size, taps);
        else
          few_copy_row(w, row, inside, x, size, to);
      }
}

/* -- the product ------------------------------------------------------------------------------- */

struct few {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;
  const struct convolve_end *end;
  const char *weight;
  const char *windows;                                /* copied windows of one image */
  char *y;                                            /* result of that image */
  int64_t out, depth;
};

static void few_add_bias(const struct few *f, int64_t filter)
{
  if (f->size == sizeof(double)) {
    const double b = ((const double *)f->end->bias)[filter];
    for (int64_t j = filter * f->out; j < (filter + 1) * f->out; j++) ((double *)f->y)[j] += b;
  }
  else {
    const float b = ((const float *)f->end->bias)[filter];
    for (int64_t j = filter * f->out; j < (filter + 1) * f->out; j++) ((float *)f->y)[j] += b;
  }
}

static void few_run_filters(int64_t begin, int64_t end, void *context)
{
  const struct few *f = context;
  const int64_t last = MIN(end * FILTERS, f->w->filters);
  for (int64_t o = begin * FILTERS; o < last; o += FILTERS) {
    const int64_t n = MIN(FILTERS, last - o);
    const char *weight = f->weight + (size_t)(o * f->depth) * f->size;
    char *y = f->y + (size_t)(o * f->out) * f->size;
    if (f->end->scale)
      for (int64_t i = 0; i < n; i++)
        f->t->dots(1, f->out, f->depth, weight + (size_t)(i * f->depth) * f->size, f->depth,
            f->windows, f->depth, y + (size_t)(i * f->out) * f->size, f->out,
            f->end->scale[o + i], f->end->add);
    else
      f->t->dots(n, f->out, f->depth, weight, f->depth, f->windows, f->depth, y, f->out, 1,
          f->end->add);
    for (int64_t i = 0; f->end->bias && i < n; i++) few_add_bias(f, o + i);
    f->t->act(f->end->act, n * f->out, y);
  }
}

void few_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp)
{
  struct few f = { .w = w,
    .t = gemm_type(w->dtype),
    .size = dtype_size(w->dtype),
    .end = end,
    .weight = weight,
    .windows = tmp,
    .out = window_out(w),
    .depth = window_depth(w) };
  const double work = (double)FILTERS * (double)f.out * (double)f.depth;
  for (int64_t i = 0; i < w->n; i++) {
    const char *image = (const char *)x + (size_t)(i * w->channels * window_in(w)) * f.size;
    for (int64_t j = 0; j < f.out; j++)
      few_copy_window(w, image, j, (char *)tmp + (size_t)(j * f.depth) * f.size);
    f.y = (char *)y + (size_t)(i * w->filters * f.out) * f.size;
    /* the weight is read again for each image, from the cache if it is small */
    parallel_for_stoppable(
        (w->filters + FILTERS - 1) / FILTERS, NS_PRODUCT * work, few_run_filters, &f);
  }
}
