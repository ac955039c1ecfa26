/* tiles.c - a convolution of float32 whose operands are rounded to bfloat16, on tiles (AMX).
**
** Channels come and go in blocks of 16. A unit, some rows of an image or some images, is rounded to
** positions of 32 channels each, with zeros around, so that 16 neighbouring positions seen from any
** tap of the window are a tile as they are: there is no matrix of columns. Rows follow each other,
** and a tile goes over their ends; what it computes there is not written. Windows that move by
** several positions see as many interleaved images, their phases. A tile of sums is 16 positions of
** a block of 16 filters, as the output has them. The weight's tiles are kept.
*/
#include "base/cast.h"
#include "kernel/blocked.h"
#include "kernel/conv/inner.h"
#include "kernel/conv/tiles.h"

#if defined __x86_64__
extern const struct conv_tiles conv_tiles_avx512_tiles;
static const struct conv_tiles *find_tiles(void)
{
  return cpu_multiplies_tiles() ? &conv_tiles_avx512_tiles : NULL;
}
#else
static const struct conv_tiles *find_tiles(void) { return NULL; }
#endif

enum {
  /* bytes of a unit's rounded positions: a part of a second cache of 2 MiB */
  UNIT_BYTES = 512 << 10,
  /* positions of a unit, at most and (of a window of one tap) at least */
  MOST_POSITIONS = 1024, LEAST_POSITIONS = 128,
  /* units that are wanted of a batch */
  UNITS = 8,
  /* positions of a plain image that are put into blocks at a time */
  SPAN = 64,
};

struct tiles_pass {
  const struct conv_tiles *t;
  const struct window *w;
  /* a window of one tap: positions of all images are one row */
  bool flat;
  /* rows and images of a unit; of a flat window, positions */
  int64_t rows, images, positions;
  /* phases down and across, from one row to the next in positions, rows of a phase */
  int64_t down, across, pitch, height;
  /* positions of an image in a unit, and of a unit's 32 channels with what is read beyond */
  int64_t image, plane;
  /* groups of 32 channels, blocks of 32 filters */
  int64_t channels, filters;
  int64_t units;
  const float *x;
  int block_x;
  float *y;
  struct convolve_end end;
  const uint16_t *weight;
  const int64_t *tap;
  /* of a thread: rounded positions, the first positions of tiles, their places */
  size_t x_bytes, first_bytes, place_bytes;
  char *threads;
};

/* -- sizes ------------------------------------------------------------------------------------- */

/* Returns the phases of an axis that taps of the window see. */
static int64_t count_phases(const struct window *w, int axis)
{
  return MIN(w->stride[axis], (w->kernel[axis] - 1) * w->dilate[axis] + 1);
}

/* Returns the furthest position of a phase that a tap sees from position 0. */
static int64_t reach_of(const struct window *w, int axis)
{
  return (w->kernel[axis] - 1) * w->dilate[axis] / w->stride[axis];
}

/* Sets the positions of a unit of `rows` rows of `images` images. */
static void size_unit(struct tiles_pass *x, int64_t rows, int64_t images)
{
  x->rows = rows;
  x->images = images;
  x->height = rows + reach_of(x->w, 1);
  x->image = x->down * x->across * x->height * x->pitch;
  x->plane = images * x->image + x->pitch + TILE_LANES;
}

static int64_t unit_bytes(const struct tiles_pass *x)
{
  return x->plane * x->channels * TILE_CHANNELS * (int64_t)sizeof(uint16_t);
}

static void cut_flat(struct tiles_pass *x)
{
  const int64_t all = window_positions(x->w), each = x->channels * TILE_CHANNELS * 2;
  x->positions = MAX(LEAST_POSITIONS, MIN(MOST_POSITIONS, UNIT_BYTES / each));
  x->positions = MIN(x->positions, MAX(all / UNITS, 1));
  x->positions = (x->positions + 2 * TILE_LANES - 1) / (2 * TILE_LANES) * (2 * TILE_LANES);
  x->units = (all + x->positions - 1) / x->positions;
  x->plane = x->positions;
}

