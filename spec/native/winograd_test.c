/* winograd_test.c - Winograd's tiles of random sizes against plain loops in float64, element by
** element: within 1e-6 of the mean sum of absolute products, and where a padding of 2 leaves no
** corner with few products, 1.5e-6 of the element's own. TYCHO_CPU picks the kernels. */
#include "random.h"
#include "check.h"
#include "base/parallel.h"
#include "kernel/blocked.h"
#include "kernel/conv/winograd.h"

/* Returns numbers, or their absolute values, in float64. Free it with mem_free. */
static double *widen_numbers(const float *p, int64_t n, bool absolute)
{
  double *q = mem_new((size_t)n * sizeof *q);
  for (int64_t i = 0; i < n; i++) q[i] = absolute ? fabs(p[i]) : p[i];
  return q;
}

/* Returns (n, c, space) as (n, c / b, space, b), or back. Free it with mem_free. */
static float *move_channels(const float *p, int64_t n, int64_t c, int64_t space, int b, bool back)
{
  float *q = mem_new((size_t)(n * c * space) * sizeof *q);
  for (int64_t i = 0; i < n * c; i++)
    for (int64_t s = 0; s < space; s++) {
      int64_t plain = i * space + s, blocked = (i / b * space + s) * b + i % b;
      if (back)
        q[plain] = p[blocked];
      else
        q[blocked] = p[plain];
    }
  return q;
}

enum { FORWARD, DATA, WEIGHT };
static const char *const names[] = { "forward", "data", "weight" };

struct trial {
  struct window w;
  float *x, *weight, *y, *bias, *scale;
  int act;
  bool add, keeps;
  uint64_t version;
};

static int64_t size_of(const struct window *w, int which)
{
  return which == WEIGHT ? w->filters * w->channels * 9
      : which == FORWARD ? w->n * w->filters * window_out(w)
                         : w->n * w->channels * window_in(w);
}

/* Returns the result by definition; absolute: sums of absolute values. Free it with mem_free. */
static double *compute_defined(const struct trial *t, int which, bool absolute)
{
  struct window w = t->w;
  w.dtype = TY_F64;
  const float *old = which == FORWARD ? t->y : which == DATA ? t->x : t->weight;
  double *out = widen_numbers(old, size_of(&w, which), absolute),
         *x = widen_numbers(t->x, size_of(&w, DATA), absolute);
  double *y = widen_numbers(t->y, size_of(&w, FORWARD), absolute),
         *weight = widen_numbers(t->weight, size_of(&w, WEIGHT), absolute);
  double *bias = widen_numbers(t->bias, w.filters, absolute),
         *scale = widen_numbers(t->scale, w.filters, absolute);
  if (which == FORWARD) {
    double *sums = mem_new(sizeof *sums * (size_t)size_of(&w, FORWARD));
    convolve_reference(&w, x, weight, NULL, sums, false);
    for (int64_t i = 0; i < size_of(&w, FORWARD); i++) {
      int64_t f = i / window_out(&w) % w.filters;
      out[i] = scale[f] * sums[i] + bias[f] + (t->add ? out[i] : 0);
    }
    mem_free(sums);
  }
  if (which == DATA) convolve_reference_data(&w, y, weight, out, t->add);
  if (which == WEIGHT) convolve_reference_weight(&w, x, y, out, t->add);
  if (which == FORWARD && !absolute)
    for (int64_t i = 0; i < size_of(&w, FORWARD); i++)
      out[i] = t->act == ACT_RELU ? fmax(out[i], 0) : t->act == ACT_TANH ? tanh(out[i]) : out[i];
  mem_free(x), mem_free(y), mem_free(weight), mem_free(bias), mem_free(scale);
  return out;
}

static float *compute_tiled(const struct trial *t, int which)
{
  const struct window *w = &t->w;
  const int b = cpu_channel_block();
  const int64_t in = window_in(w), space = window_out(w);
  size_t room = which == FORWARD ? winograd_forward_scratch(w, t->keeps)
      : which == DATA            ? winograd_data_scratch(w)
                                 : winograd_weight_scratch(w);
  float *x = move_channels(t->x, w->n, w->channels, in, b, false),
        *y = move_channels(t->y, w->n, w->filters, space, b, false), *out = NULL;
  void *tmp = mem_new(room);
  struct gemm_kept kept = { 0 };
  struct operand weight = { .p = t->weight, .version = &t->version };
  struct convolve_end end = { .bias = t->bias, .scale = t->scale, .act = t->act, .add = t->add };
  if (which == FORWARD) RUN(winograd_forward(w, x, &weight, &end, y, t->keeps ? &kept : NULL, tmp));
  if (which == DATA) winograd_data(w, y, t->weight, x, t->add, tmp);
  if (which == WEIGHT) winograd_weight(w, x, y, t->weight, t->add, tmp);
  if (which == FORWARD) out = move_channels(y, w->n, w->filters, space, b, true);
  if (which == DATA) out = move_channels(x, w->n, w->channels, in, b, true);
  if (which == WEIGHT) out = move_channels(t->weight, 1, b, size_of(w, WEIGHT) / b, 1, false);
  gemm_kept_done(&kept);
  mem_free(x), mem_free(y), mem_free(tmp);
  return out;
}

