/* tiles.c - a convolution of float32 whose operands are rounded to bfloat16, and the gradient of
** its data, on tiles (AMX).
**
** Results have their channels in blocks of 16. A unit, some rows of an image or some images, is
** rounded to positions of 32 channels each, surrounded by zeros. So 16 neighbouring positions, as
** any tap of the window reads them, form a tile in place, and no matrix of columns is needed. Rows
** follow each other, and tiles cross their ends; sums of positions between rows are not written.
** With a stride above 1, the image is split into interleaved images, its phases
** (kernel/conv/inner.h). A tile of sums has 16 positions of a block of 16 filters, in the layout of
** the output. The weight's tiles are kept.
**
** The gradient of the data is a convolution of the output's gradient with stride 1. If the window
** has a stride above 1, elements of the data form phases, too; each phase uses only some of the
** taps. */
#include "base/cast.h"
#include "kernel/conv/inner.h"
#include "kernel/conv/tiles.h"

static const struct conv_tiles *given;                /* NULL: the loops of the processor */

void conv_tiles_give(const struct conv_tiles *t) { given = t; }

const struct conv_tiles *conv_tiles(void)
{
  if (given) return given;
#if defined __x86_64__
  extern const struct conv_tiles conv_tiles_avx512_tiles;
  if (cpu_multiplies_tiles()) return &conv_tiles_avx512_tiles;
#endif
  return NULL;
}

enum {
  /* most bytes of a unit's rounded positions: a quarter of a second-level cache of 2 MiB */
  UNIT_BYTES = 512 << 10,
  /* most positions of a unit */
  MOST_POSITIONS = 1024,
  /* least positions of a unit of a window of one tap */
  LEAST_POSITIONS = 128,
  /* with at least this many units, each thread takes whole units; with fewer, threads share each
  ** one: they divide its channels, then its filters */
  UNITS = 8,
  /* most phases of the data's gradient: the product of the window's strides */
  MOST_PHASES = 16,
  /* positions of a plain image that are converted to blocks at a time */
  SPAN = 64,
};

/* The elements of the result that depend on the same taps: all, or for the gradient of the data one
** element of every stride, down and across. */
struct tile_phase {
  int64_t row;                                        /* row of the first one; may be outside */
  int64_t column;
  int64_t taps;                                       /* number of taps */
  const int64_t *tap;                                 /* their offsets, in numbers */
  int64_t weight;                                     /* offset of the tiles of their weight */
};

struct tiles_pass {
  const struct conv_tiles *t;
  /* the convolution to compute: that of the call, or the one that gives the gradient of its data */
  struct window w;
  /* the convolution of the call */
  const struct window *whole;
  bool back;
  /* whether the window is 1 x 1; then the positions of all images form one row */
  bool flat;
  /* rows of an image in a unit */
  int64_t rows;
  /* images of a unit */
  int64_t images;
  /* positions of a unit of a flat window */
  int64_t positions;
  /* number of phases down */
  int64_t down;
  /* number of phases across */
  int64_t across;
  /* positions from one row of a phase to the next */
  int64_t pitch;
  /* rows of a phase */
  int64_t height;
  /* positions of an image in a unit */
  int64_t image;
  /* positions of 32 channels of a unit, including those that are read after their end */
  int64_t plane;
  /* groups of 32 channels */
  int64_t channels;
  /* blocks of 32 filters */
  int64_t filters;
  int64_t units;
  /* rows and columns of the result */
  int64_t result[2];
  /* distance of the elements of a phase in the result, down and across */
  int64_t step[2];
  int phases;
  struct tile_phase phase[MOST_PHASES];
  const float *x;
  int block_x;
  float *y;
  struct convolve_end end;
  const uint16_t *weight;
  /* bytes of a thread's rounded positions */
  size_t x_bytes;
  /* bytes of the list of its tiles' first positions */
  size_t first_bytes;
  /* bytes of the list of its positions' indices in the result */
  size_t where_bytes;
  char *threads;
};

/* -- sizes ------------------------------------------------------------------------------------- */

/* Sets the sizes of a unit of `rows` rows of `images` images. */
static void tiles_size_unit(struct tiles_pass *x, int64_t rows, int64_t images)
{
  x->rows = rows;
  x->images = images;
  x->height = rows + phase_reach(&x->w, 1);
  x->image = x->down * x->across * x->height * x->pitch;
  x->plane = images * x->image + x->pitch + TILE_LANES;
}

