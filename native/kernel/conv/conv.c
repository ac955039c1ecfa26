/* conv.c - forward and the gradient of the data of conv.h; weight.c has the gradient of the weight.
**
** Forward: for each image and group, the weight (filters x depth, packed in strips once per
** version) times columns (depth x positions). Positions are cut into blocks of a few panels, and
** depth into runs of whole channels, so that one run of a block stays in the second-level cache
** while all filters use it. Gradient of the data: the transposed weight (depth x filters, packed in
** strips per block of channels) times dy (filters x positions, in place) gives rows of columns,
** which are added to the image. One thread computes a block of channels of one image. */
#include "kernel/conv/inner.h"

/* -- windows ----------------------------------------------------------------------------------- */

bool window_1x1(const struct window *w)
{
  for (int a = 0; a < 3; a++)
    if (w->kernel[a] != 1 || w->stride[a] != 1 || w->pad[a]) return false;
  return true;
}

/* Returns false if keeping the weight takes much memory and saves little time. */
bool convolve_keeps(const struct window *w)
{
  const int64_t bytes = w->groups * w->filters * window_depth(w) * (int64_t)sizeof(float),
                positions = window_positions(w);
  return bytes <= CONV_SMALL_WEIGHT || positions < CONV_FEW_POSITIONS ||
      (positions < CONV_MANY_POSITIONS && bytes <= CONV_LARGE_WEIGHT);
}

/* -- positions --------------------------------------------------------------------------------- */

int window_runs(const struct window *w, int64_t j, int64_t cols, struct run_of *run)
{
  const int64_t ow = w->out[2], oh = w->out[1];
  int n = 0;
  int64_t x = j % ow, y = j / ow % oh, z = j / ow / oh;
  for (int64_t at = 0; at < cols; n++) {
    int64_t length = MIN(ow - x, cols - at);
    run[n] = (struct run_of){ { z * w->stride[0] - w->pad[0], y * w->stride[1] - w->pad[1],
                                  x * w->stride[2] - w->pad[2] },
      (int32_t)at, (int32_t)length };
    at += length;
    x = 0;
    if (++y == oh) y = 0, z++;
  }
  return n;
}

bool window_inside(const struct window *w, const struct run_of *run, int n)
{
  for (int i = 0; i < n; i++)
    for (int a = 0; a < 3; a++) {
      int64_t last = run[i].at[a] + (w->kernel[a] - 1) * w->dilate[a] +
          (a == 2 ? (run[i].n - 1) * w->stride[2] : 0);
      if (run[i].at[a] < 0 || last >= w->in[a]) return false;
    }
  return true;
}

static int64_t conv_find_pixel(const struct window *w, int64_t z, int64_t y, int64_t x)
{
  return (z * w->in[1] + y) * w->in[2] + x;
}

int window_pieces(const struct window *w, const struct run_of *run, int n, int64_t z, int64_t y,
    int64_t x, struct gemm_piece *piece, bool *gaps)
{
  int m = 0;
  const int64_t s = w->stride[2], width = w->in[2];
  *gaps = false;
  for (int i = 0; i < n; i++) {
    int64_t iz = run[i].at[0] + z * w->dilate[0], iy = run[i].at[1] + y * w->dilate[1],
            ix = run[i].at[2] + x * w->dilate[2];
    bool out = iz < 0 || iz >= w->in[0] || iy < 0 || iy >= w->in[1] || ix >= width;
    int64_t first = ix >= 0 ? 0 : s == 1 ? -ix : (-ix + s - 1) / s;
    int64_t end = out ? 0 : s == 1 ? width - ix : (width - ix + s - 1) / s;
    if (end > run[i].n) end = run[i].n;
    if (end - first < run[i].n) *gaps = true;
    if (end <= first) continue;
    piece[m++] = (struct gemm_piece){ conv_find_pixel(w, iz, iy, ix + first * s),
      (int32_t)(run[i].column + first), (int32_t)(end - first) };
  }
  return m;
}

