/* gemm_test.c - products and convolutions of random sizes against their definitions. TYCHO_CPU
** picks the kernels. */
#include "random.h"
#include "check.h"
#include "kernel/conv/conv.h"
#include "base/parallel.h"

static double get_element(int dtype, const void *p, int64_t i)
{
  return dtype == TY_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void put_element(int dtype, void *p, int64_t i, double v)
{
  if (dtype == TY_F64)
    ((double *)p)[i] = v;
  else
    ((float *)p)[i] = (float)v;
}

static void *make_numbers(int dtype, int64_t n)
{
  void *p = mem_new((size_t)n * dtype_size(dtype));
  for (int64_t i = 0; i < n; i++) put_element(dtype, p, i, (double)(draw_below(201) - 100) * 0.01);
  return p;
}

static double find_difference(int dtype, const void *a, const void *b, int64_t n)
{
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    double e = fabs(get_element(dtype, a, i) - get_element(dtype, b, i)) /
        (1 + fabs(get_element(dtype, b, i)));
    if (!(e <= most)) most = e;
  }
  return most;
}

/* -- products ---------------------------------------------------------------------------------- */

struct product { int dtype; bool ta, tb; int64_t m, n, k, lda, ldb, ldc; double alpha, beta; };

/* Draws a product. Size 2 has several blocks of columns, runs of the sum and chunks of rows; B is
** packed once for each of them. */
static struct product draw_product(int size)
{
  static const int most[3][3] = { { 40, 80, 70 }, { 150, 200, 900 }, { 420, 560, 1300 } };
  struct product p = { (int)draw_below(2), draw_below(2), draw_below(2),
    1 + draw_below(most[size][0]), 1 + draw_below(most[size][1]), 1 + draw_below(most[size][2]), 0,
    0, 0, draw_below(2) ? 1 : 0.5, (double)draw_below(3) };
  if (size == 2 && !draw_below(4)) p.n += 1536, p.k = 1 + draw_below(40);
  if (size < 2 && !draw_below(5)) p.m = 1 + draw_below(4);
  if (size < 2 && !draw_below(5)) p.n = 1 + draw_below(4);
  if (size < 2 && !draw_below(5))
    p.ta = false, p.tb = true, p.m = 1 + draw_below(20),
    p.k = 1 + draw_below(1500); /* few long rows */
  p.lda = (p.ta ? p.m : p.k) + draw_below(3);
  p.ldb = (p.tb ? p.k : p.n) + draw_below(3);
  p.ldc = p.n + draw_below(3);
  return p;
}

static void compute_product(
    const struct product *p, const void *a, const void *b, const void *bias, int act, void *c)
{
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double s = 0;
      for (int64_t q = 0; q < p->k; q++)
        s += get_element(p->dtype, a, p->ta ? q * p->lda + i : i * p->lda + q) *
            get_element(p->dtype, b, p->tb ? j * p->ldb + q : q * p->ldb + j);
      s = p->alpha * s + p->beta * get_element(p->dtype, c, i * p->ldc + j) +
          (bias ? get_element(p->dtype, bias, j) : 0);
      put_element(p->dtype, c, i * p->ldc + j,
          act == ACT_RELU           ? fmax(s, 0)
              : act == ACT_SIGMOID  ? 1 / (1 + exp(-s))
              : act == ACT_TANH     ? tanh(s)
              : act == ACT_SOFTRELU ? log1p(exp(s))
                                    : s);
    }
}

static void test_product(struct product p, bool packed)
{
  void *a = make_numbers(p.dtype, (p.ta ? p.k : p.m) * p.lda),
       *b = make_numbers(p.dtype, (p.tb ? p.n : p.k) * p.ldb);
  void *c = make_numbers(p.dtype, p.m * p.ldc), *d = make_numbers(p.dtype, p.m * p.ldc),
       *bias = make_numbers(p.dtype, p.n);
  void *panels = mem_new(gemm_pack_bytes(p.dtype, p.n, p.k));
  struct gemm_epilogue e = { packed && draw_below(2) ? bias : NULL,
    packed ? (int)draw_below(5) : ACT_NONE, p.beta != 0 };
  if (packed) p.alpha = 1, p.beta = e.add;
  memcpy(d, c, (size_t)(p.m * p.ldc) * dtype_size(p.dtype));
  if (packed) {
    gemm_pack(p.dtype, p.tb, p.n, p.k, b, p.ldb, panels);
    RUN(gemm_packed(p.dtype, p.ta, p.m, p.n, p.k, a, p.lda, panels, c, p.ldc, &e));
  }
  else
    RUN(gemm_one(
        p.dtype, p.ta, p.tb, p.m, p.n, p.k, p.alpha, a, p.lda, b, p.ldb, p.beta, c, p.ldc));
  compute_product(&p, a, b, e.bias, e.act, d);
  double error = find_difference(p.dtype, c, d, p.m * p.ldc);
  CHECK(error < (p.dtype == TY_F64 ? 1e-12 : 3e-5), "%s %d%d %lld x %lld x %lld: %g",
      packed ? "packed" : "plain", p.ta, p.tb, (long long)p.m, (long long)p.n, (long long)p.k,
      error);
  mem_free(a), mem_free(b), mem_free(c), mem_free(d), mem_free(bias), mem_free(panels);
}

