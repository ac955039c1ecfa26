/* weight_outer.c - the gradient of the weight with many filters: dW = dy (filters x positions)
** times columns^T (positions x depth), written in place.
**
** dy is read in place as the left side. The right side is made for a block of channels and up to
** 128 positions at a time: rows of columns, transposed into panels, which pays with many filters. A
** unit is a block of channels of one share of the images. If there are several shares, each has its
** own sum in scratch, and the sums are added up in order. */
#include "kernel/conv/inner.h"

struct outer {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;                                        /* bytes of an element */
  /* bytes of a thread: rows of columns, then panels */
  size_t thread_bytes;
  size_t rows_bytes;                                  /* bytes of these rows alone */
  const char *x, *dy;
  char *dw, *sums, *tmp;
  const int64_t *tap;
  int64_t taps, depth, in, out, block, blocks, images, shares;
  bool add;
};

static size_t outer_count_tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

static void outer_plan(struct outer *d)
{
  const struct window *w = d->w;
  d->t = gemm_type(w->dtype);
  d->size = dtype_size(w->dtype);
  d->taps = window_taps(w);
  d->depth = window_depth(w);
  d->in = window_in(w);
  d->out = window_out(w);
  int64_t most = MAX(1, OUTER_ROWS / d->taps);
  d->blocks = (w->channels + most - 1) / most;
  d->block = (w->channels + d->blocks - 1) / d->blocks;
  int64_t units = d->blocks * w->groups, want = (OUTER_UNITS + units - 1) / units;
  int64_t bytes = d->depth * w->filters * w->groups * (int64_t)d->size;
  int64_t shares = MAX(1, MIN(want, MIN(w->n, OUTER_SHARES_BYTES / bytes)));
  d->images = (w->n + shares - 1) / shares;
  d->shares = (w->n + d->images - 1) / d->images;
  d->rows_bytes = align_up((size_t)(d->block * d->taps * CONV_COLUMNS) * d->size, ALIGN);
  d->thread_bytes = d->rows_bytes +
      align_up((size_t)((d->block * d->taps + d->t->nr) * CONV_COLUMNS) * d->size, ALIGN);
}

static size_t outer_count_sums_bytes(const struct outer *d)
{
  return d->shares > 1
      ? align_up((size_t)(d->shares * d->w->groups * d->w->filters * d->depth) * d->size, ALIGN)
      : 0;
}

bool outer_profitable(const struct window *w)
{
  return w->filters >= OUTER_FILTERS && (window_taps(w) > 1 || window_out(w) < OUTER_POSITIONS);
}

size_t outer_scratch(const struct window *w)
{
  struct outer d = { .w = w };
  outer_plan(&d);
  return outer_count_tap_bytes(w) + outer_count_sums_bytes(&d) +
      d.thread_bytes * (size_t)parallel_threads();
}

/* Adds the products of one image for `channels` channels of a group, from x on. */
static void outer_add_image(
    const struct outer *d, const char *x, const char *dy, int64_t channels, char *to, bool add)
{
  const struct window *w = d->w;
  char *rows = d->tmp + d->thread_bytes * (size_t)parallel_index(), *panels = rows + d->rows_bytes;
  const int64_t lanes = channels * d->taps;
  for (int64_t j = 0; j < d->out; j += CONV_COLUMNS) {
    int64_t cols = MIN(CONV_COLUMNS, d->out - j), width = (cols + d->t->w - 1) / d->t->w * d->t->w;
    window_columns(w, d->t, j, cols, channels, width, d->tap, x, rows, false);
    gemm_panels(d->t, true, lanes, cols, rows, width, panels);
    struct gemm_block g = { .m = w->filters,
      .n = lanes,
      .k = cols,
      .outer = 1,
      .a = dy + (size_t)j * d->size,
      .ars = d->out,
      .acs = 1,
      .b = panels,
      .panel = cols * d->t->nr,
      .c = to,
      .ldc = d->depth,
      .alpha = 1,
      .add = add || j > 0,
      .copy = (size_t)d->out * d->size % 1024 == 0 };
    g.strip = gemm_height(g.m, d->t->mr) * g.ars;
    d->t->block(&g);
  }
}

/* Computes sums; a unit is a share, a group and a block of channels. */
static void outer_run_units(int64_t begin, int64_t end, void *context)
{
  const struct outer *d = context;
  const struct window *w = d->w;
  for (int64_t u = begin; u < end; u++) {
    int64_t c = u % d->blocks * d->block, group = u / d->blocks % w->groups,
            share = u / d->blocks / w->groups;
    int64_t channels = MIN(d->block, w->channels - c);
    char *sum = d->shares > 1
        ? d->sums + (size_t)(share * w->groups * w->filters * d->depth) * d->size
        : d->dw;
    char *to = sum + (size_t)(group * w->filters * d->depth + c * d->taps) * d->size;
    for (int64_t i = share * d->images; i < MIN(w->n, (share + 1) * d->images); i++) {
      const char *x = d->x +
          (size_t)(((i * w->groups + group) * w->channels + c) * d->in) * d->size;
      const char *dy = d->dy + (size_t)((i * w->groups + group) * w->filters * d->out) * d->size;
      outer_add_image(d, x, dy, channels, to, i > share * d->images || (d->add && d->shares == 1));
    }
  }
}

static void outer_add_shares(int64_t begin, int64_t end, void *context)
{
  const struct outer *d = context;
  const int64_t all = d->w->groups * d->w->filters * d->depth;
  char *to = d->dw + (size_t)begin * d->size;
  if (!d->add) memset(to, 0, (size_t)(end - begin) * d->size);
  for (int64_t s = 0; s < d->shares; s++)
    d->t->axpy(end - begin, 1, d->sums + (size_t)(s * all + begin) * d->size, 1, to);
}

void outer_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add, void *tmp)
{
  struct outer d = { .w = w, .x = x, .dy = dy, .dw = dw, .add = add, .tap = tmp };
  outer_plan(&d);
  d.sums = (char *)tmp + outer_count_tap_bytes(w);
  d.tmp = d.sums + outer_count_sums_bytes(&d);
  window_offsets(w, tmp);
  double work = (double)d.images * (double)(d.block * d.taps) * (double)w->filters * (double)d.out;
  parallel_for_stoppable(
      d.shares * w->groups * d.blocks, NS_PRODUCT * work, outer_run_units, &d);
  if (d.shares > 1)
    parallel_for_stoppable(
        w->groups * w->filters * d.depth, OUTER_ADD_NS, outer_add_shares, &d);
}
