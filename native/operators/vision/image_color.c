/* image_color.c - random changes of colour and random flips: _image_random_*,
** _image_adjust_lighting.
**
** An argument is one image (height, width, channels) with 1 or 3 channels. Results in uint8
** saturate and lose their fraction. Random numbers depend only on (seed, the draw's counter, node).
** Saturation blends with 0.114 times the blue channel as the grey, as the reference does: networks
** trained with these operators expect such images. No gradients.
*/
#include "kernel/strided_copy.h"
#include "image/image.h"
#include "base/philox.h"
#include "op/op.h"

static struct philox random_words(const struct call *c, uint64_t i)
{
  return philox(c->run->rng.seed, c->run->rng.counter, c->node, i);
}

static int color_shape(struct infer *s)
{
  TRY(shape_all(s));
  const ty_desc *in = &s->in[0];
  if (in->ndim && in->ndim != 3)
    return infer_fail(s, TY_ESHAPE, in,
        "expected an image (height, width, channels), got %d dimensions", in->ndim);
  if (in->ndim && in->dim[2] && in->dim[2] != 1 && in->dim[2] != 3)
    return infer_fail(
        s, TY_ESHAPE, in, "expected 1 or 3 channels, got %lld", (long long)in->dim[2]);
  return TY_OK;
}

static struct pixels make_pixels(const struct operand *a)
{
  return (struct pixels){ a->p, a->d.dtype, a->d.dim[0], a->d.dim[1], a->d.dim[2] };
}

static int tune_image(struct call *c, struct tuning t)
{
  struct pixels to = make_pixels(&c->out[0]), from = make_pixels(&c->in[0]);
  tune_pixels(&to, &from, t);
  return TY_OK;
}

/* -- one factor -------------------------------------------------------------------------------- */

struct factor { double min, max; };
static const struct param factor_params[] = {
  { "min_factor", P_FLOAT, offsetof(struct factor, min), NULL, "the smallest factor", NULL, "[0,]" },
  { "max_factor", P_FLOAT, offsetof(struct factor, max), NULL, "the largest factor", NULL, "[0,]" },
  { 0 }
};

static int factor_check(void *param)
{
  const struct factor *p = param;
  NEED(p->min <= p->max, TY_EVALUE, "min_factor: %g is above max_factor, %g", p->min, p->max);
  return TY_OK;
}

/* Returns random word i of a call: first words of elements 2^40 apart, as in io/workspace.c. */
static uint32_t random_word(struct call *c, int i)
{
  return random_words(c, (uint64_t)i << 40).w[0];
}

/* Applies one kind of tuning with a random factor between min_factor and max_factor. */
static int tune_randomly(struct call *c, int kind)
{
  const struct factor *p = c->param;
  float factor = random_between(random_words(c, 0).w[0], p->min, p->max);
  return tune_image(c, (struct tuning){ .kind = kind, .alpha = factor });
}
static int brightness_run(struct call *c) { return tune_randomly(c, BRIGHTNESS); }
static int contrast_run(struct call *c)   { return tune_randomly(c, CONTRAST); }
static int saturation_run(struct call *c) { return tune_randomly(c, SATURATION_BLUE); }
static int hue_run(struct call *c)        { return tune_randomly(c, HUE); }

/* -- all of them in random order --------------------------------------------------------------- */

struct jitter { double part[4]; };
static const struct param jitter_params[] = {
  { "brightness", P_FLOAT, offsetof(struct jitter, part[0]), NULL, "factors 1 - brightness to 1 + brightness", NULL, "[0,]" },
  { "contrast",   P_FLOAT, offsetof(struct jitter, part[1]), NULL, "factors 1 - contrast to 1 + contrast", NULL, "[0,]" },
  { "saturation", P_FLOAT, offsetof(struct jitter, part[2]), NULL, "factors 1 - saturation to 1 + saturation", NULL, "[0,]" },
  { "hue",        P_FLOAT, offsetof(struct jitter, part[3]), NULL, "turns of the hue, -hue to hue", NULL, "[0,]" },
  { 0 }
};

static int jitter_run(struct call *c)
{
  struct pixels to = make_pixels(&c->out[0]), from = make_pixels(&c->in[0]);
  struct tuning plan[4] = { 0 };
  uint32_t word[8];
  for (int i = 0; i < 8; i++) word[i] = random_word(c, i);
  jitter_of(((const struct jitter *)c->param)->part, word, plan);
  memmove(to.p, from.p, desc_bytes(&c->in[0].d));
  for (int i = 0; i < 4; i++)
    if (plan[i].kind != TUNINGS) tune_pixels(&to, &to, plan[i]);
  return TY_OK;
}

/* -- lighting: along the principal components of colours --------------------------------------- */

struct light { struct reals alpha; };
static const struct param light_params[] = {
  { "alpha", P_FLOATS, offsetof(struct light, alpha), NULL, "how much of each of the three principal components is added" },
  { 0 }
};
struct random_light { double alpha_std; };
static const struct param random_light_params[] = {
  { "alpha_std", P_FLOAT, offsetof(struct random_light, alpha_std), "0.05", "deviation of the three normal numbers", NULL, "[0,]" },
  { 0 }
};