/* -- both gradients of a product --------------------------------------------------------------- */

struct whole { const char *p; int64_t n; size_t size; };

static void copy_part(const void *context, int64_t row, int64_t column, int64_t n, void *out)
{
  const struct whole *w = context;
  memcpy(out, w->p + (size_t)(row * w->n + column) * w->size, (size_t)n * w->size);
}

static void test_both(void)
{
  const int t = (int)draw_below(2);
  const bool large = !draw_below(8), wide = large && !draw_below(3);
  const int64_t m = 1 + draw_below(large ? 700 : 90),
                n = 1 + draw_below(wide ? 4000 : large ? 600 : 90),
                k = 1 + draw_below(large ? 400 : 70);
  void *g = make_numbers(t, m * n), *x = make_numbers(t, m * k), *w = make_numbers(t, n * k);
  void *tmp = mem_new(gemm_both_bytes(t, m, n, k));
  const struct whole whole = { g, n, dtype_size(t) };
  void *out[3] = { make_numbers(t, m * k), make_numbers(t, n * k), make_numbers(t, n) };
  void *want[3] = { make_numbers(t, m * k), make_numbers(t, n * k), make_numbers(t, n) };
  const int64_t count[3] = { m * k, n * k, n };
  const bool add[3] = { draw_below(2), draw_below(2), draw_below(2) },
             have[3] = { draw_below(5), draw_below(5), draw_below(3) };
  for (int i = 0; i < 3; i++) memcpy(want[i], out[i], (size_t)count[i] * dtype_size(t));
  gemm_both(&(struct gemm_both){ t, m, n, k, copy_part, &whole, x, w, have[0] ? out[0] : NULL,
      have[1] ? out[1] : NULL, have[2] ? out[2] : NULL, add[0], add[1], add[2], tmp });
  struct product dx = { t, false, false, m, k, n, n, k, k, 1, add[0] },
                 dw = { t, true, false, n, k, m, n, k, k, 1, add[1] };
  if (have[0]) compute_product(&dx, g, w, NULL, ACT_NONE, want[0]);
  if (have[1]) compute_product(&dw, g, x, NULL, ACT_NONE, want[1]);
  for (int64_t j = 0; have[2] && j < n; j++) {
    double s = add[2] ? get_element(t, want[2], j) : 0;
    for (int64_t i = 0; i < m; i++) s += get_element(t, g, i * n + j);
    put_element(t, want[2], j, s);
  }
  for (int i = 0; i < 3; i++) {
    double error = find_difference(t, out[i], want[i], count[i]);
    CHECK(error < (t == TY_F64 ? 1e-12 : 5e-5),
        "both %d%d%d: gradient %d of %lld x %lld x %lld: %g", have[0], have[1], have[2], i,
        (long long)m, (long long)n, (long long)k, error);
    mem_free(out[i]), mem_free(want[i]);
  }
  mem_free(g), mem_free(x), mem_free(w), mem_free(tmp);
}

/* -- convolutions ------------------------------------------------------------------------------ */

static struct window any_window(void)
{
  int axes = 1 + (int)draw_below(3);
  struct window w = { .dtype = (int)draw_below(2),
    .n = 1 + draw_below(3),
    .groups = draw_below(3) ? 1 : 1 + draw_below(6),
    .channels = draw_below(4) ? 1 + draw_below(20) : 1,
    .filters = 1 + draw_below(draw_below(4) ? 10 : 130) };
  for (int a = 0; a < 3; a++) {
    bool has = a >= 3 - axes;
    w.kernel[a] = has ? 1 + draw_below(axes == 3 ? 3 : 5) : 1;
    w.stride[a] = has ? 1 + draw_below(3) : 1;
    w.dilate[a] = has ? 1 + draw_below(2) : 1;
    w.pad[a] = has && !draw_below(3) ? draw_below(4) : 0;
    int64_t reach = (w.kernel[a] - 1) * w.dilate[a] + 1,
            size = 1 +
        draw_below(axes == 1     ? 300
                : axes == 2 ? 24
                            : 8);
    w.in[a] = has ? MAX(size, reach) : 1;
    w.out[a] = (w.in[a] + 2 * w.pad[a] - reach) / w.stride[a] + 1;
  }
  return w;
}