static int64_t tiles_count_unit_bytes(const struct tiles_pass *x)
{
  return x->plane * x->channels * TILE_CHANNELS * (int64_t)sizeof(uint16_t);
}

/* Divides the positions of a flat window into units. */
static void tiles_cut_flat(struct tiles_pass *x)
{
  const int64_t all = window_positions(&x->w), each = x->channels * TILE_CHANNELS * 2;
  x->positions = MAX(LEAST_POSITIONS, MIN(MOST_POSITIONS, UNIT_BYTES / each));
  if (all / UNITS >= LEAST_POSITIONS) x->positions = MIN(x->positions, all / UNITS);
  x->positions = MIN(x->positions, all);
  x->positions = (x->positions + 2 * TILE_LANES - 1) / (2 * TILE_LANES) * (2 * TILE_LANES);
  x->units = (all + x->positions - 1) / x->positions;
  x->plane = x->positions;
}

/* Divides images into units: bands of rows of one image, or several images. */
static void tiles_cut_rows(struct tiles_pass *x)
{
  const struct window *w = &x->w;
  const int64_t out = w->out[1];
  x->down = window_phases(w, 1);
  x->across = window_phases(w, 2);
  x->pitch = window_pitch(w);
  int64_t bands = 0;
  do {
    bands++;
    tiles_size_unit(x, (out + bands - 1) / bands, 1);
  } while (x->rows > 1 &&
      (tiles_count_unit_bytes(x) > UNIT_BYTES || x->rows * w->out[2] > MOST_POSITIONS));
  if (bands == 1)
    for (int64_t images = 2; images <= w->n / UNITS; images++) {
      struct tiles_pass more = *x;
      tiles_size_unit(&more, out, images);
      if (tiles_count_unit_bytes(&more) > UNIT_BYTES || images * out * w->out[2] > MOST_POSITIONS)
        break;
      *x = more;
    }
  x->units = bands > 1 ? w->n * ((out + x->rows - 1) / x->rows)
                       : (w->n + x->images - 1) / x->images;
}

/* Returns the convolution, with stride 1, that gives the gradient of the data of `w` from that of
** its output. Its row r gives row r of every phase of the data. */
static struct window tiles_turn_window(const struct window *w)
{
  struct window t = *w;
  t.channels = w->filters;
  t.filters = w->channels;
  for (int a = 0; a < 3; a++) {
    const int64_t reach = phase_reach(w, a), from = w->pad[a] / w->stride[a];
    t.in[a] = w->out[a];
    t.out[a] = (w->in[a] - 1 + w->pad[a]) / w->stride[a] + 1 - from;
    t.kernel[a] = reach + 1;
    t.stride[a] = t.dilate[a] = 1;
    t.pad[a] = reach - from;
  }
  return t;
}

static struct tiles_pass tiles_make_pass(const struct window *w, bool back)
{
  struct tiles_pass x = { .t = conv_tiles(), .w = back ? tiles_turn_window(w) : *w, .whole = w,
    .back = back, .flat = window_1x1(w) };
  x.channels = (x.w.channels + TILE_CHANNELS - 1) / TILE_CHANNELS;
  x.filters = (x.w.filters + TILE_FILTERS - 1) / TILE_FILTERS;
  if (x.flat)
    tiles_cut_flat(&x);
  else
    tiles_cut_rows(&x);
  for (int a = 0; a < 2; a++) {
    x.result[a] = back ? w->in[a + 1] : w->out[a + 1];
    x.step[a] = back ? w->stride[a + 1] : 1;
  }
  const int64_t tiles = x.flat ? x.positions / TILE_LANES
                               : x.images * ((x.rows * x.pitch + TILE_LANES - 1) / TILE_LANES);
  x.x_bytes = align_up((size_t)tiles_count_unit_bytes(&x), ALIGN);
  x.first_bytes = align_up((size_t)tiles * sizeof(int32_t), ALIGN);
  x.where_bytes = align_up((size_t)(tiles * TILE_LANES) * sizeof(int32_t), ALIGN);
  return x;
}

static size_t tiles_count_thread_bytes(const struct tiles_pass *x)
{
  return x->x_bytes + x->first_bytes + x->where_bytes;
}

static size_t tiles_count_tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

bool tiles_profitable(const struct window *w)
{
  return conv_tiles() && w->stride[1] * w->stride[2] <= MOST_PHASES && w->dtype == TY_F32 &&
      w->groups == 1 && w->in[0] == 1 &&
      w->kernel[0] == 1 && w->pad[0] == 0 && w->filters % TILE_LANES == 0 &&
      w->channels >= TILES_CHANNELS;
}

