/* conv_tiles_test.c - convolutions on tiles and their gradients, where tiles are arrays in memory,
** against their definitions: the code for AMX without a processor that has it.
*/
#include <math.h>
#include "random.h"
#include "check.h"
#include "base/convert.h"
#include "kernel/conv/inner.h"
#define TY_TILES
#define TY_TILES_IN_MEMORY
#define ISA tiles_in_memory
#include "kernel/conv/isa/tiles.c"
#undef W

enum { MOST_POSITIONS = 1500 };

/* Copies an image of `channels` from the plain order to blocks of 16, or back. */
static void move_image(int64_t channels, int64_t space, float *plain, float *blocks, bool enter)
{
  for (int64_t c = 0; c < channels; c++)
    for (int64_t i = 0; i < space; i++) {
      float *to = blocks + (c / TILE_LANES * space + i) * TILE_LANES + c % TILE_LANES,
            *from = plain + c * space + i;
      if (enter)
        *to = *from;
      else
        *from = *to;
    }
}

static float *move_images(int64_t n, int64_t channels, int64_t space, float *plain)
{
  float *blocks = mem_lines((size_t)(n * channels * space) * sizeof *blocks);
  for (int64_t i = 0; i < n; i++)
    move_image(channels, space, plain + i * channels * space, blocks + i * channels * space, true);
  return blocks;
}

/* Makes n random numbers that bfloat16 holds exactly. Free it with mem_free. */
static float *make_rounded(int64_t n)
{
  float *p = make_floats(n);
  for (int64_t i = 0; i < n; i++) p[i] = bf16_to_float(float_to_bf16(p[i]));
  return p;
}

static float *make_magnitudes(int64_t n, const float *from)
{
  float *p = mem_new((size_t)n * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = fabsf(from[i]);
  return p;
}

/* Counts results, in blocks or plain, that are further from `want` than sums of float32 may be.
** most: sums of the magnitudes of their terms. */
static int64_t count_wrong(int64_t n, int64_t channels, int64_t space, float *got, bool blocks,
    const float *want, const float *most)
{
  int64_t wrong = 0;
  float *plain = mem_new((size_t)(channels * space) * sizeof *plain);
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = i * channels * space;
    if (blocks)
      move_image(channels, space, plain, got + at, false);
    else
      memcpy(plain, got + at, (size_t)(channels * space) * sizeof *plain);
    for (int64_t k = 0; k < channels * space; k++)
      wrong += !(fabsf(plain[k] - want[at + k]) <= 4e-6f * most[at + k] + 1e-6f);
  }
  mem_free(plain);
  return wrong;
}

struct images { int64_t nx, ny, nw; float *x, *dy, *w, *x_blocks, *dy_blocks, *ax, *ay, *aw; };

static struct images make_images(const struct window *w)
{
  struct images m = { .nx = w->n * w->channels * window_in(w),
    .ny = w->n * w->filters * window_out(w),
    .nw = w->filters * window_depth(w) };
  m.x = make_rounded(m.nx);
  m.dy = make_rounded(m.ny);
  m.w = make_rounded(m.nw);
  m.x_blocks = w->channels % TILE_LANES ? NULL : move_images(w->n, w->channels, window_in(w), m.x);
  m.dy_blocks = move_images(w->n, w->filters, window_out(w), m.dy);
  m.ax = make_magnitudes(m.nx, m.x);
  m.ay = make_magnitudes(m.ny, m.dy);
  m.aw = make_magnitudes(m.nw, m.w);
  return m;
}

static void free_images(struct images *m)
{
  float *all[] = { m->x, m->dy, m->w, m->x_blocks, m->dy_blocks, m->ax, m->ay, m->aw };
  for (int i = 0; i < COUNT(all); i++) mem_free(all[i]);
}

static struct operand weight_operand(struct images *m)
{
  return (struct operand){ .p = m->w };
}