void window_offsets(const struct window *w, int64_t *tap)
{
  for (int64_t z = 0; z < w->kernel[0]; z++)
    for (int64_t y = 0; y < w->kernel[1]; y++)
      for (int64_t x = 0; x < w->kernel[2]; x++)
        *tap++ = conv_find_pixel(w, z * w->dilate[0], y * w->dilate[1], x * w->dilate[2]);
}

void window_columns(const struct window *w, const struct gemm_type *t, int64_t j, int64_t cols,
    int64_t channels, int64_t width, const int64_t *tap, const void *from, void *to, bool back)
{
  struct run_of run[CONV_COLUMNS];
  struct gemm_piece piece[CONV_COLUMNS];
  const size_t size = dtype_size(w->dtype);
  const int taps = (int)window_taps(w), n = window_runs(w, j, cols, run);
  struct gemm_image f = { .channels = channels,
    .channel = window_in(w),
    .step = w->stride[2],
    .width = width,
    .piece = piece };
  void (*move)(const struct gemm_image *, const void *, void *) = back ? t->scatter_panel : t->fill;
  if (window_inside(w, run, n)) {
    bool gaps;
    f.n = window_pieces(w, run, n, 0, 0, 0, piece, &gaps);
    f.taps = taps;
    f.tap = tap;
    f.clear = cols < width;
    move(&f, from, to);
    return;
  }
  static const int64_t none;
  f.taps = 1;
  f.tap = &none;
  f.skip = (taps - 1) * width;
  for (int64_t i = 0; i < taps; i++) {
    f.n = window_pieces(w, run, n, i / w->kernel[2] / w->kernel[1], i / w->kernel[2] % w->kernel[1],
        i % w->kernel[2], piece, &f.clear);
    f.clear |= cols < width;
    size_t row = (size_t)(i * width) * size;
    move(&f, back ? (const char *)from + row : from, back ? to : (char *)to + row);
  }
}

/* -- forward ----------------------------------------------------------------------------------- */

struct forward_pass {
  const struct window *w;
  const struct gemm_type *t;
  size_t size;
  const char *x, *packed;
  char *y, *tmp;
  size_t panel_bytes;                                 /* bytes of a thread's panels */
  const int64_t *tap;
  struct convolve_end end;
  int height;
  int64_t run;                                        /* channels of a run of depth */
  int64_t taps, depth, in, out;
  int64_t cols;                                       /* positions of a unit */
  int64_t rows;                                       /* filters of a unit */
  int64_t across;                                     /* units along the positions */
  int64_t down;                                       /* units along the filters */
  bool is_1x1;                                        /* with stride 1 and no padding */
  bool direct;                                        /* the image is used as the panel */
};

static int64_t conv_count_run_channels(const struct window *w, const struct gemm_type *t)
{
  return MAX(1, MIN(w->channels, t->kc / window_taps(w)));
}

static size_t conv_count_forward_bytes(const struct window *w, const struct gemm_type *t)
{
  int64_t cols = t->nr * (window_1x1(w) ? CONV_PANELS_1X1 : CONV_PANELS);
  return align_up(
      (size_t)(conv_count_run_channels(w, t) * window_taps(w) * cols) * dtype_size(w->dtype),
      ALIGN);
}

static size_t conv_count_tap_bytes(const struct window *w)
{
  return align_up(sizeof(int64_t) * (size_t)window_taps(w), ALIGN);
}

size_t convolve_forward_scratch(const struct window *w)
{
  return conv_count_tap_bytes(w) +
      conv_count_forward_bytes(w, gemm_type(w->dtype)) * (size_t)parallel_threads();
}

