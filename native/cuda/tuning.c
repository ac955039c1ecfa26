/* tuning.c - _image_random_brightness and its like, _image_adjust_lighting (kernels/tune.cu). */
#include "cuda/row.h"
#include "image/pixel.h"
#include "op/registry.h"

enum { MOST_STEPS = 4 };
/* Device memory: the steps that are drawn, and the mean grey for a step of contrast. */
struct tuning_scratch { struct tuning plan[MOST_STEPS]; float mean; };

static size_t tuning_bytes(const struct call *c) { return sizeof(struct tuning_scratch); }

#define WORDS "T=$i0 TEAM=256"

/* Runs the steps of the plan, one after the other. contrast: whether any may be of kind
** CONTRAST. */
static int run_plan(const struct call *c, int steps, bool contrast)
{
  const int64_t *dim = c->in[0].d.dim;
  struct tuning_scratch *s = c->tmp;
  int64_t pixels = dim[0] * dim[1], channels = dim[2];
  void *mean = &s->mean;
  if (!c->out[0].p) return TY_OK;
  for (int i = 0; i < steps; i++) {
    void *step = &s->plan[i], **from = i ? &c->out[0].p : &c->in[0].p;
    if (contrast)
      TRY(cuda_start(c, FAMILY_tune, "find_mean", WORDS, CUDA_BLOCK,
          (void *[]){ &mean, &step, from, &pixels, &channels }));
    TRY(cuda_start(c, FAMILY_tune, "tune", WORDS, pixels,
        (void *[]){ &c->out[0].p, from, &step, &mean, &pixels, &channels }));
  }
  return TY_OK;
}

/* Changes the image by a random factor; the kind of tuning is the row's field `what`. */
static int random_factor(struct call *c)
{
  struct cuda_draw_key key = cuda_draw_key(c);
  double low = cuda_number(c, "min_factor", 1), high = cuda_number(c, "max_factor", 1);
  int32_t kind = cuda_what(c);
  TRY(cuda_start(c, FAMILY_tune, "plan_factor", WORDS, 1,
      (void *[]){ &c->tmp, &kind, &low, &high, &key }));
  return run_plan(c, 1, kind == CONTRAST);
}

/* Same as in kernels/tune.cu. */
struct jitter_args { double part[4]; };
struct light_args { float alpha[3], deviation; int32_t given; };

static int random_jitter(struct call *c)
{
  struct cuda_draw_key key = cuda_draw_key(c);
  struct jitter_args s = { { cuda_number(c, "brightness", 0), cuda_number(c, "contrast", 0),
    cuda_number(c, "saturation", 0), cuda_number(c, "hue", 0) } };
  TRY(cuda_start(c, FAMILY_tune, "plan_jitter", WORDS, 1, (void *[]){ &c->tmp, &s, &key }));
  return run_plan(c, MOST_STEPS, true);
}

static int add_light(struct call *c)
{
  struct cuda_draw_key key = cuda_draw_key(c);
  const struct reals *alpha = op_reals(c->op, c->param, "alpha");
  struct light_args s = { { 0 }, (float)cuda_number(c, "alpha_std", 0), alpha != NULL };
  for (int i = 0; alpha && i < 3; i++) s.alpha[i] = (float)alpha->d[i];
  TRY(cuda_start(c, FAMILY_tune, "plan_light", WORDS, 1, (void *[]){ &c->tmp, &s, &key }));
  return run_plan(c, 1, false);
}

#define PIXELS(table, run) \
  static const struct kernel table[] = { \
    { "pixels", run, T(TY_U8) | T(TY_F32), .scratch = tuning_bytes, .flags = K_DRAWS_ON_DEVICE }, \
    { 0 } \
  };
PIXELS(factors, random_factor)
PIXELS(jitters, random_jitter)
PIXELS(lights, add_light)

const struct op_kernels cuda_tuning[] = {
  { "_image_random_brightness", factors, NULL, BRIGHTNESS },
  { "_image_random_contrast", factors, NULL, CONTRAST },
  { "_image_random_saturation", factors, NULL, SATURATION_BLUE },
  { "_image_random_hue", factors, NULL, HUE },
  { "_image_random_color_jitter", jitters, NULL },
  { "_image_random_lighting", lights, NULL },
  { "_image_adjust_lighting", lights, NULL },
  { 0 }
};
