/* weight.c - the gradients of the weight and the bias. See conv.h.
**
** dW^T = columns (depth x positions) times dy^T (positions x filters). The left side, the columns,
** is the image itself, read in place (or a padded copy if there is padding): for one tap of the
** window, rows are channels; with few channels, rows are the taps of a row of the window instead.
** Positions are processed in blocks of a few output rows, whose dy^T is packed once for all taps.
** Images are divided into a fixed number of shares, each with its own sum; the sums are added in
** order at the end. The split depends on shapes alone. With many filters, weight_outer.c is
** used. */
#include "kernel/conv/inner.h"

struct weight {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;
  const char *x, *dy;
  char *sums, *tmp;
  size_t thread_bytes;                                /* bytes of a thread: its slab, then dy^T */
  size_t slab_bytes;                                  /* bytes of the slab alone */
  int64_t taps, in, out;
  int64_t ld;                                         /* filters, rounded up to vectors */
  int64_t shares;                                     /* number of shares of images */
  int64_t images;                                     /* images of a share */
  int64_t lanes;                                      /* filters of a unit */
  int64_t across;                                     /* units along the filters */
  int64_t ow;                                         /* positions of a row of a block */
  int64_t oh;                                         /* rows of a block */
  int64_t slab[3];                                    /* size of the padded copy of a channel */
  bool padded;
  /* rows of the left side are taps of a row of the window, not channels */
  bool by_tap;
};

