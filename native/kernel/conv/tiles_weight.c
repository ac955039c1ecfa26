/* tiles_weight.c - the gradient of a convolution's weight on tiles (AMX), with operands rounded to
** bfloat16.
**
** Sums go over all positions. Rows of the images, surrounded by zeros, follow each other; a row of
** a tile has two positions of 16 channels. The output's gradient has its positions at the same
** indices, with zeros in between; a row of a tile has 32 positions of a filter. A tap of the window
** is an offset of positions; an odd offset uses a second copy, whose pairs begin one position
** later. With a stride above 1, images are split into phases, as in tiles.c. Some images at a time
** (a piece) are rounded; then each combination of blocks of filters and channels and a tap is a
** task, which adds to its own sums. So no sum depends on the number of threads. */
#include "base/cast.h"
#include "kernel/conv/inner.h"
#include "kernel/conv/tiles.h"

enum {
  /* most bytes of a piece, if it has several images: a second-level cache of 2 MiB */
  PIECE_BYTES = 2 << 20,
  /* most bytes of a piece of one image */
  IMAGE_BYTES = 16 << 20,
};

struct weight_pass {
  const struct conv_tiles *t;
  const struct window *w;
  int64_t images;                                     /* most images of a piece */
  int64_t down;                                       /* number of phases down */
  int64_t across;                                     /* number of phases across */
  /* positions from one row of a phase to the next */
  int64_t pitch;
  int64_t height;                                     /* rows of a phase */
  /* positions of a phase of all images of a piece */
  int64_t phase;
  /* positions of all phases, including those that are read after their end */
  int64_t plane;
  int64_t steps;                                      /* groups of 32 positions of a phase */
  /* copies of the pairs: 2 if a tap can have an odd offset */
  int parities;
  int64_t filters;                                    /* blocks of 32 filters */
  int64_t channels;                                   /* blocks of 32 channels */
  const float *x, *dy;
  float *dw;
  bool block_x, add;
  int64_t image;                                      /* first image of the current piece */
  int64_t some;                                       /* images of the current piece */
  /* rounded pairs of x: [16 channels][copy][pairs] */
  uint16_t *right;
  uint16_t *left;                                     /* rounded tiles of dy: [16 filters][tiles] */
  float *sums;
  size_t right_bytes, left_bytes, sum_bytes;
  size_t row_bytes;                                   /* bytes of a thread's rounded positions */
  char *threads;                                      /* row_bytes for each thread */
};

/* Returns the offset of a tap: where it reads for position 0, in positions. */
static int64_t tiles_find_offset(const struct weight_pass *p, int64_t tap)
{
  const struct window *w = p->w;
  const int64_t y = tap / w->kernel[2] * w->dilate[1], x = tap % w->kernel[2] * w->dilate[2];
  return (y % w->stride[1] * p->across + x % w->stride[2]) * p->phase +
      y / w->stride[1] * p->pitch + x / w->stride[2];
}

static void tiles_size_piece(struct weight_pass *p, int64_t images)
{
  const int64_t even = 2 * TILE_LANES;
  p->images = images;
  p->phase = images * p->height * p->pitch;
  p->steps = (p->phase + even - 1) / even;
  p->plane = (p->down * p->across * p->phase + phase_reach(p->w, 1) * p->pitch +
                 phase_reach(p->w, 2) + 3 * even) / even *
      even;
  p->right_bytes = (size_t)(p->channels * 2 * p->parities * p->plane * TILE_LANES) * 2;
  p->left_bytes = (size_t)(p->filters * 2 * p->steps * TILE_NUMBERS) * 2;
  p->row_bytes = align_up((size_t)(p->plane * TILE_LANES) * 2, ALIGN);
}