static void conv_fill_panels(const struct forward_pass *f, const char *x, int64_t j, int64_t cols,
    int64_t channels, char *scratch)
{
  const struct gemm_type *t = f->t;
  for (int64_t q = 0; q < cols; q += t->nr) {
    int64_t some = MIN(t->nr, cols - q);
    window_columns(f->w, t, j + q, some, channels, some > t->w ? t->nr : t->w, f->tap, x,
        scratch + (size_t)(q * channels * f->taps) * f->size, false);
  }
}

/* Computes one unit: `cols` positions from j on of one image, `rows` filters from `filter` on,
** which counts over all groups. */
static void conv_run_forward_block(const struct forward_pass *f, const char *image,
    const char *strips, int64_t filter, char *y, int64_t j, int64_t cols, int64_t rows)
{
  const struct window *w = f->w;
  const struct gemm_type *t = f->t;
  const char *bias = f->end.bias;
  char *scratch = f->tmp + f->panel_bytes * (size_t)parallel_index();
  struct gemm_block g = { .m = rows,
    .n = cols,
    .outer = 1,
    .ars = 1,
    .acs = f->height,
    .strip = f->height * f->depth,
    .rows = f->height,
    .b = scratch,
    .c = y + (size_t)j * f->size,
    .ldc = f->out,
    .row_scale = f->end.scale ? f->end.scale + filter : NULL,
    .alpha = 1 };
  if (bias) bias += (size_t)filter * f->size;
  for (int64_t c = 0; c < w->channels; c += f->run) {
    int64_t channels = MIN(f->run, w->channels - c);
    bool last = c + channels == w->channels;
    const char *x = image + (size_t)(c * f->in) * f->size;
    g.k = channels * f->taps;
    g.a = strips + (size_t)(c * f->taps * f->height) * f->size;
    g.add = f->end.add || c > 0;
    g.row_bias = last ? bias : NULL;
    g.act = last ? f->end.act : ACT_NONE;
    g.panel = g.k * t->nr;
    if (f->direct)
      g.b = x + (size_t)j * f->size, g.ldb = f->in, g.panel = t->nr, g.full = true;
    else if (f->is_1x1)
      gemm_panels(t, false, cols, channels, x + (size_t)j * f->size, f->in, scratch);
    else
      conv_fill_panels(f, x, j, cols, channels, scratch);
    t->block(&g);
  }
}

static void conv_run_forward_units(int64_t begin, int64_t end, void *context)
{
  const struct forward_pass *f = context;
  const struct window *w = f->w;
  for (int64_t u = begin; u < end; u++) {
    int64_t i = u / f->across / f->down, group = i % w->groups; /* image and group */
    int64_t j = u % f->across * f->cols, o = u / f->across % f->down * f->rows,
            rows = MIN(f->rows, w->filters - o);
    const char *image = f->x + (size_t)(i * w->channels * f->in) * f->size;
    int64_t all = (w->filters + f->height - 1) / f->height * f->height;
    const char *strips = f->packed + (size_t)((group * all + o) * f->depth) * f->size;
    char *y = f->y + (size_t)((i * w->filters + o) * f->out) * f->size;
    conv_run_forward_block(
        f, image, strips, group * w->filters + o, y, j, MIN(f->cols, f->out - j), rows);
  }
}

/* Packs strips of `height` rows for each group. */
struct strips {
  const struct gemm_type *t;
  size_t size;
  int64_t rows, k, ars, acs, from_group;
  int height;
  const char *a;
  char *out;
};

static void conv_pack_strips(int64_t begin, int64_t end, void *context)
{
  const struct strips *s = context;
  int64_t each = (s->rows + s->height - 1) / s->height;
  for (int64_t i = begin; i < end; i++) {
    int64_t group = i / each, row = i % each * s->height;
    s->t->strip(MIN(s->height, s->rows - row), s->k,
        s->a + (size_t)(group * s->from_group + row * s->ars) * s->size, s->ars, s->acs, s->height,
        s->out + (size_t)(i * s->height * s->k) * s->size);
  }
}

