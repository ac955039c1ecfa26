/* conv_1x1_test.c - 1 x 1 convolutions over channels in blocks of random sizes against plain
** loops in float64, element by element. What lies before and behind the result stays as it was. */
#include "random.h"
#include "check.h"
#include "kernel/conv/conv.h"
#include "base/parallel.h"

/* element (image, channel, position) of channels in blocks of b */
static int64_t at(int64_t image, int64_t c, int64_t s, int64_t channels, int64_t space, int b)
{
  return ((image * channels + c / b * b) * space) + s * b + c % b;
}

struct trial { struct window w; const float *x, *weight, *bias, *scale, *old; int act; bool add; };

/* One element, and the sum of its absolute products. */
static double defined(const struct trial *t, int64_t image, int64_t f, int64_t s, double *size)
{
  const struct window *w = &t->w;
  const int b = channel_block(TY_CPU);
  const int64_t space = window_out(w);
  double sum = 0;
  *size = 1;
  for (int64_t c = 0; c < w->channels; c++) {
    double product = (double)t->x[at(image, c, s, w->channels, space, b)] *
        (double)t->weight[f * w->channels + c];
    sum += product, *size += fabs(product);
  }
  double y = (t->scale ? t->scale[f] : 1) * sum + (t->bias ? t->bias[f] : 0);
  if (t->add) y += t->old[at(image, f, s, w->filters, space, b)];
  return t->act == ACT_RELU ? fmax(y, 0) : t->act == ACT_TANH ? tanh(y) : y;
}

enum { GAP = 64 };                                    /* elements on both sides of the result */

static void try(int64_t n, int64_t channels, int64_t filters, int64_t space, int act, bool ends,
    bool add, bool keeps)
{
  const int b = channel_block(TY_CPU);
  const struct window w = { .n = n,
    .groups = 1,
    .channels = channels * b,
    .filters = filters * b,
    .in = { 1, 1, space },
    .out = { 1, 1, space },
    .kernel = { 1, 1, 1 },
    .stride = { 1, 1, 1 },
    .dilate = { 1, 1, 1 },
    .dtype = TY_F32 };
  const int64_t count = n * w.filters * space;
  float *x = numbers_of(n * w.channels * space), *weight = numbers_of(w.filters * w.channels),
        *bias = numbers_of(w.filters), *scale = numbers_of(w.filters),
        *y = numbers_of(count + 2 * GAP), *old = numbers_of(count);
  void *tmp = mem_new(point_scratch(&w, keeps) + 1);
  uint64_t version = 1;
  struct gemm_kept kept = { 0 };
  struct operand from = { .p = weight, .version = &version };
  struct convolve_end end = {
    .bias = ends ? bias : NULL, .scale = ends ? scale : NULL, .act = act, .add = add
  };
  struct trial t = { w, x, weight, end.bias, end.scale, old, act, add };
  float *sides = mem_new((size_t)(count + 2 * GAP) * sizeof *sides);
  memcpy(sides, y, (size_t)(count + 2 * GAP) * sizeof *y);
  double worst = 0;
  for (int run = 0; run < 2; run++) { /* the second one finds the packed weight, if it is kept */
    memcpy(y + GAP, old, (size_t)count * sizeof *y);
    RUN(point_forward(&w, x, &from, &end, y + GAP, keeps ? &kept : NULL, tmp));
    for (int64_t i = 0; i < n; i++)
      for (int64_t f = 0; f < w.filters; f++)
        for (int64_t s = 0; s < space; s++) {
          double size, want = defined(&t, i, f, s, &size),
                       e = fabs((double)y[GAP + at(i, f, s, w.filters, space, b)] - want);
          if (!(e / size <= worst)) worst = e / size;
        }
  }
  CHECK(worst <= 1e-6, "%d x %d x %d, %d filters, act %d, ends %d, add %d, keeps %d: %g", (int)n,
      (int)w.channels, (int)space, (int)w.filters, act, ends, add, keeps, worst);
  CHECK(!memcmp(y, sides, GAP * sizeof *y) &&
          !memcmp(y + GAP + count, sides + GAP + count, GAP * sizeof *y),
      "wrote outside");
  gemm_kept_done(&kept);
  mem_free(x), mem_free(weight), mem_free(bias), mem_free(scale), mem_free(y), mem_free(old),
      mem_free(tmp), mem_free(sides);
}

int main(void)
{
  static const int acts[] = { ACT_NONE, ACT_RELU, ACT_TANH };
  parallel_queue(true);
  if (!channel_block(TY_CPU)) return check_end();
  try(1, 1, 1, 1, ACT_NONE, false, false, true);
  try(1, 1, 2, 1, ACT_RELU, true, true, false);
  try(2, 3, 3, 14, ACT_TANH, true, false, true);
  try(1, 8, 33, 49, ACT_RELU, true, true, true); /* the weight is the larger one */
  try(2, 20, 16, 7, ACT_NONE, true, true, false);
  try(3, 16, 5, 196, ACT_RELU, true, false, true); /* the images are */
  for (int i = 0; i < 40; i++)
    try(1 + below(4), 1 + below(6), 1 + below(9), 1 + below(90), acts[below(3)], below(2), below(2),
        below(2));
  return check_end();
}