static void test_window(const struct window *w, bool add)
{
  const int t = w->dtype;
  const int64_t nx = w->n * w->groups * w->channels * window_in(w),
                nw = w->groups * w->filters * window_depth(w);
  const int64_t ny = w->n * w->groups * w->filters * window_out(w);
  void *x = make_numbers(t, nx), *y = make_numbers(t, ny),
       *want = make_numbers(t, MAX(MAX(nx, ny), nw)), *weight = make_numbers(t, nw);
  void *bias = make_numbers(t, w->groups * w->filters), *dx = make_numbers(t, nx),
       *dw = make_numbers(t, nw);
  size_t room = MAX(
      MAX(convolve_forward_scratch(w), convolve_data_scratch(w)), convolve_weight_scratch(w));
  room = MAX(room, depth_scratch(w));
  void *tmp = mem_new(room);
  struct operand array = { .p = weight, .d = { .dtype = t } };
  struct gemm_kept kept[2] = { { 0 }, { 0 } };
  const double limit = t == TY_F64 ? 1e-11 : 5e-4;
  const size_t size = dtype_size(t);
  const struct convolve_end end = { .bias = bias };
  RUN(convolve_forward(w, x, &array, &end, y, &kept[0], tmp));
  convolve_reference(w, x, weight, bias, want, false);
  CHECK(find_difference(t, y, want, ny) < limit, "forward");
  memcpy(want, dx, (size_t)nx * size);
  RUN(convolve_data(w, y, &array, dx, add, NULL, ACT_NONE, &kept[1], tmp));
  convolve_reference_data(w, y, weight, want, add);
  CHECK(find_difference(t, dx, want, nx) < limit, "gradient of the data");
  memcpy(want, dw, (size_t)nw * size);
  RUN(convolve_weight(w, x, y, dw, add, tmp));
  convolve_reference_weight(w, x, y, want, add);
  CHECK(find_difference(t, dw, want, nw) < limit, "gradient of the weight");
  if (depthwise_profitable(w)) {
    depth_forward(w, x, weight, &end, y, tmp);
    convolve_reference(w, x, weight, bias, want, false);
    CHECK(find_difference(t, y, want, ny) < limit, "depthwise");
  }
  gemm_kept_done(&kept[0]), gemm_kept_done(&kept[1]);
  mem_free(x), mem_free(y), mem_free(want), mem_free(weight), mem_free(bias), mem_free(dx),
      mem_free(dw), mem_free(tmp);
}

/* Checks rows that are added back to the image: more taps in a row than masks are kept for, several
** vectors, several blocks of positions. */
static void test_folding(void)
{
  static const int64_t size[][5] = { { 2, 61, 2, 40, 0 }, { 3, 50, 1, 33, 0 }, { 12, 12, 5, 5, 0 },
    { 28, 28, 5, 5, 0 }, { 20, 17, 3, 2, 0 }, { 4, 4, 4, 4, 0 }, { 7, 20, 5, 5, 2 },
    { 2, 40, 1, 37, 9 }, { 6, 3, 3, 7, 4 }, { 1, 1, 3, 3, 1 } };
  for (int i = 0; i < 2 * COUNT(size);
       i++) { /* height, width: of the image, of the window; padding across, half of it down */
    const int64_t *s = size[i / 2], down = s[4] / 2;
    struct window w = { .dtype = i % 2 ? TY_F64 : TY_F32,
      .n = 2,
      .groups = 1,
      .channels = 3,
      .filters = 5,
      .in = { 1, s[0], s[1] },
      .kernel = { 1, MIN(s[2], s[0] + 2 * down), s[3] },
      .stride = { 1, 1, 1 },
      .dilate = { 1, 1, 1 },
      .pad = { 0, down, s[4] } };
    for (int a = 0; a < 3; a++) w.out[a] = w.in[a] + 2 * w.pad[a] - w.kernel[a] + 1;
    test_window(&w, false);
    test_window(&w, true);
  }
}

int main(void)
{
  test_folding();
  for (int i = 0; i < count_trials(600); i++) test_product(draw_product(!draw_below(10)), i & 1);
  for (int i = 0; i < count_trials(120); i++) test_both();
  parallel_queue(true); /* by all cores */
  for (int i = 0; i < count_trials(24); i++) test_product(draw_product(2), i % 4 == 3);
  for (int i = 0; i < count_trials(60); i++) test_both();
  parallel_queue(false);
  for (int i = 0; i < count_trials(150); i++) {
    struct window w = any_window();
    double work = (double)w.n * (double)w.groups * (double)(w.filters * window_out(&w)) *
        (double)window_depth(&w);
    if (work < 3e6) test_window(&w, draw_below(2));
  }
  return check_end();
}