static const void *conv_keep_strips(
    struct gemm_kept *kept, const struct operand *weight, struct strips *s, int64_t groups)
{
  bool fresh;
  int64_t each = (s->rows + s->height - 1) / s->height;
  s->out = gemm_kept_buffer(
      kept, weight, (size_t)(groups * each * s->height * s->k + 64) * s->size, &fresh);
  if (!s->out || fresh) return s->out;
  parallel_for(groups * each, cost_ns(CONV_STRIP_NS, s->height * s->k), conv_pack_strips, s);
  return s->out;
}

/* Cuts the work into units: first positions, since their panels are then still filled only once,
** then filters. Returns the number of units. */
static int64_t conv_cut_forward(struct forward_pass *f)
{
  const struct window *w = f->w;
  int64_t blocks = (f->out + f->t->nr - 1) / f->t->nr,
          strips = (w->filters + f->height - 1) / f->height;
  int64_t b = MIN(blocks, f->is_1x1 ? CONV_PANELS_1X1 : CONV_PANELS), s = strips,
          images = w->n * w->groups;
  while ((double)(b * f->t->nr * s * f->height) * (double)f->depth > CONV_UNIT_WORK &&
      images * ((blocks + b - 1) / b) * ((strips + s - 1) / s) < CONV_UNITS) {
    if (b > 1)
      b = (b + 1) / 2;
    else if (s > CONV_MIN_STRIPS)
      s = (s + 1) / 2;
    else
      break;
  }
  f->cols = b * f->t->nr;
  f->rows = s * f->height;
  f->across = (blocks + b - 1) / b;
  f->down = (strips + s - 1) / s;
  return images * f->across * f->down;
}

/* Convolves. Element (filter, term) of a group of the weight is at filter * ars + term * acs. */
static int conv_multiply_image(const struct window *w, const void *x, const struct operand *weight,
    int64_t ars, int64_t acs, const struct convolve_end *end, void *y, struct gemm_kept *kept,
    void *tmp)
{
  const struct gemm_type *t = gemm_type(w->dtype);
  const size_t size = dtype_size(w->dtype);
  struct forward_pass f = { .w = w,
    .t = t,
    .size = size,
    .x = x,
    .end = *end,
    .y = y,
    .tap = tmp,
    .tmp = (char *)tmp + conv_count_tap_bytes(w),
    .panel_bytes = conv_count_forward_bytes(w, t),
    .run = conv_count_run_channels(w, t),
    .taps = window_taps(w),
    .depth = window_depth(w),
    .in = window_in(w),
    .out = window_out(w) };
  f.height = gemm_height(w->filters, t->mr);
  f.is_1x1 = window_1x1(w);
  f.direct = f.is_1x1 && w->filters <= 2 * t->mr;
  struct strips s = { t, size, w->filters, f.depth, ars, acs, w->filters * f.depth, f.height,
    weight->p, NULL };
  f.packed = conv_keep_strips(kept, weight, &s, w->groups);
  NEED(f.packed, TY_EMEMORY, "out of memory: packed weight");
  window_offsets(w, tmp);
  int64_t units = conv_cut_forward(&f);
  double work = (double)MIN(f.cols, f.out) * (double)MIN(f.rows, w->filters) * (double)f.depth;
  parallel_for_stoppable(units, NS_PRODUCT * work, conv_run_forward_units, &f);
  return TY_OK;
}

int convolve_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp)
{
  return conv_multiply_image(w, x, weight, window_depth(w), 1, end, y, kept, tmp);
}

/* -- gradient of the data ---------------------------------------------------------------------- */

struct data {
  const struct window *w;
  const struct gemm_type *t;
  size_t size, column_bytes;
  const char *dy, *packed, *bias;
  char *dx, *tmp;
  const int64_t *tap;
  int64_t taps, in, out;
  int64_t block;                                      /* channels of a unit */
  int64_t blocks;                                     /* units of a group */
  int64_t cols;                                       /* positions at a time */
  int64_t width;
  int height, act;
  bool add;
};

