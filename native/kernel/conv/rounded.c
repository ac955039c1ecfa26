/* rounded.c - a convolution of float32 whose operands are rounded to bfloat16. See conv.h.
**
** Two consecutive channels form one word, so that an image becomes half as many planes of words,
** with borders of zeros. Panels of the right side are filled from these as from a float32 image.
** The weight is rounded in the same order and kept. A thread computes whole images. */
#include "base/cast.h"
#include "kernel/conv/inner.h"

enum {
  PER = 2,                                            /* channels of a word */
  MOST_PANELS = 4,                                    /* panels that are filled before use */
  /* words that a packed row writes past its end: less than two vectors */
  SLACK = 32,
};

struct rounded_pass {
  const struct window *w;
  const struct gemm_type *t;
  struct window words;                                /* of a group's words, with borders */
  int64_t depth;                                      /* elements of a filter */
  int64_t cols;                                       /* positions at a time */
  const float *x;
  float *y;
  const uint16_t *weight;
  const int64_t *tap;
  struct convolve_end end;
  /* bytes of a thread's words, those of a group's channels */
  size_t word_bytes;
  size_t panel_bytes;                                 /* bytes of its panels */
  char *threads;
};

bool rounded_profitable(const struct window *w)
{
  return w->dtype == TY_F32 && w->n >= ROUNDED_IMAGES && w->channels >= ROUNDED_CHANNELS &&
      w->filters >= ROUNDED_FILTERS && window_depth(w) >= ROUNDED_DEPTH;
}

static struct rounded_pass rounded_make_pass(const struct window *w)
{
  struct rounded_pass x = { .w = w, .t = gemm_type(GEMM_BF16), .words = *w };
  const int64_t nr = x.t->nr;
  x.words.channels = (w->channels + PER - 1) / PER;
  for (int a = 0; a < 3; a++) {
    x.words.in[a] += 2 * w->pad[a];
    x.words.pad[a] = 0;
  }
  x.depth = PER * window_depth(&x.words);
  x.cols = MIN(MOST_PANELS * nr, (window_out(w) + nr - 1) / nr * nr);
  x.word_bytes = align_up(
      (size_t)(x.words.channels * window_in(&x.words) + SLACK) * sizeof(uint32_t), ALIGN);
  x.panel_bytes = align_up((size_t)(x.cols * x.depth) * sizeof(uint16_t), ALIGN);
  return x;
}

static size_t rounded_count_tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

size_t rounded_scratch(const struct window *w)
{
  const struct rounded_pass x = rounded_make_pass(w);
  return rounded_count_tap_bytes(w) + (x.word_bytes + x.panel_bytes) * (size_t)parallel_threads();
}

struct rounding { const struct window *w; int64_t depth; const float *from; uint16_t *to; };

/* Rounds filters into the order of the words. */
static void rounded_order_filters(int64_t begin, int64_t end, void *context)
{
  const struct rounding *x = context;
  const int64_t taps = window_taps(x->w), channels = x->w->channels;
  for (int64_t f = begin; f < end; f++) {
    const float *from = x->from + f * channels * taps;
    uint16_t *to = x->to + f * x->depth;
    for (int64_t c = 0; c < channels; c += PER)
      for (int64_t t = 0; t < taps; t++) {
        *to++ = bf16_of_f32(from[c * taps + t]);
        *to++ = c + 1 < channels ? bf16_of_f32(from[(c + 1) * taps + t]) : 0;
      }
  }
}