static struct weight_pass tiles_make_weight_pass(const struct window *w)
{
  struct weight_pass p = { .t = conv_tiles(), .w = w, .down = window_phases(w, 1),
    .across = window_phases(w, 2), .height = w->out[1] + phase_reach(w, 1) };
  p.pitch = window_pitch(w);
  if (!window_1x1(w)) p.pitch += p.pitch % 2;
  p.parities = phase_reach(w, 2) ? 2 : 1;
  p.filters = (w->filters + TILE_FILTERS - 1) / TILE_FILTERS;
  p.channels = (w->channels + TILE_FILTERS - 1) / TILE_FILTERS;
  tiles_size_piece(&p, 1);
  for (int64_t images = 2; images <= w->n; images++) {
    struct weight_pass more = p;
    tiles_size_piece(&more, images);
    if (more.right_bytes + more.left_bytes > PIECE_BYTES) break;
    p = more;
  }
  p.sum_bytes = (size_t)(p.filters * p.channels * window_taps(w)) * 4 * TILE_LANES * TILE_LANES *
      sizeof(float);
  return p;
}

bool tiles_weight_fits(const struct window *w)
{
  const struct weight_pass p = tiles_make_weight_pass(w);
  return p.right_bytes + p.left_bytes <= IMAGE_BYTES;
}

size_t tiles_weight_scratch(const struct window *w)
{
  const struct weight_pass p = tiles_make_weight_pass(w);
  return p.right_bytes + p.left_bytes + p.sum_bytes + p.row_bytes * (size_t)parallel_threads();
}

/* -- rounding ---------------------------------------------------------------------------------- */

enum { SPAN = 64 };                                   /* positions of a plain image at a time */

/* Rounds n positions of an image, `step` apart, from index `at` on, for 16 channels from c on. */
static void tiles_round_span(const struct weight_pass *p, const float *image, int64_t c, int64_t at,
    int64_t n, int64_t step, uint16_t *to)
{
  const int64_t in = window_in(p->w), each = MAX(SPAN / step, 1);
  if (p->block_x) {
    p->t->round(n, image + c * in + at * TILE_LANES, step * TILE_LANES, to);
    return;
  }
  float span[SPAN * TILE_LANES] __attribute__((aligned(64)));
  memset(span, 0, sizeof span);
  for (int64_t i = 0; i < n; i += each) {
    const int64_t some = MIN(each, n - i), length = MIN((some - 1) * step + 1, SPAN);
    gemm_type(TY_F32)->strip(MIN(TILE_LANES, p->w->channels - c), length,
        image + c * in + at + i * step, in, 1, TILE_LANES, span);
    p->t->round(some, span, step * TILE_LANES, to + i * TILE_LANES);
  }
}

/* Rounds row `line` of an image, maybe outside of it, for a phase whose first position is `left`
** positions before the image. Leaves positions outside unchanged. */
static void tiles_round_row(const struct weight_pass *p, const float *image, int64_t c,
    int64_t line, int64_t left, uint16_t *to)
{
  const struct window *w = p->w;
  const int64_t step = w->stride[2],
                begin = MIN(left > 0 ? (left + step - 1) / step : 0, p->pitch),
                end = MAX(begin, MIN((w->in[2] - 1 + left + step) / step, p->pitch));
  if (line >= 0 && line < w->in[1] && end > begin)
    tiles_round_span(p, image, c, line * w->in[2] + begin * step - left, end - begin, step,
        to + begin * TILE_LANES);
}

/* Makes the pairs of positions of blocks begin .. end - 1 of 16 channels, in all copies. */
static void tiles_make_pairs(int64_t begin, int64_t end, void *context)
{
  const struct weight_pass *p = context;
  const struct window *w = p->w;
  uint16_t *rows = (uint16_t *)(p->threads + p->row_bytes * (size_t)parallel_index());
  for (int64_t b = begin; b < end; b++) {
    memset(rows, 0, p->row_bytes);
    for (int64_t i = 0; b * TILE_LANES < w->channels && i < p->down * p->across * p->some; i++) {
      const int64_t phase = i / p->some, image = i % p->some;
      uint16_t *to = rows + (phase * p->phase + image * p->height * p->pitch) * TILE_LANES;
      for (int64_t r = 0; r < p->height; r++, to += p->pitch * TILE_LANES)
        tiles_round_row(p, p->x + (p->image + image) * w->channels * window_in(w), b * TILE_LANES,
            r * w->stride[1] + phase / p->across - w->pad[1], w->pad[2] - phase % p->across, to);
    }
    for (int k = 0; k < p->parities; k++)
      p->t->pair((p->plane - 2 * k) / 2, rows + k * TILE_LANES,
          p->right + (b * p->parities + k) * p->plane * TILE_LANES);
  }
}