static void weight_plan(struct weight *d)
{
  const struct window *w = d->w;
  d->t = gemm_type(w->dtype);
  d->size = dtype_size(w->dtype);
  d->taps = window_taps(w);
  d->in = window_in(w);
  d->out = window_out(w);
  d->ld = (w->filters + d->t->w - 1) / d->t->w * d->t->w;
  d->ow = MIN(w->out[2], CONV_POSITIONS);
  d->oh = MAX(1, MIN(w->out[1], CONV_POSITIONS / d->ow));
  d->padded = w->pad[0] || w->pad[1] || w->pad[2];
  d->by_tap = w->channels < w->kernel[2];
  d->slab[0] = (w->kernel[0] - 1) * w->dilate[0] + 1;
  d->slab[1] = (d->oh - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilate[1] + 1;
  d->slab[2] = (d->ow - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilate[2] + 1;
  int64_t sum = window_depth(w) * d->ld * w->groups * (int64_t)d->size;
  int64_t most = MAX(1, MIN(CONV_SHARES, CONV_SHARES_BYTES / sum));
  d->images = (w->n + most - 1) / most;
  d->shares = (w->n + d->images - 1) / d->images;
  double work = (double)d->images * (double)window_depth(w) * (double)d->ld * (double)d->out;
  int64_t panels = (d->ld + d->t->nr - 1) / d->t->nr, p = panels;
  while (p > 1 && d->shares * w->groups * ((panels + p - 1) / p) < CONV_SHARES &&
      work * (double)p / (double)panels > 4 * GEMM_WORK)
    p = (p + 1) / 2;
  d->lanes = p * d->t->nr;
  d->across = (panels + p - 1) / p;
  int64_t slab = d->padded ? w->channels * d->slab[0] * d->slab[1] * d->slab[2] : 0;
  d->slab_bytes = align_up((size_t)slab * d->size, ALIGN);
  d->thread_bytes = d->slab_bytes +
      align_up((size_t)(d->ow * d->oh * MIN(d->lanes, d->ld)) * d->size, ALIGN);
}

static size_t weight_count_sums_bytes(const struct weight *d)
{
  return align_up((size_t)(d->shares * d->w->groups * window_depth(d->w) * d->ld) * d->size, ALIGN);
}

size_t convolve_weight_scratch(const struct window *w)
{
  struct weight d = { .w = w };
  if (outer_profitable(w)) return outer_scratch(w);
  weight_plan(&d);
  return weight_count_sums_bytes(&d) + d.thread_bytes * (size_t)parallel_threads();
}

/* Copies the part of all channels that a block of positions reads, with zeros outside of the
** image. */
static void weight_copy_slab(
    const struct weight *d, const char *image, const int64_t from[3], char *slab)
{
  const struct window *w = d->w;
  const size_t size = d->size;
  int64_t left = MAX(0, -from[2]), right = MIN(d->slab[2], w->in[2] - from[2]);
  for (int64_t c = 0; c < w->channels; c++, image += (size_t)d->in * size)
    for (int64_t z = from[0]; z < from[0] + d->slab[0]; z++)
      for (int64_t y = from[1]; y < from[1] + d->slab[1]; y++, slab += (size_t)d->slab[2] * size) {
        bool out = z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1] || right <= left;
        if (out || left || right < d->slab[2]) memset(slab, 0, (size_t)d->slab[2] * size);
        if (out) continue;
        memcpy(slab + (size_t)left * size,
            image + (size_t)((z * w->in[1] + y) * w->in[2] + from[2] + left) * size,
            (size_t)(right - left) * size);
      }
}

/* The sums of a share. lanes: filters, rounded up to vectors; add: adds to the sums in p. */
struct tap_sums { char *p; int64_t lanes; bool add; };

/* Adds the products of all taps for one block: oh x ow positions from `image` on, dy^T in `panels`.
** channel: elements of a channel of `image`, whose axes have `size`. */
static void weight_add_block_taps(const struct weight *d, const char *image, const int64_t size[3],
    int64_t channel, int64_t oh, int64_t ow, const char *panels, const struct tap_sums *s)
{
  const struct window *w = d->w;
  const int64_t *k = w->kernel;
  struct gemm_block g = { .m = d->by_tap ? k[2] : w->channels,
    .n = s->lanes,
    .k = ow,
    .outer = oh,
    .acs = w->stride[2],
    .jump = w->stride[1] * size[2] - ow * w->stride[2],
    .ars = d->by_tap ? w->dilate[2] : channel,
    .b = panels,
    .panel = oh * ow * d->t->nr,
    .ldc = d->by_tap ? d->ld : d->taps * d->ld,
    .alpha = 1,
    .add = s->add };
  g.strip = gemm_height(g.m, d->t->mr) * g.ars;
  for (int64_t c = 0; c < (d->by_tap ? w->channels : 1); c++)
    for (int64_t t = 0; t < d->taps; t += d->by_tap ? k[2] : 1) {
      int64_t x = t % k[2], y = t / k[2] % k[1], z = t / k[2] / k[1];
      int64_t at = c * channel + (z * w->dilate[0] * size[1] + y * w->dilate[1]) * size[2] +
          x * w->dilate[2];
      g.a = image + (size_t)at * d->size;
      g.c = s->p + (size_t)((c * d->taps + t) * d->ld) * d->size;
      d->t->block(&g);
    }
}

static void weight_add_image(
    const struct weight *d, const char *x, const char *dy, struct tap_sums s, int64_t lanes)
{
  const struct window *w = d->w;
  char *slab = d->tmp + d->thread_bytes * (size_t)parallel_index(), *panels = slab + d->slab_bytes;
  for (int64_t z = 0; z < w->out[0]; z++)
    for (int64_t y = 0; y < w->out[1]; y += d->oh)
      for (int64_t v = 0; v < w->out[2]; v += d->ow) {
        int64_t oh = MIN(d->oh, w->out[1] - y), ow = MIN(d->ow, w->out[2] - v);
        int64_t from[3] = { z * w->stride[0] - w->pad[0], y * w->stride[1] - w->pad[1],
          v * w->stride[2] - w->pad[2] };
        const char *block = dy + (size_t)((z * w->out[1] + y) * w->out[2] + v) * d->size;
        gemm_panels(d->t, true, lanes, oh * ow, block, d->out, panels);
        if (d->padded) {
          weight_copy_slab(d, x, from, slab);
          weight_add_block_taps(
              d, slab, d->slab, d->slab[0] * d->slab[1] * d->slab[2], oh, ow, panels, &s);
        }
        else {
          const char *image = x +
              (size_t)((from[0] * w->in[1] + from[1]) * w->in[2] + from[2]) * d->size;
          weight_add_block_taps(d, image, w->in, d->in, oh, ow, panels, &s);
        }
        s.add = true;
      }
}

/* Computes sums; a unit is a share, a group and a block of filters. */
static void weight_run_units(int64_t begin, int64_t end, void *context)
{
  const struct weight *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u % d->across * d->lanes, group = u / d->across % w->groups,
            share = u / d->across / w->groups;
    int64_t lanes = MIN(d->lanes, w->filters - o), depth = window_depth(w);
    struct tap_sums s = { d->sums +
          (size_t)((share * w->groups + group) * depth * d->ld + o) * d->size,
      MIN(d->lanes, d->ld - o), false };
    for (int64_t i = share * d->images; i < MIN(w->n, (share + 1) * d->images); i++) {
      const char *x = d->x + (size_t)((i * w->groups + group) * w->channels * d->in) * d->size;
      const char *dy = d->dy +
          (size_t)(((i * w->groups + group) * w->filters + o) * d->out) * d->size;
      weight_add_image(d, x, dy, s, lanes);
      s.add = true;
    }
  }
}

