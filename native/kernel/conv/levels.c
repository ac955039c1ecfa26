/* levels.c - a convolution of 8-bit levels. See conv.h.
**
** An image is converted to words of four channels, with borders of the level that represents 0.
** Panels of the right side are filled from these as from a float32 image with a quarter of the
** channels, without a matrix of columns. Weights are reordered in the same way and kept. A unit is
** some positions times some filters of a group; its sums are converted to results while they are in
** the cache. Threads divide a batch by images, a single image by units. */
#include "kernel/conv/inner.h"

enum {
  PER = 4,                                            /* channels of a word */
  MOST_PANELS = 8,                                    /* most panels of a unit */
  UNITS = 8,                                          /* units or images that suffice for a team */
  /* bytes of a unit's panels, in the second-level cache */
  PANEL_BYTES = 512 << 10,
  SUM_BYTES = 256 << 10,                              /* bytes of its sums, in the same cache */
};

struct levels_pass {
  const struct convolve_levels *v;
  const struct gemm_type *t, *moves;
  struct window words;                                /* of a group's words, with borders */
  int64_t depth;                                      /* elements of a filter */
  bool direct;                                        /* 1 x 1: panels straight from the levels */
  const int8_t *weight;                               /* in the order of the words */
  const int64_t *tap;
  struct level_row row;
  /* positions of a unit */
  int64_t cols;
  /* filters of a unit */
  int64_t rows;
  /* units along the positions */
  int64_t across;
  /* units along the filters */
  int64_t down;
  size_t level_bytes;                                 /* of a thread's levels of float32 data */
  size_t word_bytes;                                  /* of its words */
  size_t panel_bytes;                                 /* of its panels */
  size_t sum_bytes;                                   /* of its sums */
  char *threads;
  /* index of the current image */
  int64_t image;
  const uint8_t *levels;
  char *image_words;
};

/* -- sizes ------------------------------------------------------------------------------------- */

static struct window levels_make_word_window(const struct window *w)
{
  struct window x = *w;
  x.channels = (w->channels + PER - 1) / PER;
  x.dtype = TY_F32;
  for (int a = 0; a < 3; a++) {
    x.in[a] += 2 * w->pad[a];
    x.pad[a] = 0;
  }
  return x;
}

/* Returns whether threads divide the batch by images, not an image by units. This must not depend
** on the number of threads, which is unknown when scratch is counted. */
static bool levels_divides_images(const struct window *w) { return w->n >= UNITS; }

static struct levels_pass levels_make_pass(const struct window *w, int dtype)
{
  struct levels_pass x = { .t = gemm_type(GEMM_S8),
    .moves = gemm_type(TY_F32),
    .words = levels_make_word_window(w),
    .direct = window_1x1(w) };
  const int64_t out = window_out(w), nr = x.t->nr, mr = x.t->mr,
                wanted = levels_divides_images(w) ? 1 : UNITS;
  x.depth = PER * window_depth(&x.words);
  x.cols = MIN(MOST_PANELS * nr, (out + nr - 1) / nr * nr);
  while (x.cols > nr && (x.cols * x.depth > PANEL_BYTES ||
             (out + x.cols - 1) / x.cols * w->groups < wanted))
    x.cols -= nr;
  x.across = (out + x.cols - 1) / x.cols;
  x.rows = w->filters;
  x.down = 1;
  while (x.rows > 2 * mr && (x.across * x.down * w->groups < wanted ||
             x.rows * x.cols * (int64_t)sizeof(int32_t) > SUM_BYTES)) {
    x.rows = ((x.rows + 1) / 2 + mr - 1) / mr * mr;
    x.down = (w->filters + x.rows - 1) / x.rows;
  }
  if (dtype == TY_F32)
    x.level_bytes = align_up((size_t)(w->groups * w->channels * window_in(w)), ALIGN);
  if (!x.direct)
    x.word_bytes = align_up(
        (size_t)(w->groups * x.words.channels * window_in(&x.words)) * sizeof(int32_t), ALIGN);
  x.panel_bytes = align_up((size_t)(x.cols * x.depth), ALIGN);
  x.sum_bytes = align_up((size_t)(x.rows * x.cols) * sizeof(int32_t), ALIGN);
  return x;
}

static size_t levels_count_thread_bytes(const struct levels_pass *x)
{
  return x->level_bytes + x->word_bytes + x->panel_bytes + x->sum_bytes;
}

static size_t levels_count_tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

size_t convolve_levels_scratch(const struct window *w, int dtype)
{
  const struct levels_pass x = levels_make_pass(w, dtype);
  return levels_count_tap_bytes(w) + levels_count_thread_bytes(&x) * (size_t)parallel_threads();
}

/* -- weights ----------------------------------------------------------------------------------- */