static size_t tiles_count_scratch(const struct window *w, bool back)
{
  const struct tiles_pass x = tiles_make_pass(w, back);
  return tiles_count_tap_bytes(w) + tiles_count_thread_bytes(&x) * (size_t)parallel_threads();
}

size_t tiles_scratch(const struct window *w) { return tiles_count_scratch(w, false); }
size_t tiles_data_scratch(const struct window *w) { return tiles_count_scratch(w, true); }

/* -- taps -------------------------------------------------------------------------------------- */

/* Returns whether elements of a phase depend on a tap. */
static bool tiles_is_in_phase(const struct tiles_pass *x, int phase, int64_t down, int64_t across)
{
  const struct window *w = x->whole;
  if (!x->back) return true;
  return down * w->dilate[1] % w->stride[1] == phase / w->stride[2] &&
      across * w->dilate[2] % w->stride[2] == phase % w->stride[2];
}

/* Returns the offset of a tap: where it reads for position 0, in numbers. */
static int64_t tiles_find_tap(const struct tiles_pass *x, int64_t down, int64_t across)
{
  const struct window *w = x->whole;
  const int64_t y = down * w->dilate[1], c = across * w->dilate[2], row = y / w->stride[1],
                column = c / w->stride[2];
  if (x->back)
    return TILE_CHANNELS * ((phase_reach(w, 1) - row) * x->pitch + phase_reach(w, 2) - column);
  const int64_t phase = y % w->stride[1] * x->across + c % w->stride[2];
  return TILE_CHANNELS * (phase * x->height * x->pitch + row * x->pitch + column);
}

/* Finds the phases of the result and their taps, whose offsets are written to `tap`. */
static void tiles_find_phases(struct tiles_pass *x, int64_t *tap)
{
  const struct window *w = x->whole;
  int64_t weight = 0;
  x->phases = x->back ? (int)(w->stride[1] * w->stride[2]) : 1;
  for (int i = 0; i < x->phases; i++) {
    struct tile_phase *p = &x->phase[i];
    *p = (struct tile_phase){ .tap = tap, .weight = weight };
    if (x->back) {
      p->row = i / w->stride[2] - w->pad[1] % w->stride[1];
      p->column = i % w->stride[2] - w->pad[2] % w->stride[2];
    }
    for (int64_t y = 0; y < w->kernel[1]; y++)
      for (int64_t c = 0; c < w->kernel[2]; c++)
        if (tiles_is_in_phase(x, i, y, c)) *tap++ = tiles_find_tap(x, y, c);
    p->taps = tap - p->tap;
    weight += p->taps * x->channels * x->filters * 2 * TILE_NUMBERS;
  }
}

/* -- the weight -------------------------------------------------------------------------------- */

struct tiling { const struct tiles_pass *x; const float *from; uint16_t *to; };

/* Returns how many numbers the weight of a phase has for a block of 32 filters. */
static int64_t tiles_count_block_numbers(const struct tiles_pass *x, const struct tile_phase *p)
{
  return x->channels * p->taps * 2 * TILE_NUMBERS;
}

/* Rounds the weight of 32 channels and 16 filters into a tile: rows of 16 pairs of channels, one
** pair per filter. */
static void tiles_fill_tile(const struct tiles_pass *x, const float *from, int64_t filter,
    int64_t channel, uint16_t *to)
{
  const int64_t taps = window_taps(x->whole), all = x->whole->channels * taps,
                filters = MIN(TILE_LANES, x->w.filters - filter),
                channels = MIN(TILE_CHANNELS, x->w.channels - channel),
                of_filter = x->back ? taps : all, of_channel = x->back ? all : taps;
  if (filters < TILE_LANES || channels < TILE_CHANNELS) memset(to, 0, 2 * TILE_NUMBERS);
  from += filter * of_filter + channel * of_channel;
  for (int64_t c = 0; c < channels; c++)
    for (int64_t f = 0; f < filters; f++)
      to[(c / 2 * TILE_LANES + f) * 2 + c % 2] =
          bf16_of_f32(from[f * of_filter + c * of_channel]);
}