/* Returns how many channels' columns (channels x taps x CONV_COLUMNS) fit the second-level
** cache. */
static int64_t conv_count_block_channels(const struct window *w, const struct gemm_type *t)
{
  int64_t most = MAX(1, CONV_DATA_ROWS / window_taps(w));
  int64_t blocks = (w->channels + most - 1) / most;
  return (w->channels + blocks - 1) / blocks;
}

/* Returns whether whole output rows fold back (kernel/gemm/isa.h). */
static bool conv_folds_rows(const struct window *w)
{
  return gemm_type(w->dtype)->fold && w->in[0] == 1 && w->kernel[0] == 1 && w->out[0] == 1 &&
      !w->pad[0] && w->stride[1] == 1 && w->stride[2] == 1 && w->dilate[1] == 1 &&
      w->dilate[2] == 1 && w->out[2] <= CONV_COLUMNS;
}

static int64_t conv_count_data_columns(const struct window *w)
{
  return conv_folds_rows(w) ? MIN(CONV_COLUMNS / w->out[2] * w->out[2], window_out(w))
                  : MIN(CONV_COLUMNS, window_out(w));
}

static int64_t conv_find_data_width(const struct window *w)
{
  return (int64_t)align_up((size_t)conv_count_data_columns(w), 16);
}

static size_t conv_count_data_bytes(const struct window *w, const struct gemm_type *t)
{
  return align_up(
      (size_t)(conv_count_block_channels(w, t) * window_taps(w) * conv_find_data_width(w)) *
          dtype_size(w->dtype),
      ALIGN);
}

/* Returns the window of the gradient of a 1 x 1 window: a convolution by the transposed weight. */
static struct window conv_exchange_channels(const struct window *w)
{
  struct window v = *w;
  v.channels = w->filters;
  v.filters = w->channels;
  return v;
}

size_t convolve_data_scratch(const struct window *w)
{
  struct window v = conv_exchange_channels(w);
  if (window_1x1(w)) return convolve_forward_scratch(&v);
  return conv_count_tap_bytes(w) +
      conv_count_data_bytes(w, gemm_type(w->dtype)) * (size_t)parallel_threads();
}

static void conv_fold_back(
    const struct data *d, int64_t j, int64_t cols, int64_t channels, const char *scratch, char *dx)
{
  const struct window *w = d->w;
  struct gemm_fold f = { .channels = channels,
    .channel = d->in,
    .width = d->width,
    .in = { w->in[1], w->in[2] },
    .kernel = { w->kernel[1], w->kernel[2] },
    .pad = { w->pad[1], w->pad[2] },
    .first = j / w->out[2],
    .rows = cols / w->out[2],
    .across = w->out[2] };
  d->t->fold(&f, scratch, dx);
}

static void conv_run_data_unit(const struct data *d, int64_t i, int64_t block)
{
  const struct window *w = d->w;
  char *scratch = d->tmp + d->column_bytes * (size_t)parallel_index();
  int64_t c = block * d->block, channels = MIN(d->block, w->channels - c),
          rows = channels * d->taps;
  char *dx = d->dx + (size_t)((i * w->channels + c) * d->in) * d->size;
  const char *dy = d->dy + (size_t)(i * w->filters * d->out) * d->size;
  int64_t each = (d->block * d->taps + d->height - 1) / d->height * d->height;
  const char *strips = d->packed +
      (size_t)((i % w->groups * d->blocks + block) * each * w->filters) * d->size;
  if (!d->add) memset(dx, 0, (size_t)(channels * d->in) * d->size);
  for (int64_t j = 0; j < d->out; j += d->cols) {
    int64_t cols = MIN(d->cols, d->out - j);
    struct gemm_block g = { .m = rows,
      .n = cols,
      .k = w->filters,
      .outer = 1,
      .a = strips,
      .ars = 1,
      .acs = d->height,
      .strip = d->height * w->filters,
      .rows = d->height,
      .b = dy + (size_t)j * d->size,
      .ldb = d->out,
      .panel = d->t->nr,
      .full = true,
      .c = scratch,
      .ldc = d->width,
      .alpha = 1 };
    gemm_sum(d->t, &g);
    if (conv_folds_rows(w))
      conv_fold_back(d, j, cols, channels, scratch, dx);
    else
      window_columns(w, d->t, j, cols, channels, d->width, d->tap, scratch, dx, true);
  }
}