/* -- sums to dw -------------------------------------------------------------------------------- */

struct gather { const struct weight *d; char *dw; bool add; };

static void weight_add_transposed(const struct weight *d, const char *sums, int64_t rows, char *dw)
{
  for (int64_t i = 0; i < rows; i++)
    for (int64_t o = 0; o < d->w->filters; o++) {
      int64_t from = i * d->ld + o, to = o * window_depth(d->w) + i;
      if (d->size == 8)
        ((double *)dw)[to] += ((const double *)sums)[from];
      else
        ((float *)dw)[to] += ((const float *)sums)[from];
    }
}

/* Adds up rows begin .. end - 1 of the sums of all shares in order, over all groups, and transposes
** them to filters x depth. */
static void weight_gather_rows(int64_t begin, int64_t end, void *context)
{
  const struct gather *r = context;
  const struct weight *d = r->d;
  const int64_t depth = window_depth(d->w), all = depth * d->w->groups;
  for (int64_t k = begin, n; k < end; k += n) {
    n = MIN(MIN(d->t->w, end - k), depth - k % depth);
    char *sum = d->sums + (size_t)(k * d->ld) * d->size;
    for (int64_t s = 1; s < d->shares; s++)
      d->t->axpy(n * d->ld, 1, sum + (size_t)(s * all * d->ld) * d->size, 1, sum);
    char *dw = r->dw + (size_t)(k / depth * d->w->filters * depth + k % depth) * d->size;
    if (r->add)
      weight_add_transposed(d, sum, n, dw);
    else
      d->t->strip(n, d->w->filters, sum, d->ld, 1, (int)depth, dw);
  }
}

int convolve_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add, void *tmp)
{
  struct weight d = { .w = w, .x = x, .dy = dy };
  if (outer_profitable(w)) {
    outer_weight(w, x, dy, dw, add, tmp);
    return TY_OK;
  }
  weight_plan(&d);
  d.sums = tmp;
  d.tmp = (char *)tmp + weight_count_sums_bytes(&d);
  double work = (double)d.images * (double)window_depth(w) * (double)MIN(d.lanes, d.ld) *
      (double)d.out;
  parallel_for_stoppable(
      d.shares * w->groups * d.across, NS_PRODUCT * work, weight_run_units, &d);
  struct gather r = { &d, dw, add };
  int64_t grain = MAX(1, CONV_GATHER_GRAIN / (d.ld * d.shares) / d.t->w) * d.t->w;
  parallel_chunks_stoppable(window_depth(w) * w->groups, grain, weight_gather_rows, &r);
  return TY_OK;
}

/* -- bias -------------------------------------------------------------------------------------- */

struct channel_sums {
  const struct gemm_type *t;
  int dtype;
  int64_t n, c, spatial;
  const char *x;
  void *out;
  bool add;
};

static void weight_sum_bias(int64_t begin, int64_t end, void *context)
{
  const struct channel_sums *s = context;
  for (int64_t c = begin; c < end; c++) {
    double total = 0;
    for (int64_t i = 0; i < s->n; i++)
      total += s->t->sum(
          s->spatial, s->x + (size_t)((i * s->c + c) * s->spatial) * dtype_size(s->dtype));
    if (s->dtype == TY_F64)
      ((double *)s->out)[c] = total + (s->add ? ((double *)s->out)[c] : 0);
    else
      ((float *)s->out)[c] = (float)(total + (s->add ? ((float *)s->out)[c] : 0));
  }
}

void convolve_bias(
    int dtype, int64_t n, int64_t c, int64_t spatial, const void *x, void *out, bool add)
{
  struct channel_sums s = { gemm_type(dtype), dtype, n, c, spatial, x, out, add };
  parallel_for_stoppable(c, cost_ns(CONV_BIAS_NS, n * spatial), weight_sum_bias, &s);
}