/* Rounds the tiles of blocks of 32 filters. */
static void tiles_round_filters(int64_t begin, int64_t end, void *context)
{
  const struct tiling *k = context;
  const struct tiles_pass *x = k->x;
  const struct window *w = x->whole;
  for (int64_t f = begin; f < end; f++)
    for (int i = 0; i < x->phases; i++) {
      const struct tile_phase *p = &x->phase[i];
      uint16_t *to = k->to + p->weight + f * tiles_count_block_numbers(x, p);
      for (int64_t c = 0; c < x->channels; c++)
        for (int64_t t = 0; t < window_taps(w); t++) {
          if (!tiles_is_in_phase(x, i, t / w->kernel[2], t % w->kernel[2])) continue;
          for (int64_t part = 0; part < 2; part++, to += TILE_NUMBERS)
            tiles_fill_tile(
                x, k->from + t, f * TILE_FILTERS + part * TILE_LANES, c * TILE_CHANNELS, to);
        }
    }
}

/* -- a unit's positions ------------------------------------------------------------------------ */

/* Rounds n positions of an image, `step` apart, from index `at` on, for 32 channels from c on. */
static void tiles_pack_span(const struct tiles_pass *x, const float *image, int64_t c, int64_t at,
    int64_t n, int64_t step, uint16_t *to)
{
  const struct window *w = &x->w;
  const int64_t in = window_in(w), more = w->channels - c - TILE_LANES;
  if (x->block_x) {
    const float *low = image + c * in + at * TILE_LANES;
    x->t->pack(n, low, more > 0 ? low + in * TILE_LANES : NULL, step * TILE_LANES, to);
    return;
  }
  float span[2][SPAN * TILE_LANES] __attribute__((aligned(64)));
  const int64_t each = MAX(SPAN / step, 1);
  memset(span, 0, sizeof span);
  for (int64_t i = 0; i < n; i += each) {
    const int64_t some = MIN(each, n - i), length = MIN((some - 1) * step + 1, SPAN);
    const float *from = image + c * in + at + i * step;
    void (*strip)(int64_t, int64_t, const void *, int64_t, int64_t, int, void *) =
        gemm_type(TY_F32)->strip;
    strip(MIN(TILE_LANES, more + TILE_LANES), length, from, in, 1, TILE_LANES, span[0]);
    if (more > 0)
      strip(
          MIN(TILE_LANES, more), length, from + TILE_LANES * in, in, 1, TILE_LANES, span[1]);
    x->t->pack(some, span[0], more > 0 ? span[1] : NULL, step * TILE_LANES,
        to + i * TILE_CHANNELS);
  }
}

static void tiles_clear_positions(uint16_t *to, int64_t begin, int64_t end)
{
  if (end > begin)
    memset(to + begin * TILE_CHANNELS, 0, (size_t)(end - begin) * TILE_CHANNELS * sizeof *to);
}

/* Rounds row `y` of the padded image, maybe outside of the image, of a phase with column k, for 32
** channels from c on. */
static void tiles_pack_row(const struct tiles_pass *x, const float *image, int64_t c, int64_t y,
    int64_t k, uint16_t *to)
{
  const struct window *w = &x->w;
  const int64_t step = w->stride[2], line = y - w->pad[1], left = w->pad[2] - k;
  const int64_t begin = MIN(left > 0 ? (left + step - 1) / step : 0, x->pitch),
                end = MAX(begin, MIN((w->in[2] - 1 + left + step) / step, x->pitch));
  if (line < 0 || line >= w->in[1]) {
    tiles_clear_positions(to, 0, x->pitch);
    return;
  }
  tiles_clear_positions(to, 0, begin);
  if (end > begin)
    tiles_pack_span(x, image, c, line * w->in[2] + begin * step - left, end - begin, step,
        to + begin * TILE_CHANNELS);
  tiles_clear_positions(to, end, x->pitch);
}

/* Rounds the rows of all phases of an image, from output row `row` on, for 32 channels from c
** on. */
static void tiles_pack_rows(
    const struct tiles_pass *x, const float *image, int64_t c, int64_t row, uint16_t *to)
{
  for (int64_t i = 0; i < x->down; i++)
    for (int64_t k = 0; k < x->across; k++)
      for (int64_t r = 0; r < x->height; r++, to += x->pitch * TILE_CHANNELS)
        tiles_pack_row(x, image, c, (row + r) * x->w.stride[1] + i, k, to);
}

/* -- units ------------------------------------------------------------------------------------- */

struct unit {
  int64_t image;                                      /* the first image */
  int64_t images;
  /* the first row; of a flat window, the first position of `image` */
  int64_t row;
  int64_t rows;                                       /* number of rows, or of positions */
  uint16_t *x;
  int32_t *first, *where;
  int64_t tiles;
};