static void compare_results(const struct trial *t, int which)
{
  const struct window *w = &t->w;
  const int64_t n = size_of(w, which);
  double *want = compute_defined(t, which, false), *bound = compute_defined(t, which, true),
         mean = 0, worst = 0, own = 0;
  float *got = compute_tiled(t, which);
  for (int64_t i = 0; i < n; i++) mean += bound[i] / (double)n;
  for (int64_t i = 0; i < n; i++) {
    double e = fabs((double)got[i] - want[i]);
    if (!(e / mean <= worst)) worst = e / mean;
    if (!(e / bound[i] <= own)) own = e / bound[i];
  }
  bool few = w->n * window_out(w) < 64; /* elements of a single product */
  bool corners = which == FORWARD ? MAX(w->pad[1], w->pad[2]) > 1
                                  : which == DATA && MIN(w->pad[1], w->pad[2]) < 1;
  CHECK(worst <= (few ? 2e-6 : 1e-6) && (few || corners || own <= 1.5e-6),
      "%s of %d x %d x %d x %d, %d filters, pad %d %d, dilation %d, add %d, act %d: %g, %g",
      names[which], (int)w->n, (int)w->channels, (int)w->in[1], (int)w->in[2], (int)w->filters,
      (int)w->pad[1], (int)w->pad[2], (int)w->dilate[1], t->add, t->act, worst, own);
  mem_free(want), mem_free(bound), mem_free(got);
}

static void try_window(struct window w, int act, bool bias, bool add)
{
  w.out[0] = w.in[0] = 1;
  for (int a = 1; a < 3; a++) w.out[a] = w.in[a] + 2 * w.pad[a] - 2 * w.dilate[a];
  const bool dilated = w.dilate[1] > 1;
  CHECK(winograd_able(&w, false), "refused");
  CHECK(winograd_able(&w, true) == !dilated, "gradients of dilation %d", (int)w.dilate[1]);
  for (int which = FORWARD; which <= (dilated ? FORWARD : WEIGHT); which++) {
    struct trial t = { w, make_floats(size_of(&w, DATA)), make_floats(size_of(&w, WEIGHT)),
      make_floats(size_of(&w, FORWARD)), make_floats(w.filters), make_floats(w.filters), act,
      add, w.n % 2 == 0, 1 };
    for (int64_t i = 0; !bias && i < w.filters; i++) t.bias[i] = 0, t.scale[i] = 1;
    compare_results(&t, which);
    mem_free(t.x), mem_free(t.weight), mem_free(t.y), mem_free(t.bias), mem_free(t.scale);
  }
}

/* Tries a window whose rows are `apart` from each other. */
static void try_dilated(struct window w, int64_t apart, int act, bool bias, bool add)
{
  w.in[1] += 2 * (apart - 1);
  w.dilate[1] = apart;
  try_window(w, act, bias, add);
}

static struct window make_window(
    int64_t n, int64_t channels, int64_t filters, int64_t h, int64_t w, int64_t pad)
{
  const int b = cpu_channel_block();
  return (struct window){ .n = n,
    .groups = 1,
    .channels = channels * b,
    .filters = filters * b,
    .in = { 1, h, w },
    .kernel = { 1, 3, 3 },
    .stride = { 1, 1, 1 },
    .dilate = { 1, 1, 1 },
    .pad = { 0, pad, pad },
    .dtype = TY_F32 };
}

int main(void)
{
  static const int acts[] = { ACT_NONE, ACT_RELU, ACT_TANH };
  parallel_queue(true);
  if (!cpu_channel_block()) return check_end();
  try_window(make_window(1, 1, 1, 7, 7, 1), ACT_RELU, true, false);
  try_window(make_window(1, 1, 1, 1, 1, 1), ACT_NONE, true, true);
  try_window(make_window(1, 1, 2, 5, 3, 1), ACT_NONE, false, false);
  try_window(make_window(1, 3, 1, 3, 3, 0), ACT_RELU, true, true);
  try_window(make_window(2, 2, 17, 8, 8, 1), ACT_RELU, true, false);
  try_window(make_window(2, 17, 9, 7, 7, 1), ACT_RELU, true, true);
  try_window(make_window(20, 2, 2, 13, 15, 1), ACT_RELU, true, true);
  try_window(make_window(2, 3, 2, 6, 80, 1), ACT_TANH, true, false);
  for (int i = 0; i < count_trials(24); i++) {
    struct window w = make_window(1 + draw_below(5), 1 + draw_below(5), 1 + draw_below(4),
        3 + draw_below(15), 3 + draw_below(15), 0);
    w.pad[1] = draw_below(3), w.pad[2] = draw_below(3);
    const int act = acts[draw_below(3)];
    const bool bias = draw_below(2), add = draw_below(2);
    try_window(w, act, bias, add);
    try_dilated(w, 2 + draw_below(3), act, bias, add);
  }
  try_dilated(make_window(1, 1, 1, 3, 3, 0), 2, ACT_NONE, true, false);
  try_dilated(make_window(2, 2, 3, 3, 9, 1), 9, ACT_TANH, true, true); /* more phases than rows */
  try_dilated(make_window(1, 2, 4, 116, 64, 1), 2, ACT_RELU, true, false);
  const int64_t many = 304 /
      cpu_channel_block(); /* a weight of over 12 MiB in tiles is packed part by part */
  try_window(make_window(1, many, many + 2, 5, 6, 1), ACT_RELU, true, true);
  try_window(make_window(1, 2, 17, 14, 14, 1), ACT_RELU, true,
      true); /* 15 and 16 tiles */
  try_window(make_window(1, 33, 3, 12, 20, 1), ACT_NONE, true, false);
  try_window(make_window(1, 3, 2, 5, 9, 1), ACT_TANH, true, true);
  return check_end();
}