/* Makes the tiles of the output's gradient for blocks begin .. end - 1 of 16 filters. */
static void tiles_make_rows(int64_t begin, int64_t end, void *context)
{
  const struct weight_pass *p = context;
  const struct window *w = p->w;
  const int64_t out = window_out(w);
  uint16_t *rows = (uint16_t *)(p->threads + p->row_bytes * (size_t)parallel_index());
  for (int64_t b = begin; b < end; b++) {
    memset(rows, 0, (size_t)(p->steps * TILE_NUMBERS) * sizeof *rows);
    for (int64_t i = 0; b * TILE_LANES < w->filters && i < p->some; i++)
      for (int64_t r = 0; r < w->out[1]; r++)
        p->t->round(w->out[2],
            p->dy + ((p->image + i) * w->filters + b * TILE_LANES) * out +
                r * w->out[2] * TILE_LANES,
            TILE_LANES, rows + (i * p->height + r) * p->pitch * TILE_LANES);
    p->t->turn(p->steps, rows, p->left + b * p->steps * TILE_NUMBERS);
  }
}

/* -- sums -------------------------------------------------------------------------------------- */

/* Adds the products of a piece to the sums of tasks; a task is a block of filters, of channels, and
** a tap. */
static void tiles_add_tasks(int64_t begin, int64_t end, void *context)
{
  const struct weight_pass *p = context;
  const int64_t taps = window_taps(p->w), copy = p->plane * TILE_LANES;
  for (int64_t i = begin; i < end; i++) {
    const int64_t filter = i / taps / p->channels * 2, channel = i / taps % p->channels * 2,
                  at = tiles_find_offset(p, i % taps), odd = at % 2;
    const struct tiles_sums s = { .left = p->left + filter * p->steps * TILE_NUMBERS,
      .left_next = p->steps * TILE_NUMBERS,
      .right = p->right + (channel * p->parities + odd) * copy + (at - odd) * TILE_LANES,
      .right_next = p->parities * copy,
      .steps = p->steps,
      .sums = p->sums + i * 4 * TILE_LANES * TILE_LANES,
      .add = p->image > 0 };
    p->t->add_up(&s);
  }
}

/* Writes the sums of filters in the weight's layout. */
static void tiles_leave_sums(int64_t begin, int64_t end, void *context)
{
  const struct weight_pass *p = context;
  const struct window *w = p->w;
  const int64_t taps = window_taps(w), tile = TILE_LANES * TILE_LANES;
  for (int64_t f = begin; f < end; f++) {
    float *to = p->dw + f * w->channels * taps;
    for (int64_t c = 0; c < w->channels; c++) {
      const float *from = p->sums +
          (f / TILE_FILTERS * p->channels + c / TILE_FILTERS) * taps * 4 * tile +
          (f / TILE_LANES % 2 * 2 + c / TILE_LANES % 2) * tile + f % TILE_LANES * TILE_LANES +
          c % TILE_LANES;
      for (int64_t t = 0; t < taps; t++, to++)
        *to = from[t * 4 * tile] + (p->add ? *to : 0);
    }
  }
}

void tiles_weight(const struct window *w, const void *x, int block_x, const void *dy, void *dw,
    bool add, void *tmp)
{
  struct weight_pass p = tiles_make_weight_pass(w);
  const int64_t taps = window_taps(w), tasks = p.filters * p.channels * taps;
  p.x = x;
  p.dy = dy;
  p.dw = dw;
  p.block_x = block_x;
  p.add = add;
  p.right = tmp;
  p.left = (uint16_t *)((char *)tmp + p.right_bytes);
  p.sums = (float *)((char *)p.left + p.left_bytes);
  p.threads = (char *)p.sums + p.sum_bytes;
  for (p.image = 0; p.image < w->n && !stop_wanted(); p.image += p.images) {
    p.some = MIN(p.images, w->n - p.image);
    parallel_chunks(2 * p.channels, 1, tiles_make_pairs, &p);
    parallel_chunks(2 * p.filters, 1, tiles_make_rows, &p);
    parallel_for(tasks, NS_TILES * (double)p.steps, tiles_add_tasks, &p);
  }
  parallel_for(w->filters, cost_ns(NS_PICK, w->channels * taps), tiles_leave_sums, &p);
}