static int64_t tiles_count_image_numbers(const struct tiles_pass *x)
{
  return x->w.channels * window_in(&x->w);
}

/* A unit that threads share, each with a part of its channels or filters. */
struct unit_run {
  const struct tiles_pass *x;
  const struct unit *u;
  const struct tile_phase *phase;
};

/* Rounds the unit's positions for groups begin .. end - 1 of 32 channels. */
static void tiles_pack_channels(int64_t begin, int64_t end, void *context)
{
  const struct unit_run *r = context;
  const struct tiles_pass *x = r->x;
  const struct unit *u = r->u;
  const struct window *w = &x->w;
  const int64_t out = window_out(w);
  for (int64_t c = begin; c < end; c++) {
    uint16_t *to = u->x + c * x->plane * TILE_CHANNELS;
    for (int64_t i = 0, n; x->flat && i < u->rows; i += n) {
      const int64_t at = u->image * out + u->row + i;
      n = MIN(u->rows - i, out - at % out);
      tiles_pack_span(x, x->x + at / out * tiles_count_image_numbers(x), c * TILE_CHANNELS,
          at % out, n, 1, to + i * TILE_CHANNELS);
    }
    for (int64_t i = 0; !x->flat && i < u->images; i++)
      tiles_pack_rows(x, x->x + (u->image + i) * tiles_count_image_numbers(x), c * TILE_CHANNELS,
          u->row, to + i * x->image * TILE_CHANNELS);
    if (!x->flat) tiles_clear_positions(to, u->images * x->image, x->plane);
  }
}

/* Returns the index in the result of position p of image i, counted from the unit's first image; -1
** if it is not written. */
static int32_t tiles_find_position(const struct tiles_pass *x, const struct unit *u,
    const struct tile_phase *t, int64_t i, int64_t p)
{
  const int64_t space = x->result[0] * x->result[1], image = x->w.filters / TILE_LANES * space;
  if (x->flat) {
    const int64_t at = u->row + p;
    return p < u->rows ? (int32_t)(at / space * image + at % space) : -1;
  }
  const int64_t column = p % x->pitch,
                y = (u->row + p / x->pitch) * x->step[0] + t->row,
                at = column * x->step[1] + t->column;
  const bool inside = p / x->pitch < u->rows && column < x->w.out[2] && y >= 0 &&
      y < x->result[0] && at >= 0 && at < x->result[1];
  return inside ? (int32_t)(i * image + y * x->result[1] + at) : -1;
}

/* Lists the tiles of a unit and the indices in the result of a phase's positions. */
static void tiles_list_all(const struct tiles_pass *x, struct unit *u, const struct tile_phase *t)
{
  const int64_t end = x->flat ? u->rows : (u->rows - 1) * x->pitch + x->w.out[2];
  int32_t *where = u->where;
  u->tiles = 0;
  for (int64_t i = 0; i < u->images; i++)
    for (int64_t q = 0; q < end; q += TILE_LANES) {
      u->first[u->tiles++] = (int32_t)(x->flat ? q : i * x->image + q);
      for (int64_t p = q; p < q + TILE_LANES; p++) *where++ = tiles_find_position(x, u, t, i, p);
    }
}

static void tiles_find_unit(const struct tiles_pass *x, int64_t i, struct unit *u)
{
  const struct window *w = &x->w;
  if (x->flat) {
    u->row = i * x->positions;
    u->rows = MIN(x->positions, window_positions(w) - u->row);
    u->image = u->row / window_out(w);
    u->row -= u->image * window_out(w);
    u->images = 1;
    return;
  }
  const int64_t bands = (w->out[1] + x->rows - 1) / x->rows;
  u->image = bands > 1 ? i / bands : i * x->images;
  u->images = bands > 1 ? 1 : MIN(x->images, w->n - u->image);
  u->row = bands > 1 ? i % bands * x->rows : 0;
  u->rows = MIN(x->rows, w->out[1] - u->row);
}