static void cut_rows(struct tiles_pass *x)
{
  const struct window *w = x->w;
  const int64_t out = w->out[1];
  const int64_t right = w->out[2] + reach_of(w, 2) - w->pad[2] - w->in[2];
  x->down = count_phases(w, 1);
  x->across = count_phases(w, 2);
  /* the zeros after a row are those before the next one */
  x->pitch = w->out[2] + reach_of(w, 2) - (w->stride[2] == 1 ? MAX(MIN(w->pad[2], right), 0) : 0);
  int64_t bands = 0;
  do {
    bands++;
    size_unit(x, (out + bands - 1) / bands, 1);
  } while (x->rows > 1 && (unit_bytes(x) > UNIT_BYTES || x->rows * w->out[2] > MOST_POSITIONS));
  if (bands == 1)
    for (int64_t images = 2; images <= w->n / UNITS; images++) {
      struct tiles_pass more = *x;
      size_unit(&more, out, images);
      if (unit_bytes(&more) > UNIT_BYTES || images * out * w->out[2] > MOST_POSITIONS) break;
      *x = more;
    }
  x->units = bands > 1 ? w->n * ((out + x->rows - 1) / x->rows)
                       : (w->n + x->images - 1) / x->images;
}

static struct tiles_pass make_tiles_pass(const struct window *w)
{
  struct tiles_pass x = { .t = find_tiles(), .w = w, .flat = window_1x1(w) };
  x.channels = (w->channels + TILE_CHANNELS - 1) / TILE_CHANNELS;
  x.filters = (w->filters + TILE_FILTERS - 1) / TILE_FILTERS;
  if (x.flat)
    cut_flat(&x);
  else
    cut_rows(&x);
  const int64_t tiles = x.flat ? x.positions / TILE_LANES
                               : x.images * ((x.rows * x.pitch + TILE_LANES - 1) / TILE_LANES);
  x.x_bytes = align_up((size_t)unit_bytes(&x), ALIGN);
  x.first_bytes = align_up((size_t)tiles * sizeof(int32_t), ALIGN);
  x.place_bytes = align_up((size_t)(tiles * TILE_LANES) * sizeof(int32_t), ALIGN);
  return x;
}

static size_t thread_bytes(const struct tiles_pass *x)
{
  return x->x_bytes + x->first_bytes + x->place_bytes;
}

static size_t tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

bool tiles_profitable(const struct window *w)
{
  return find_tiles() && w->dtype == TY_F32 && w->groups == 1 && w->in[0] == 1 &&
      w->kernel[0] == 1 && w->pad[0] == 0 && w->filters % TILE_LANES == 0 &&
      w->channels >= TILES_CHANNELS && w->n >= TILES_IMAGES;
}

size_t tiles_scratch(const struct window *w)
{
  const struct tiles_pass x = make_tiles_pass(w);
  return tap_bytes(w) + thread_bytes(&x) * (size_t)parallel_threads();
}

/* Finds where each tap sees position 0, in numbers. */
static void find_taps(const struct tiles_pass *x, int64_t *tap)
{
  const struct window *w = x->w;
  for (int64_t i = 0; i < w->kernel[1]; i++)
    for (int64_t k = 0; k < w->kernel[2]; k++) {
      const int64_t y = i * w->dilate[1], c = k * w->dilate[2],
                    phase = y % w->stride[1] * x->across + c % w->stride[2];
      *tap++ = TILE_CHANNELS *
          (phase * x->height * x->pitch + y / w->stride[1] * x->pitch + c / w->stride[2]);
    }
}

/* -- the weight -------------------------------------------------------------------------------- */

struct tiling { const struct tiles_pass *x; const float *from; uint16_t *to; };

static int64_t filter_block(const struct tiles_pass *x)
{
  return x->channels * window_taps(x->w) * 2 * TILE_NUMBERS;
}