/* Makes the words of a group's channels, which begin at `from`. */
static void rounded_make_words(const struct rounded_pass *x, const float *from, uint32_t *to)
{
  const struct window *w = x->w, *b = &x->words;
  const int64_t in = window_in(w), plane = window_in(b), nr = x->t->nr;
  const bool padded = w->pad[0] || w->pad[1] || w->pad[2];
  /* a plane without borders is treated as one long row */
  const int64_t rows = padded ? w->in[0] * w->in[1] : 1, length = padded ? w->in[2] : in;
  if (padded) memset(to, 0, (size_t)(b->channels * plane) * sizeof *to);
  for (int64_t c = 0; c < b->channels; c++, from += PER * in)
    for (int64_t l = 0; l < rows; l++) {
      const int64_t z = l / w->in[1] + w->pad[0], y = l % w->in[1] + w->pad[1];
      uint32_t *row = to + c * plane + (padded ? (z * b->in[1] + y) * b->in[2] + w->pad[2] : 0);
      /* in ascending order: the zeros after a panel's last column are overwritten by the next
      ** panel */
      for (int64_t i = 0; i < length; i += nr)
        gemm_type(GEMM_ROUNDED)->panel(MIN(PER, w->channels - c * PER), MIN(nr, length - i),
            from + l * length + i, in, row + i);
    }
}

/* Convolves one group of one image: channels at `from`, filters from `filter` on. */
static void rounded_convolve_group(
    const struct rounded_pass *x, const float *from, int64_t filter, float *y, char *buffer)
{
  const struct window *w = x->w;
  const struct gemm_type *t = x->t;
  const int64_t out = window_out(w);
  uint16_t *panels = (uint16_t *)(buffer + x->word_bytes);
  struct gemm_block g = { .m = w->filters,
    .k = x->depth,
    .outer = 1,
    .a = x->weight + filter * x->depth,
    .ars = x->depth,
    .acs = 1,
    .strip = gemm_height(w->filters, t->mr) * x->depth,
    .b = panels,
    .panel = t->nr * gemm_words(t, x->depth),
    .ldc = out,
    .row_bias = x->end.bias ? (const float *)x->end.bias + filter : NULL,
    .row_scale = x->end.scale ? x->end.scale + filter : NULL,
    .alpha = 1,
    .add = x->end.add,
    .copy = true,
    .act = x->end.act };
  rounded_make_words(x, from, (uint32_t *)buffer);
  for (int64_t j = 0; j < out; j += x->cols) {
    g.n = MIN(x->cols, out - j);
    g.c = y + j;
    for (int64_t q = 0; q < g.n; q += t->nr) {
      const int64_t cols = MIN(t->nr, g.n - q);
      window_columns(&x->words, gemm_type(TY_F32), j + q, cols, x->words.channels,
          cols > t->w ? t->nr : t->w, x->tap, buffer, panels + q * x->depth, false);
    }
    gemm_sum(t, &g);
  }
}

static void rounded_convolve_groups(int64_t begin, int64_t end, void *context)
{
  const struct rounded_pass *x = context;
  const struct window *w = x->w;
  char *buffer = x->threads + (x->word_bytes + x->panel_bytes) * (size_t)parallel_index();
  for (int64_t i = begin; i < end; i++)
    rounded_convolve_group(x, x->x + i * w->channels * window_in(w), i % w->groups * w->filters,
        x->y + i * w->filters * window_out(w), buffer);
}

int rounded_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp)
{
  struct rounded_pass p = rounded_make_pass(w);
  const int64_t filters = w->groups * w->filters;
  bool fresh;
  struct rounding o = { w, p.depth, weight->p,
    gemm_kept_buffer(kept, weight, (size_t)(filters * p.depth) * sizeof(uint16_t), &fresh) };
  NEED(o.to, TY_EMEMORY, "out of memory: rounded weight of %lld numbers",
      (long long)(filters * p.depth));
  if (!fresh) parallel_for(filters, cost_ns(NS_ELEMENT, p.depth), rounded_order_filters, &o);
  p.weight = o.to;
  p.x = x;
  p.y = y;
  p.end = *end;
  p.tap = tmp;
  p.threads = (char *)tmp + rounded_count_tap_bytes(w);
  window_offsets(&p.words, tmp);
  parallel_for_stoppable(w->n * w->groups,
      NS_PRODUCT * (double)(window_out(w) * w->filters) * (double)p.depth / 2,
      rounded_convolve_groups, &p);
  return TY_OK;
}