/* Multiplies the unit's positions by the taps of a phase for blocks begin .. end - 1 of 32
** filters. */
static void tiles_multiply_filters(int64_t begin, int64_t end, void *context)
{
  const struct unit_run *r = context;
  const struct tiles_pass *x = r->x;
  const struct tile_phase *p = r->phase;
  const int64_t filters = x->w.filters, space = x->result[0] * x->result[1];
  struct tiles_block b = { .x = r->u->x,
    .plane = x->plane * TILE_CHANNELS,
    .channels = x->channels,
    .tap = p->tap,
    .taps = p->taps,
    .tiles = r->u->tiles,
    .first = r->u->first,
    .where = r->u->where,
    .block = TILE_LANES * space,
    .add = x->end.add,
    .act = x->end.act,
    .apply = gemm_type(TY_F32)->act };
  for (int64_t f = begin; f < end; f++) {
    const int64_t filter = f * TILE_FILTERS;
    b.weight = x->weight + p->weight + f * tiles_count_block_numbers(x, p);
    b.y = x->y + (r->u->image * filters + filter) * space;
    b.parts = filters - filter > TILE_LANES ? 2 : 1;
    b.scale = x->end.scale ? x->end.scale + filter : NULL;
    b.bias = x->end.bias ? (const float *)x->end.bias + filter : NULL;
    x->t->multiply(&b);
  }
}

static struct unit tiles_make_unit(const struct tiles_pass *x, char *buffer)
{
  return (struct unit){ .x = (uint16_t *)buffer,
    .first = (int32_t *)(buffer + x->x_bytes),
    .where = (int32_t *)(buffer + x->x_bytes + x->first_bytes) };
}

/* Computes units begin .. end - 1 on the calling thread. */
static void tiles_multiply_units(int64_t begin, int64_t end, void *context)
{
  const struct tiles_pass *x = context;
  struct unit u = tiles_make_unit(
      x, x->threads + tiles_count_thread_bytes(x) * (size_t)parallel_index());
  struct unit_run r = { x, &u, NULL };
  for (int64_t i = begin; i < end; i++) {
    tiles_find_unit(x, i, &u);
    tiles_pack_channels(0, x->channels, &r);
    for (int k = 0; k < x->phases; k++) {
      r.phase = &x->phase[k];
      tiles_list_all(x, &u, r.phase);
      tiles_multiply_filters(0, x->filters, &r);
    }
  }
}

/* Computes units one after the other, each on all threads. */
static void tiles_share_units(const struct tiles_pass *x)
{
  struct unit u = tiles_make_unit(x, x->threads);
  struct unit_run r = { x, &u, NULL };
  for (int64_t i = 0; i < x->units && !stop_wanted(); i++) {
    tiles_find_unit(x, i, &u);
    parallel_for(x->channels, elements_ns(x->plane * TILE_CHANNELS), tiles_pack_channels, &r);
    for (int k = 0; k < x->phases; k++) {
      r.phase = &x->phase[k];
      tiles_list_all(x, &u, r.phase);
      parallel_for(x->filters, NS_TILES / 2 * (double)(u.tiles * x->channels * (r.phase->taps + 1)),
          tiles_multiply_filters, &r);
    }
  }
}

static int tiles_run_pass(
    struct tiles_pass *x, const struct operand *weight, struct gemm_kept *kept, void *tmp)
{
  const int64_t each = window_taps(x->whole) * x->channels * 2 * TILE_NUMBERS,
                numbers = x->filters * each;
  bool fresh;
  struct tiling k = { x, weight->p,
    gemm_kept_buffer(kept, weight, (size_t)numbers * sizeof(uint16_t), &fresh) };
  NEED(k.to, TY_EMEMORY, "out of memory: rounded weight of %lld numbers", (long long)numbers);
  tiles_find_phases(x, tmp);
  if (!fresh) parallel_for(x->filters, cost_ns(NS_ELEMENT, each), tiles_round_filters, &k);
  x->weight = k.to;
  x->threads = (char *)tmp + tiles_count_tap_bytes(x->whole);
  if (x->units < UNITS)
    tiles_share_units(x);
  else
    parallel_chunks_stoppable(x->units, 1, tiles_multiply_units, x);
  return TY_OK;
}

int tiles_forward(const struct window *w, const void *x, int block_x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp)
{
  struct tiles_pass p = tiles_make_pass(w, false);
  p.x = x;
  p.block_x = block_x;
  p.y = y;
  p.end = *end;
  return tiles_run_pass(&p, weight, kept, tmp);
}

int tiles_data(const struct window *w, const void *dy, const struct operand *weight, void *dx,
    bool add, struct gemm_kept *kept, void *tmp)
{
  struct tiles_pass p = tiles_make_pass(w, true);
  p.x = dy;
  p.block_x = TILE_LANES;
  p.y = dx;
  p.end = (struct convolve_end){ .add = add };
  return tiles_run_pass(&p, weight, kept, tmp);
}