struct ordering {
  const struct window *w;
  int64_t depth;                                      /* elements of a filter in the new order */
  int32_t zero;                                       /* level of the image that represents 0 */
  const int8_t *from;
  int8_t *to;
  int32_t *zero_term;                                 /* per filter */
};

static void levels_order_filters(int64_t begin, int64_t end, void *context)
{
  const struct ordering *x = context;
  const int64_t taps = window_taps(x->w), channels = x->w->channels;
  for (int64_t f = begin; f < end; f++) {
    const int8_t *from = x->from + f * channels * taps;
    int8_t *to = x->to + f * x->depth;
    int32_t sum = 0;
    memset(to, 0, (size_t)x->depth);
    for (int64_t c = 0; c < channels; c++)
      for (int64_t t = 0; t < taps; t++) {
        const int8_t level = from[c * taps + t];
        to[(c / PER * taps + t) * PER + c % PER] = level;
        sum += level;
      }
    x->zero_term[f] = sum * x->zero;
  }
}

/* Finds the reordered filters and their zero terms in the instruction's state; computes them if the
** weight has changed. */
static int levels_order_weight(struct levels_pass *x, struct gemm_kept *kept)
{
  const struct window *w = &x->v->w;
  const int64_t filters = w->groups * w->filters;
  const size_t bytes = align_up((size_t)(filters * x->depth), ALIGN);
  bool fresh;
  char *packed = gemm_kept_buffer(
      kept, x->v->weight, bytes + (size_t)filters * sizeof(int32_t), &fresh);
  NEED(packed, TY_EMEMORY, "out of memory: weight of %zu bytes in another order", bytes);
  struct ordering o = { w, x->depth, x->v->zero, x->v->weight->p, (int8_t *)packed,
    (int32_t *)(packed + bytes) };
  if (!fresh) parallel_for(filters, cost_ns(LEVELS_PACK_NS, x->depth), levels_order_filters, &o);
  x->weight = o.to;
  x->row.zero_term = o.zero_term;
  return TY_OK;
}

/* -- an image ---------------------------------------------------------------------------------- */

static char *levels_find_thread_buffer(const struct levels_pass *x)
{
  return x->threads + levels_count_thread_bytes(x) * (size_t)parallel_index();
}

/* Returns the bits to invert in words of the image; for uint8 this subtracts 128 from each
** level. */
static uint32_t levels_get_flip(const struct levels_pass *x)
{
  return x->v->dtype == TY_U8 ? 0x80808080u : 0;
}

/* Makes the words of blocks begin .. end - 1 of four channels; blocks count over all groups. */
static void levels_make_words(int64_t begin, int64_t end, void *context)
{
  const struct levels_pass *x = context;
  const struct window *w = &x->v->w, *b = &x->words;
  const int64_t plane = window_in(b), in = window_in(w);
  const uint32_t border = (uint8_t)x->v->zero * 0x01010101u, flip = levels_get_flip(x);
  const bool padded = w->pad[0] || w->pad[1] || w->pad[2];
  const int64_t every = w->kernel[1] == 1 && !w->pad[1] ? w->stride[1] : 1; /* skips unread rows */
  for (int64_t i = begin; i < end; i++) {
    const int64_t c = i % b->channels * PER, rows = MIN(PER, w->channels - c);
    const uint8_t *from = x->levels + (i / b->channels * w->channels + c) * in;
    uint32_t *to = (uint32_t *)x->image_words + i * plane;
    if (!padded && every == 1) {
      gemm_narrow()->words(in, rows, from, in, flip, to);
      continue;
    }
    for (int64_t k = 0; padded && k < plane; k++) to[k] = border;
    for (int64_t l = 0; l < w->in[0] * w->in[1]; l++) {
      if (l % w->in[1] % every) continue;
      const int64_t z = l / w->in[1] + w->pad[0], y = l % w->in[1] + w->pad[1];
      gemm_narrow()->words(w->in[2], rows, from + l * w->in[2], in, flip,
          to + (z * b->in[1] + y) * b->in[2] + w->pad[2]);
    }
  }
}

/* Converts the sums of `rows` filters from `channel` on, at n positions from j on, to results. */
static void levels_finish_unit(const struct levels_pass *x, const int32_t *sums, int64_t channel,
    int64_t rows, int64_t j, int64_t n)
{
  const struct window *w = &x->v->w;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t f = channel + r,
                  at = (x->image * w->groups * w->filters + f) * window_out(w) + j;
    struct level_row row = x->row;
    row.n = n;
    row.sum = sums + r * x->cols;
    row.zero_term += f;
    row.scale += f;
    if (row.bias) row.bias += f;
    if (row.addend)
      row.addend = (const char *)row.addend + (size_t)at * dtype_size(row.addend_type);
    row.out = (char *)row.out + (size_t)at * dtype_size(row.out_type);
    levels_finish(&row);
  }
}