static int light_check(void *param)
{
  const struct light *p = param;
  NEED(p->alpha.n == 3, TY_EVALUE, "parameter alpha: expected 3 numbers, got %lld",
      (long long)p->alpha.n);
  return TY_OK;
}

static int add_light(struct call *c, const float alpha[3])
{
  struct tuning t = { .kind = LIGHTING };
  lighting_of(alpha, t.rgb);
  return tune_image(c, t);
}

static int light_run(struct call *c)
{
  const struct light *p = c->param;
  return add_light(
      c, (float[3]){ (float)p->alpha.d[0], (float)p->alpha.d[1], (float)p->alpha.d[2] });
}

static int random_light(struct call *c)
{
  float alpha[3], deviation = (float)((const struct random_light *)c->param)->alpha_std;
  for (int i = 0; i < 3; i++)
    alpha[i] = deviation
        * random_normal((struct philox){ { random_word(c, 2 * i), random_word(c, 2 * i + 1) } });
  return add_light(c, alpha);
}

/* -- mirror images at random ------------------------------------------------------------------ */

static int flip_shape(struct infer *s)
{
  TRY(shape_all(s));
  const ty_desc *in = &s->in[0];
  if (!in->ndim || in->ndim == 3) return TY_OK;
  return infer_fail(
      s, TY_ESHAPE, in, "expected an image (height, width, channels), got %d dimensions", in->ndim);
}

/* Copies the image, or with probability 1/2 its mirror image along an axis. */
static int flip_randomly(struct call *c, int axis)
{
  const int64_t *n = c->in[0].d.dim;
  int64_t stride[3] = { n[1] * n[2], n[2], 1 };
  size_t size = dtype_size(c->in[0].d.dtype);
  bool flipped = random_flip(random_words(c, 0).w[0]);
  struct move m = { 0 };
  for (int i = 0; i < 3; i++)
    move_axis(&m, n[i], stride[i], flipped && i == axis ? -stride[i] : stride[i]);
  return move_run(c->device, &m, c->out[0].p,
      elements_at(c->in[0].p, flipped ? (n[axis] - 1) * stride[axis] : 0, size), size);
}
static int flip_left_right(struct call *c) { return flip_randomly(c, 1); }
static int flip_top_bottom(struct call *c) { return flip_randomly(c, 0); }

/* -- the operators ----------------------------------------------------------------------------- */

#define PIXEL_KERNEL(table, function) \
  static const struct kernel table[] = { { .name = "pixels", .run = function, \
                                           .types = T(TY_U8) | T(TY_F32) }, { 0 } };
PIXEL_KERNEL(brightness_cpu, brightness_run)
PIXEL_KERNEL(contrast_cpu, contrast_run)
PIXEL_KERNEL(saturation_cpu, saturation_run)
PIXEL_KERNEL(hue_cpu, hue_run)
PIXEL_KERNEL(jitter_cpu, jitter_run)
PIXEL_KERNEL(light_cpu, light_run)
PIXEL_KERNEL(random_light_cpu, random_light)
MOVE_KERNEL(left_right_cpu, flip_left_right)
MOVE_KERNEL(top_bottom_cpu, flip_top_bottom)

#define NAMES(n) .name = "_image_" n, .alias = "_npx__image_" n, .in = "data"
#define FACTOR(kernels) \
  .param = factor_params, .param_size = sizeof(struct factor), .check = factor_check, \
  .shape = color_shape, .cpu = kernels, .flags = OP_RANDOM
const struct op op_image_color[] = {
  { NAMES("random_brightness"), FACTOR(brightness_cpu), .doc = "An image times a random factor." },
  { NAMES("random_contrast"), FACTOR(contrast_cpu), .doc = "An image blended with its mean grey by a random factor." },
  { NAMES("random_saturation"), FACTOR(saturation_cpu), .doc = "An image blended with grey by a random factor." },
  { NAMES("random_hue"), FACTOR(hue_cpu), .doc = "An image whose hue is turned by a random part of the circle." },
  { NAMES("random_color_jitter"), .doc = "Random brightness, contrast, saturation and hue, in random order.",
    .param = jitter_params, .param_size = sizeof(struct jitter), .shape = color_shape, .cpu = jitter_cpu, .flags = OP_RANDOM },
  { NAMES("adjust_lighting"), .doc = "Adds the principal components of colours, as much of each as alpha says.",
    .param = light_params, .param_size = sizeof(struct light), .check = light_check, .shape = color_shape, .cpu = light_cpu },
  { NAMES("random_lighting"), .doc = "Adds normal numbers times the principal components of colours.",
    .param = random_light_params, .param_size = sizeof(struct random_light), .shape = color_shape, .cpu = random_light_cpu,
    .flags = OP_RANDOM },
  { NAMES("random_flip_left_right"), .doc = "An image or, every second time, its mirror image.",
    .shape = flip_shape, .cpu = left_right_cpu, .flags = OP_RANDOM },
  { NAMES("random_flip_top_bottom"), .doc = "An image or, every second time, the image upside down.",
    .shape = flip_shape, .cpu = top_bottom_cpu, .flags = OP_RANDOM },
  { 0 }
};