/* Rounds blocks of 32 filters into tiles. */
static void tile_filters(int64_t begin, int64_t end, void *context)
{
  const struct tiling *k = context;
  const struct window *w = k->x->w;
  const int64_t taps = window_taps(w), block = filter_block(k->x);
  memset(k->to + begin * block, 0, (size_t)((end - begin) * block) * sizeof *k->to);
  for (int64_t f = begin * TILE_FILTERS; f < MIN(end * TILE_FILTERS, w->filters); f++) {
    const float *from = k->from + f * w->channels * taps;
    uint16_t *to = k->to + f / TILE_FILTERS * block + f / TILE_LANES % 2 * TILE_NUMBERS +
        f % TILE_LANES * 2;
    for (int64_t c = 0; c < w->channels; c++)
      for (int64_t t = 0; t < taps; t++)
        to[(c / TILE_CHANNELS * taps + t) * 2 * TILE_NUMBERS +
            c % TILE_CHANNELS / 2 * TILE_CHANNELS + c % 2] = bf16_of_f32(*from++);
  }
}

/* -- a unit's positions ------------------------------------------------------------------------ */

/* Rounds n positions from number `at` of an image on, `step` apart, of 32 channels from c on. */
static void pack_span(const struct tiles_pass *x, const float *image, int64_t c, int64_t at,
    int64_t n, int64_t step, uint16_t *to)
{
  const struct window *w = x->w;
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
    block_enter_span(MIN(TILE_LANES, more + TILE_LANES), length, from, in, span[0]);
    if (more > 0)
      block_enter_span(MIN(TILE_LANES, more), length, from + TILE_LANES * in, in, span[1]);
    x->t->pack(some, span[0], more > 0 ? span[1] : NULL, step * TILE_LANES,
        to + i * TILE_CHANNELS);
  }
}

static void clear_positions(uint16_t *to, int64_t begin, int64_t end)
{
  if (end > begin)
    memset(to + begin * TILE_CHANNELS, 0, (size_t)(end - begin) * TILE_CHANNELS * sizeof *to);
}

/* Rounds row `y` of phase (i, k), which may be outside, of 32 channels from c on. */
static void pack_row(const struct tiles_pass *x, const float *image, int64_t c, int64_t y,
    int64_t k, uint16_t *to)
{
  const struct window *w = x->w;
  const int64_t step = w->stride[2], line = y - w->pad[1], left = w->pad[2] - k;
  const int64_t begin = MIN(left > 0 ? (left + step - 1) / step : 0, x->pitch),
                end = MAX(begin, MIN((w->in[2] - 1 + left + step) / step, x->pitch));
  if (line < 0 || line >= w->in[1]) {
    clear_positions(to, 0, x->pitch);
    return;
  }
  clear_positions(to, 0, begin);
  if (end > begin)
    pack_span(x, image, c, line * w->in[2] + begin * step - left, end - begin, step,
        to + begin * TILE_CHANNELS);
  clear_positions(to, end, x->pitch);
}

/* Rounds rows from `row` on of an image for 32 channels from c on. */
static void pack_rows(
    const struct tiles_pass *x, const float *image, int64_t c, int64_t row, uint16_t *to)
{
  for (int64_t i = 0; i < x->down; i++)
    for (int64_t k = 0; k < x->across; k++)
      for (int64_t r = 0; r < x->height; r++, to += x->pitch * TILE_CHANNELS)
        pack_row(x, image, c, (row + r) * x->w->stride[1] + i, k, to);
}

/* -- units ------------------------------------------------------------------------------------- */

struct unit {
  int64_t image, images;                              /* of the batch */
  int64_t row, rows;                                  /* of flat windows, positions */
  uint16_t *x;
  int32_t *first, *place;
  int64_t tiles;
};

static int64_t image_numbers(const struct tiles_pass *x)
{
  return x->w->channels * window_in(x->w);
}

static void pack_unit(const struct tiles_pass *x, const struct unit *u)
{
  const struct window *w = x->w;
  const int64_t out = window_out(w);
  for (int64_t c = 0; c < x->channels; c++) {
    uint16_t *to = u->x + c * x->plane * TILE_CHANNELS;
    for (int64_t i = 0, n; x->flat && i < u->rows; i += n) {
      const int64_t at = u->row + i;
      n = MIN(u->rows - i, out - at % out);
      pack_span(x, x->x + at / out * image_numbers(x), c * TILE_CHANNELS, at % out, n, 1,
          to + i * TILE_CHANNELS);
    }
    for (int64_t i = 0; !x->flat && i < u->images; i++)
      pack_rows(x, x->x + (u->image + i) * image_numbers(x), c * TILE_CHANNELS, u->row,
          to + i * x->image * TILE_CHANNELS);
    if (!x->flat) clear_positions(to, u->images * x->image, x->plane);
  }
}