/* Fills one panel: `cols` positions from j of a group. */
static void levels_fill_panel(
    const struct levels_pass *x, int64_t group, int64_t j, int64_t cols, uint32_t *panel)
{
  const struct window *w = &x->v->w, *b = &x->words;
  const struct gemm_type *t = x->t;
  const int64_t width = cols > t->w ? t->nr : t->w;
  if (!x->direct) {
    window_columns(b, x->moves, j, cols, b->channels, width, x->tap,
        x->image_words + (size_t)(group * b->channels * window_in(b)) * sizeof(int32_t), panel,
        false);
    return;
  }
  const uint32_t flip = levels_get_flip(x);
  t->panel(w->channels, cols, x->levels + group * w->channels * window_in(w) + j, window_in(w),
      panel);
  for (int64_t i = 0; flip && i < b->channels * width; i++) panel[i] ^= flip;
}

static void levels_multiply_units(int64_t begin, int64_t end, void *context)
{
  const struct levels_pass *x = context;
  const struct window *w = &x->v->w;
  const struct gemm_type *t = x->t;
  char *panels = levels_find_thread_buffer(x) + x->level_bytes + x->word_bytes;
  int32_t *sums = (int32_t *)(panels + x->panel_bytes);
  for (int64_t u = begin; u < end; u++) {
    const int64_t group = u / x->across / x->down, j = u % x->across * x->cols,
                  o = u / x->across % x->down * x->rows, rows = MIN(x->rows, w->filters - o),
                  cols = MIN(x->cols, window_out(w) - j);
    for (int64_t q = 0; q < cols; q += t->nr)
      levels_fill_panel(x, group, j + q, MIN(t->nr, cols - q), (uint32_t *)(panels + q * x->depth));
    const struct gemm_block g = { .m = rows,
      .n = cols,
      .k = x->depth,
      .outer = 1,
      .a = x->weight + (group * w->filters + o) * x->depth,
      .ars = x->depth,
      .acs = 1,
      .strip = gemm_height(rows, t->mr) * x->depth,
      .b = panels,
      .panel = t->nr * gemm_words(t, x->depth),
      .c = sums,
      .ldc = x->cols,
      .alpha = 1,
      .copy = true };
    gemm_sum(t, &g);
    levels_finish_unit(x, sums, group * w->filters + o, rows, j, cols);
  }
}

/* Loads image i into a thread's `buffer`; float32 is quantized. */
static void levels_enter_image(struct levels_pass *x, int64_t i, char *buffer)
{
  const struct convolve_levels *v = x->v;
  const int64_t n = v->w.groups * v->w.channels * window_in(&v->w);
  x->image = i;
  x->image_words = buffer + x->level_bytes;
  if (v->dtype == TY_F32) {
    const float *from = (const float *)v->x + i * n;
    if (v->scale <= 0) x->row.unit = levels_magnitude(n, from) / 127;
    levels_make(n, from, x->row.unit > 0 ? 1 / x->row.unit : 0, 0, buffer);
    x->levels = (const uint8_t *)buffer;
  }
  else
    x->levels = (const uint8_t *)v->x + i * n;
}

static void levels_convolve_images(int64_t begin, int64_t end, void *context)
{
  struct levels_pass x = *(const struct levels_pass *)context;
  const int64_t groups = x.v->w.groups;
  for (int64_t i = begin; i < end; i++) {
    levels_enter_image(&x, i, levels_find_thread_buffer(&x));
    if (!x.direct) levels_make_words(0, groups * x.words.channels, &x);
    levels_multiply_units(0, x.across * x.down * groups, &x);
  }
}

int convolve_levels(const struct convolve_levels *v, struct gemm_kept *kept, void *tmp)
{
  struct levels_pass x = levels_make_pass(&v->w, v->dtype);
  x.v = v;
  x.row = v->row;
  x.row.unit = v->scale;
  x.tap = tmp;
  x.threads = (char *)tmp + levels_count_tap_bytes(&v->w);
  window_offsets(&x.words, tmp);
  TRY(levels_order_weight(&x, kept));
  if (levels_divides_images(&v->w)) {
    parallel_chunks_stoppable(v->w.n, 1, levels_convolve_images, &x);
    return TY_OK;
  }
  const int64_t groups = v->w.groups;
  for (int64_t i = 0; i < v->w.n && !stop_wanted(); i++) {
    levels_enter_image(&x, i, x.threads);
    if (!x.direct)
      parallel_for(
          groups * x.words.channels, cost_ns(NS_PICK, window_in(&x.words)), levels_make_words, &x);
    parallel_chunks_stoppable(x.across * x.down * groups, 1, levels_multiply_units, &x);
  }
  return TY_OK;
}