/* Returns how many results of forward are wrong, from images in blocks or in a plain array. ends:
** with scale, bias, sum and relu. */
static int64_t try_forward(const struct window *w, struct images *m, bool blocks, bool ends)
{
  const int64_t space = window_out(w);
  float *want = mem_new((size_t)m->ny * sizeof *want),
        *most = mem_new((size_t)m->ny * sizeof *most),
        *y = mem_lines((size_t)m->ny * sizeof *y), *scale = make_floats(w->filters),
        *bias = make_floats(w->filters);
  void *tmp = mem_lines(tiles_scratch(w));
  const struct operand weight = weight_operand(m);
  struct gemm_kept kept = { 0 };
  convolve_reference(w, m->x, m->w, NULL, want, false);
  convolve_reference(w, m->ax, m->aw, NULL, most, false);
  memcpy(y, m->dy_blocks, (size_t)m->ny * sizeof *y);
  for (int64_t i = 0; ends && i < m->ny; i++) {
    const int64_t f = i / space % w->filters;
    const float sum = want[i] * scale[f] + bias[f] + m->dy[i];
    want[i] = sum > 0 ? sum : 0;
    most[i] = most[i] * fabsf(scale[f]) + 3;
  }
  const struct convolve_end end = { .bias = ends ? bias : NULL,
    .scale = ends ? scale : NULL,
    .act = ends ? ACT_RELU : ACT_NONE,
    .add = ends };
  RUN(tiles_forward(w, blocks ? m->x_blocks : m->x, blocks ? TILE_LANES : 0, &weight, &end, y,
      &kept, tmp));
  const int64_t wrong = count_wrong(w->n, w->filters, space, y, true, want, most);
  mem_free(want), mem_free(most), mem_free(y), mem_free(scale), mem_free(bias), mem_free(tmp);
  gemm_kept_done(&kept);
  return wrong;
}

static int64_t try_data(const struct window *w, struct images *m, bool add)
{
  float *want = mem_new((size_t)m->nx * sizeof *want),
        *most = mem_new((size_t)m->nx * sizeof *most),
        *dx = mem_lines((size_t)m->nx * sizeof *dx);
  void *tmp = mem_lines(tiles_data_scratch(w));
  const struct operand weight = weight_operand(m);
  struct gemm_kept kept = { 0 };
  memcpy(want, m->x, (size_t)m->nx * sizeof *want);
  memcpy(most, m->ax, (size_t)m->nx * sizeof *most);
  convolve_reference_data(w, m->dy, m->w, want, add);
  convolve_reference_data(w, m->ay, m->aw, most, add);
  memcpy(dx, m->x_blocks, (size_t)m->nx * sizeof *dx);
  RUN(tiles_data(w, m->dy_blocks, &weight, dx, add, &kept, tmp));
  const int64_t wrong = count_wrong(w->n, w->channels, window_in(w), dx, true, want, most);
  mem_free(want), mem_free(most), mem_free(dx), mem_free(tmp);
  gemm_kept_done(&kept);
  return wrong;
}

static int64_t try_weight(const struct window *w, struct images *m, bool blocks, bool add)
{
  float *want = mem_new((size_t)m->nw * sizeof *want),
        *most = mem_new((size_t)m->nw * sizeof *most),
        *dw = mem_new((size_t)m->nw * sizeof *dw);
  void *tmp = mem_lines(tiles_weight_scratch(w));
  memcpy(want, m->w, (size_t)m->nw * sizeof *want);
  memcpy(most, m->aw, (size_t)m->nw * sizeof *most);
  memcpy(dw, m->w, (size_t)m->nw * sizeof *dw);
  convolve_reference_weight(w, m->x, m->dy, want, add);
  convolve_reference_weight(w, m->ax, m->ay, most, add);
  tiles_weight(w, blocks ? m->x_blocks : m->x, blocks ? TILE_LANES : 0, m->dy_blocks, dw, add, tmp);
  const int64_t wrong = count_wrong(1, 1, m->nw, dw, false, want, most);
  mem_free(want), mem_free(most), mem_free(dw), mem_free(tmp);
  return wrong;
}