/* Lists the tiles of a unit, and the places of their positions from the unit's first image on. */
static void list_tiles(const struct tiles_pass *x, struct unit *u)
{
  const struct window *w = x->w;
  const int64_t out = window_out(w), image = w->filters / TILE_LANES * out,
                pitch = x->flat ? u->rows : x->pitch,
                end = x->flat ? u->rows : (u->rows - 1) * pitch + w->out[2];
  int32_t *place = u->place;
  u->tiles = 0;
  for (int64_t i = 0; i < u->images; i++)
    for (int64_t q = 0; q < end; q += TILE_LANES) {
      u->first[u->tiles++] = (int32_t)(x->flat ? q : i * x->image + q);
      for (int64_t p = q; p < q + TILE_LANES; p++) {
        const int64_t at = u->row + p;                /* of flat windows */
        if (x->flat)
          *place++ = p < end ? (int32_t)(at / out * image + at % out) : -1;
        else
          *place++ = p < end && p % pitch < w->out[2]
              ? (int32_t)(i * image + (u->row + p / pitch) * w->out[2] + p % pitch)
              : -1;
      }
    }
}

static void find_unit(const struct tiles_pass *x, int64_t i, struct unit *u)
{
  const struct window *w = x->w;
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

static void multiply_units(int64_t begin, int64_t end, void *context)
{
  const struct tiles_pass *x = context;
  const struct window *w = x->w;
  const int64_t out = window_out(w);
  char *buffer = x->threads + thread_bytes(x) * (size_t)parallel_index();
  struct unit u = { .x = (uint16_t *)buffer,
    .first = (int32_t *)(buffer + x->x_bytes),
    .place = (int32_t *)(buffer + x->x_bytes + x->first_bytes) };
  for (int64_t i = begin; i < end; i++) {
    find_unit(x, i, &u);
    list_tiles(x, &u);
    struct unit from = u;
    if (x->flat) from.row += u.image * out;
    pack_unit(x, &from);
    for (int64_t f = 0; f < x->filters; f++) {
      const int64_t filter = f * TILE_FILTERS;
      const struct tiles_block b = { .x = u.x,
        .plane = x->plane * TILE_CHANNELS,
        .channels = x->channels,
        .tap = x->tap,
        .taps = window_taps(w),
        .weight = x->weight + f * filter_block(x),
        .tiles = u.tiles,
        .first = u.first,
        .place = u.place,
        .y = x->y + (u.image * w->filters + filter) * out,
        .block = TILE_LANES * out,
        .parts = w->filters - filter > TILE_LANES ? 2 : 1,
        .scale = x->end.scale ? x->end.scale + filter : NULL,
        .bias = x->end.bias ? (const float *)x->end.bias + filter : NULL,
        .add = x->end.add,
        .act = x->end.act,
        .apply = gemm_type(TY_F32)->act };
      x->t->multiply(&b);
    }
  }
}

int tiles_forward(const struct window *w, const void *x, int block_x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp)
{
  struct tiles_pass p = make_tiles_pass(w);
  const int64_t numbers = p.filters * filter_block(&p);
  bool fresh;
  struct tiling k = { &p, weight->p,
    gemm_kept_buffer(kept, weight, (size_t)numbers * sizeof(uint16_t), &fresh) };
  NEED(k.to, TY_EMEMORY, "out of memory: rounded weight of %lld numbers", (long long)numbers);
  if (!fresh) parallel_for(p.filters, cost_ns(NS_ELEMENT, filter_block(&p)), tile_filters, &k);
  p.weight = k.to;
  p.x = x;
  p.block_x = block_x;
  p.y = y;
  p.end = *end;
  p.tap = tmp;
  p.threads = (char *)tmp + tap_bytes(w);
  find_taps(&p, tmp);
  parallel_chunks_stoppable(p.units, 1, multiply_units, &p);
  return TY_OK;
}
