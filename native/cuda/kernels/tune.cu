// tune.cu - changes colours of one image (height, width, channels) by the rules of image/pixel.h.
// Method: the first thread draws a plan of one or four steps into scratch; each step has one thread
// per pixel. Before a step of contrast, one block sums up the grey of the image. Bound: bytes; for
// contrast, that block.
#ifndef T
#include "prelude.cuh"
#include "base/philox.h"
#include "image/pixel.h"
#define T u8          // pixels
#define TEAM 256
#include "team.cuh"
#include "draw.cuh"
#endif

FN bool leads_all() { return !blockIdx.x && !threadIdx.x; }

extern "C" __global__ void plan_factor(struct tuning *plan, i32 kind, double low, double high,
    const struct draw_key __grid_constant__ key)
{
  if (!leads_all()) return;
  plan->kind = kind;
  plan->alpha = random_between(draw(key, 0).w[0], low, high);
}

// Returns random word i of a call, the same as operators/vision/image_color.c does.
FN uint32_t draw_word(const draw_key &key, int i) { return draw(key, (i64)i << 40).w[0]; }

struct jitter_args { double part[4]; };
extern "C" __global__ void plan_jitter(struct tuning *plan,
    const struct jitter_args __grid_constant__ s, const struct draw_key __grid_constant__ key)
{
  uint32_t word[8];
  if (!leads_all()) return;
  for (int i = 0; i < 8; i++) word[i] = draw_word(key, i);
  jitter_of(s.part, word, plan);
}

// given: whether alpha is given; else it is drawn from a normal distribution of this deviation.
struct light_args { float alpha[3], deviation; i32 given; };
extern "C" __global__ void plan_light(struct tuning *plan,
    const struct light_args __grid_constant__ s, const struct draw_key __grid_constant__ key)
{
  float alpha[3];
  if (!leads_all()) return;
  for (int i = 0; i < 3; i++) {
    struct philox words = { { draw_word(key, 2 * i), draw_word(key, 2 * i + 1) } };
    alpha[i] = s.given ? s.alpha[i] : s.deviation * random_normal(words);
  }
  plan->kind = LIGHTING;
  plan->alpha = 0;
  lighting_of(alpha, plan->rgb);
}

struct pixel { float v[4]; };
FN pixel load(const T *x, i64 i, i64 channels)
{
  pixel p;
  for (i64 k = 0; k < channels; k++) p.v[k] = get<float>(x[i * channels + k]);
  return p;
}

extern "C" __global__ void find_mean(
    float *mean, const struct tuning *step, const T *x, i64 pixels, i64 channels)
{
  double sum = 0;
  if (step->kind != CONTRAST) return;
  EACH_OF_TEAM(i, 0, pixels) sum += grey_of(load(x, i, channels).v, channels);
  sum = team_sum(sum);
  if (LEADS) *mean = (float)(sum / (double)pixels);
}

// Applies a step to each pixel. y may be x.
extern "C" __global__ void tune(T *y, const T *x, const struct tuning *step, const float *mean,
    i64 pixels, i64 channels)
{
  EACH(i, pixels)
  {
    pixel p = load(x, i, channels);
    tune_pixel(step, step->kind == CONTRAST ? *mean : 0, p.v, channels);
    for (i64 k = 0; k < channels; k++)
      y[i * channels + k] = sizeof(T) == 1 ? (T)byte_of(p.v[k]) : (T)p.v[k];
  }
}