static void test_window(const struct window *w)
{
  struct images m = make_images(w);
  const bool in_blocks = m.x_blocks != NULL;
  const int64_t wrong[] = {
    try_forward(w, &m, false, false),
    in_blocks ? try_forward(w, &m, true, true) : 0,
    in_blocks ? try_data(w, &m, false) : 0,
    in_blocks ? try_data(w, &m, true) : 0,
    try_weight(w, &m, false, false),
    in_blocks ? try_weight(w, &m, true, true) : 0,
  };
  for (int i = 0; i < COUNT(wrong); i++)
    CHECK(!wrong[i],
        "%lld wrong of part %d: n %lld, %lld channels, %lld filters, in %lld %lld, "
        "kernel %lld %lld, stride %lld %lld, dilate %lld %lld, pad %lld %lld",
        (long long)wrong[i], i, (long long)w->n, (long long)w->channels, (long long)w->filters,
        (long long)w->in[1], (long long)w->in[2], (long long)w->kernel[1],
        (long long)w->kernel[2], (long long)w->stride[1], (long long)w->stride[2],
        (long long)w->dilate[1], (long long)w->dilate[2], (long long)w->pad[1],
        (long long)w->pad[2]);
  free_images(&m);
}

/* Sets the output lengths of a window. Returns false if it does not fit into the image. */
static bool fit_window(struct window *w)
{
  for (int a = 0; a < 3; a++) {
    const int64_t reach = (w->kernel[a] - 1) * w->dilate[a] + 1;
    if (reach > w->in[a] + 2 * w->pad[a]) return false;
    w->out[a] = (w->in[a] + 2 * w->pad[a] - reach) / w->stride[a] + 1;
  }
  return window_positions(w) <= MOST_POSITIONS;
}

static struct window make_window(int64_t n, int64_t channels, int64_t filters)
{
  return (struct window){ .n = n, .groups = 1, .channels = channels, .filters = filters,
    .in = { 1, 1, 1 }, .kernel = { 1, 1, 1 }, .stride = { 1, 1, 1 }, .dilate = { 1, 1, 1 },
    .dtype = TY_F32 };
}

static void test_random(void)
{
  struct window w = make_window(1 + draw_below(3), 16 + draw_below(3) * 16 + draw_below(3) / 2 * 5,
      16 + draw_below(4) * 16);
  for (int a = 1; a < 3; a++) {
    w.in[a] = 1 + draw_below(18);
    w.kernel[a] = 1 + draw_below(4);
    w.stride[a] = 1 + draw_below(3);
    w.dilate[a] = 1 + draw_below(2);
    w.pad[a] = draw_below(4);
  }
  if (fit_window(&w)) test_window(&w);
}

/* Tests a window of one tap and stride 1: the positions of all images form one row. */
static void test_flat(int64_t n, int64_t positions, int64_t channels, int64_t filters)
{
  struct window w = make_window(n, channels, filters);
  w.in[2] = positions;
  if (fit_window(&w)) test_window(&w);
}

int main(void)
{
  static const int64_t edges[] = { 1, 2, 15, 16, 17, 49, 130 };
  conv_tiles_give(&conv_tiles_tiles_in_memory);
  for (int i = 0; i < COUNT(edges); i++) test_flat(1 + i % 3, edges[i], 16 + i * 16, 16);
  test_flat(20, 65, 32, 48);
  for (int i = 0; i < count_trials(30); i++) test_random();
  struct window w = make_window(17, 32, 16);          /* several images are one unit */
  w.in[1] = w.in[2] = 5;
  w.kernel[1] = w.kernel[2] = 3;
  w.pad[1] = w.pad[2] = 1;
  if (fit_window(&w)) test_window(&w);
  w = make_window(1, 480, 16);                        /* an image is several units */
  w.in[1] = 30, w.in[2] = 21;
  w.kernel[1] = 3, w.kernel[2] = 2;
  w.pad[1] = 1;
  if (fit_window(&w)) test_window(&w);
  return check_end();
}