static void conv_finish_data_unit(const struct data *d, int64_t i, int64_t block)
{
  const struct window *w = d->w;
  int64_t c = i * w->channels + block * d->block,
          channels = MIN(d->block, w->channels - block * d->block);
  for (int64_t k = c; k < c + channels; k++) {
    char *row = d->dx + (size_t)(k * d->in) * d->size;
    if (d->bias)
      d->t->axpy(d->in, 1, d->bias + (size_t)(k % (w->groups * w->channels)) * d->size, 0, row);
    d->t->act(d->act, d->in, row);
  }
}

static void conv_run_data_units(int64_t begin, int64_t end, void *context)
{
  const struct data *d = context;
  for (int64_t u = begin; u < end; u++) {
    conv_run_data_unit(d, u / d->blocks, u % d->blocks);
    if (d->bias || d->act) conv_finish_data_unit(d, u / d->blocks, u % d->blocks);
  }
}

int convolve_data(const struct window *w, const void *dy, const struct operand *weight, void *dx,
    bool add, const void *bias, int act, struct gemm_kept *kept, void *tmp)
{
  struct window v = conv_exchange_channels(w);
  const struct convolve_end end = { .bias = bias, .act = act, .add = add };
  if (window_1x1(w))
    return conv_multiply_image(&v, dy, weight, 1, w->channels, &end, dx, kept, tmp);
  const struct gemm_type *t = gemm_type(w->dtype);
  const size_t size = dtype_size(w->dtype);
  struct data d = { .w = w,
    .t = t,
    .size = size,
    .column_bytes = conv_count_data_bytes(w, t),
    .dy = dy,
    .dx = dx,
    .bias = bias,
    .act = act,
    .tap = tmp,
    .tmp = (char *)tmp + conv_count_tap_bytes(w),
    .taps = window_taps(w),
    .in = window_in(w),
    .out = window_out(w),
    .block = conv_count_block_channels(w, t),
    .cols = conv_count_data_columns(w),
    .width = conv_find_data_width(w),
    .add = add };
  const int64_t depth = window_depth(w), rows = d.block * d.taps;
  bool fresh;
  d.blocks = (w->channels + d.block - 1) / d.block;
  d.height = gemm_height(rows, t->mr);
  int64_t each = (rows + d.height - 1) / d.height * d.height;
  char *packed = gemm_kept_buffer(
      kept, weight, (size_t)(w->groups * d.blocks * each * w->filters + 64) * size, &fresh);
  NEED(packed, TY_EMEMORY, "out of memory: packed weight");
  d.packed = packed;
  for (int64_t i = 0; !fresh && i < w->groups * d.blocks; i++) {
    int64_t from = i % d.blocks * rows;
    const char *a = (const char *)weight->p +
        (size_t)(i / d.blocks * w->filters * depth + from) * size;
    struct strips s = { t, size, MIN(rows, depth - from), w->filters, 1, depth, 0, d.height, a,
      packed + (size_t)(i * each * w->filters) * size };
    parallel_for((s.rows + s.height - 1) / s.height,
        cost_ns(CONV_STRIP_NS, s.height * s.k), conv_pack_strips, &s);
  }
  window_offsets(w, tmp);
  double work = (double)rows * (double)w->filters * (double)d.out;
  parallel_for_stoppable(
      w->n * w->groups * d.blocks, NS_PRODUCT * work, conv_run_data_units, &d);
  return TY_OK;
}
