/* augment.c - see augment.h. The order of steps is: decode; resize the shorter side to `resize`;
** affine map (shear, rotation, scale, aspect ratio); border; crop; brightness, contrast,
** saturation; hue, lightness, saturation; principal components; then mirror; subtract the mean;
** contrast, illumination; scale; divide by the deviation.
*/
#include "io/augment.h"

/* -- random numbers ---------------------------------------------------------------------------- */

static double draw_normal(struct rng *c)
{
  double radius = sqrt(-2 * log1p(-rng_unit(c)));
  return radius * cos(6.283185307179586 * rng_unit(c));
}

/* -- parameters -------------------------------------------------------------------------------- */

struct bool_option { const char *key; size_t at; };
#define AT(field) offsetof(struct augment, field)
static const struct integer_option WHOLES[] = {
  { "resize", AT(resize), -1, -1 },
  { "max_rotate_angle", AT(max_rotate_angle), 0, 0 },
  { "rotate", AT(rotate), -1, -1 },
  { "max_crop_size", AT(max_crop_size), -1, -1 },
  { "min_crop_size", AT(min_crop_size), -1, -1 },
  { "pad", AT(pad), 0, 0 },
  { "fill_value", AT(fill_value), 255, 0 },
  { "inter_method", AT(inter_method), 1, 0 },
  { "random_h", AT(random_h), 0, 0 },
  { "random_s", AT(random_s), 0, 0 },
  { "random_l", AT(random_l), 0, 0 },
};
static const struct real_option REALS[] = {
  { "max_aspect_ratio", AT(max_aspect_ratio), 0 },
  { "min_aspect_ratio", AT(min_aspect_ratio), -1 },
  { "max_shear_ratio", AT(max_shear_ratio), 0 },
  { "max_random_scale", AT(max_random_scale), 1 },
  { "min_random_scale", AT(min_random_scale), 1 },
  { "max_random_area", AT(max_random_area), 1 },
  { "min_random_area", AT(min_random_area), 1 },
  { "max_img_size", AT(max_img_size), 1e10 },
  { "min_img_size", AT(min_img_size), 0 },
  { "brightness", AT(brightness), 0 },
  { "contrast", AT(contrast), 0 },
  { "saturation", AT(saturation), 0 },
  { "pca_noise", AT(pca_noise), 0 },
  { "mean_r", AT(mean[0]), 0 },
  { "mean_g", AT(mean[1]), 0 },
  { "mean_b", AT(mean[2]), 0 },
  { "mean_a", AT(mean[3]), 0 },
  { "std_r", AT(std[0]), 1 },
  { "std_g", AT(std[1]), 1 },
  { "std_b", AT(std[2]), 1 },
  { "std_a", AT(std[3]), 1 },
  { "scale", AT(scale), 1 },
  { "max_random_contrast", AT(max_random_contrast), 0 },
  { "max_random_illumination", AT(max_random_illumination), 0 },
};
static const struct bool_option TRUTHS[] = {
  { "rand_crop", AT(rand_crop) },
  { "random_resized_crop", AT(random_resized_crop) },
  { "mirror", AT(mirror) },
  { "rand_mirror", AT(rand_mirror) },
};

/* Bounds that keep sizes from overflowing. */
enum { MOST_SIDE = 1 << 20, MOST_PIXELS = 1 << 28 };

static int read_options(const struct options *o, struct augment *a)
{
  TRY(options_integers(o, WHOLES, COUNT(WHOLES), a));
  TRY(options_reals(o, REALS, COUNT(REALS), a));
  for (int i = 0; i < COUNT(TRUTHS); i++)
    TRY(option_bool(o, TRUTHS[i].key, false, (bool *)((char *)a + TRUTHS[i].at)));
  return TY_OK;
}

static int check_options(const struct augment *a)
{
  if (a->c != 1 && a->c != 3 && a->c != 4)
    return option_bad("data_shape", "1, 3 or 4 channels, height, width");
  if (a->inter_method > LANCZOS && a->inter_method != 9 && a->inter_method != 10)
    return option_bad("inter_method", "0 to 4, 9 or 10");
  if (a->resize == 0) return option_bad("resize", "-1 or a size above 0");
  if (a->min_crop_size > a->max_crop_size)
    return option_bad("min_crop_size", "at most max_crop_size");
  if (a->max_crop_size != -1 && a->min_crop_size < 1)
    return option_bad("min_crop_size", "a size above 0, as max_crop_size is given");
  if (a->w > MOST_PIXELS || a->h > MOST_PIXELS / a->w)
    return option_bad("data_shape", "at most 268435456 pixels");
  if (a->min_img_size > MOST_SIDE) return option_bad("min_img_size", "at most 1048576");
  if (!(a->min_random_scale > 0 && a->max_random_scale >= a->min_random_scale &&
          a->max_random_scale <= 1000))
    return option_bad("min_random_scale", "above 0 and at most max_random_scale");
  if (!(a->min_random_area > 0 && a->max_random_area >= a->min_random_area &&
          a->max_random_area <= 1000))
    return option_bad("min_random_area", "above 0 and at most max_random_area");
  if (!(a->max_aspect_ratio >= 0 && a->max_aspect_ratio <= 1000 &&
          (a->min_aspect_ratio >= 0 || a->max_aspect_ratio < 1)))
    return option_bad("max_aspect_ratio", "0 to below 1, unless min_aspect_ratio is given");
  if (a->min_aspect_ratio >= 0 &&
      !(a->min_aspect_ratio > 0 && a->min_aspect_ratio <= a->max_aspect_ratio))
    return option_bad("min_aspect_ratio", "above 0 and at most max_aspect_ratio");
  for (int i = 0; i < 4; i++)
    if (a->std[i] == 0) return option_bad("std_r, std_g, std_b or std_a", "not 0");
  return TY_OK;
}

int augment_open(const struct options *o, const ty_desc *shape, int dtype, struct augment *a)
{
  *a = (struct augment){
    .c = shape->dim[0], .h = shape->dim[1], .w = shape->dim[2], .dtype = dtype
  };
  if (shape->ndim != 3) return option_bad("data_shape", "channels, height, width");
  TRY(read_options(o, a));
  TRY(check_options(a));
  a->affine = a->max_rotate_angle > 0 || a->max_shear_ratio > 0 || a->rotate > 0 ||
      a->max_random_scale != 1 || a->min_random_scale != 1 ||
      (a->max_aspect_ratio != 0 && !a->random_resized_crop) || a->max_img_size != 1e10 ||
      a->min_img_size != 0;
  const char *path = option_text(o, "mean_img", "");
  return *path ? mean_image_load(path, shape, &a->mean_img) : TY_OK;
}

void augment_close(struct augment *a) { mem_free(a->mean_img); }

/* -- steps ------------------------------------------------------------------------------------- */

static double draw_ratio(const struct augment *a, struct rng *c)
{
  if (a->min_aspect_ratio >= 0) return rng_between(c, a->min_aspect_ratio, a->max_aspect_ratio);
  return 1 + rng_between(c, -a->max_aspect_ratio, a->max_aspect_ratio);
}

/* Draws shear, rotation, scale and aspect ratio. m maps positions of the result to the image. */
static int64_t draw_affine(
    const struct augment *a, struct rng *c, const struct pixels *image, double m[6], int64_t *w)
{
  double shear = rng_between(c, -a->max_shear_ratio, a->max_shear_ratio);
  int64_t angle = rng_below(c, 2 * a->max_rotate_angle + 1) - a->max_rotate_angle;
  if (a->rotate > 0) angle = a->rotate;
  double turn = (double)angle / 180 * 3.14159265358979323846, ca = cos(turn), sa = sin(turn);
  double scale = rng_between(c, a->min_random_scale, a->max_random_scale),
         ratio = a->random_resized_crop ? 1 : draw_ratio(a, c);
  double hs = 2 * scale / (1 + ratio), ws = ratio * hs, columns = (double)image->w,
         rows = (double)image->h;
  double width = MAX(a->min_img_size, MIN(a->max_img_size, scale * columns));
  double height = MAX(a->min_img_size, MIN(a->max_img_size, scale * rows));
  double xx = hs * ca - shear * sa * ws, yx = -sa * ws, xy = hs * sa + shear * ca * ws,
         yy = ca * ws, d = xx * yy - xy * yx;
  double dx = (width - xx * columns - xy * rows) / 2, dy = (height - yx * columns - yy * rows) / 2;
  d = d == 0 ? 0 : 1 / d;
  m[0] = yy * d, m[1] = -xy * d, m[2] = -(m[0] * dx + m[1] * dy);
  m[3] = -yx * d, m[4] = xx * d, m[5] = -(m[3] * dx + m[4] * dy);
  *w = MAX(1, (int64_t)width);
  return MAX(1, (int64_t)height);
}

static int warp_image(struct workspace *s, const struct augment *a, struct rng *rng)
{
  struct pixels to;
  double m[6];
  int64_t w, h = draw_affine(a, rng, &s->now, m, &w);
  const int64_t how = workspace_choose_rule(s, a->inter_method, rng, h, w);
  TRY(workspace_other(s, s->now.dtype, h, w, &to));
  warp_pixels(&to, &s->now, m, (int)how, (uint8_t)MIN(a->fill_value, 255));
  workspace_swap(s, to);
  return TY_OK;
}

/* Crops to h x w: at a random place (rand_crop) or in the centre. */
static int cut_window(
    struct workspace *s, const struct augment *a, struct rng *c, int64_t h, int64_t w)
{
  int64_t y = s->now.h - h, x = s->now.w - w;
  NEED(y >= 0 && x >= 0, TY_ESHAPE,
      "the image has %lld x %lld pixels, fewer than the window of %lld x %lld; use resize",
      (long long)s->now.h, (long long)s->now.w, (long long)h, (long long)w);
  if (a->rand_crop)
    y = rng_below(c, y + 1), x = rng_below(c, x + 1);
  else
    y /= 2, x /= 2;
  return workspace_crop(s, y, x, h, w);
}

/* Crops to a window of random area and aspect ratio; *found is false if ten tries found none. */
static int cut_some(struct workspace *s, const struct augment *a, struct rng *c, bool *found)
{
  double area = (double)s->now.h * (double)s->now.w;
  for (int i = 0; i < 10; i++) {
    double part = area * rng_between(c, a->min_random_area, a->max_random_area);
    double ratio = draw_ratio(a, c);
    bool turned = rng_unit(c) < 0.5;
    int64_t w = (int64_t)(sqrt(part * ratio) + 0.5), h = (int64_t)(sqrt(part / ratio) + 0.5),
            held = w;
    if (turned) w = h, h = held;
    if (h < 1 || w < 1 || h > s->now.h || w > s->now.w) continue;
    int64_t y = rng_below(c, s->now.h - h + 1), x = rng_below(c, s->now.w - w + 1);
    *found = true;
    return workspace_crop(s, y, x, h, w);
  }
  return TY_OK;
}

/* Enlarges an image that is smaller than the sample, keeping its proportions. */
static int enlarge_image(struct workspace *s, const struct augment *a, struct rng *c)
{
  if (s->now.h >= a->h && s->now.w >= a->w) return TY_OK;
  const int64_t how = workspace_choose_rule(s, a->inter_method, c, a->h, a->w);
  if (s->now.h < a->h)
    TRY(workspace_resize(
        s, how, c, a->h, (int64_t)((float)a->h / (float)s->now.h * (float)s->now.w)));
  if (s->now.w < a->w)
    TRY(workspace_resize(
        s, how, c, (int64_t)((float)a->w / (float)s->now.w * (float)s->now.h), a->w));
  return TY_OK;
}

/* Returns whether crops of random area and aspect ratio are asked for that are not the whole
** image. */
static bool draws_windows(const struct augment *a)
{
  bool turns = a->min_aspect_ratio >= 0 ? a->min_aspect_ratio != 1 || a->max_aspect_ratio != 1
                                        : a->max_aspect_ratio != 0;
  return a->random_resized_crop && (a->max_random_area != 1 || a->min_random_area != 1 || turns);
}

/* Crops as the options say and resizes to the size of a sample. */
static int take_window(struct workspace *s, const struct augment *a, struct rng *c)
{
  bool found = false;
  if (draws_windows(a)) TRY(cut_some(s, a, c, &found));
  if (found) return workspace_resize(s, a->inter_method, c, a->h, a->w);
  if (a->random_resized_crop || a->max_crop_size == -1) {
    TRY(enlarge_image(s, a, c));
    return cut_window(s, a, c, a->h, a->w);
  }
  int64_t size = a->min_crop_size + rng_below(c, a->max_crop_size - a->min_crop_size + 1);
  TRY(cut_window(s, a, c, size, size));
  return workspace_resize(s, a->inter_method, c, a->h, a->w);
}

/* -- colours ----------------------------------------------------------------------------------- */

/* Changes brightness, contrast and saturation by random factors, in random order. */
static void jitter_colors(struct workspace *s, const struct augment *a, struct rng *c)
{
  const double part[3] = { a->brightness, a->contrast, a->saturation };
  static const int kind[3] = { BRIGHTNESS, CONTRAST, SATURATION };
  int order[3] = { 0, 1, 2 };
  for (int i = 2; i > 0; i--) {
    int64_t k = rng_below(c, i + 1);
    int held = order[i];
    order[i] = order[k];
    order[k] = held;
  }
  for (int i = 0; i < 3; i++) {
    int k = order[i];
    float alpha = (float)(1 + rng_between(c, -part[k], part[k]));
    if (part[k] > 0)
      tune_pixels(&s->now, &s->now, (struct tuning){ .kind = kind[k], .alpha = alpha });
  }
}

static void shift_hls(struct workspace *s, const struct augment *a, struct rng *c)
{
  float h = truncf((float)rng_between(c, (double)-a->random_h, (double)a->random_h));
  float sat = truncf((float)rng_between(c, (double)-a->random_s, (double)a->random_s));
  float light = truncf((float)rng_between(c, (double)-a->random_l, (double)a->random_l));
  workspace_shift_hls(s, h, light, sat);
}

static void add_lighting(struct workspace *s, const struct augment *a, struct rng *c)
{
  struct tuning t = { .kind = LIGHTING };
  float alpha[3];
  for (int i = 0; i < 3; i++) alpha[i] = (float)(a->pca_noise * draw_normal(c));
  lighting_of(alpha, t.rgb);
  tune_pixels(&s->now, &s->now, t);
}

static void augment_colors(struct workspace *s, const struct augment *a, struct rng *c)
{
  if (a->brightness > 0 || a->contrast > 0 || a->saturation > 0) jitter_colors(s, a, c);
  if (a->random_h || a->random_s || a->random_l) shift_hls(s, a, c);
  if (a->pca_noise > 0) add_lighting(s, a, c);
}

/* -- out --------------------------------------------------------------------------------------- */

/* Draws contrast and illumination. Returns factor and offset per channel; int8 has offsets only. */
static struct levels make_levels(const struct augment *a, struct rng *c)
{
  struct levels l = { .mean = a->mean_img };
  double most = a->max_random_contrast, light = a->max_random_illumination;
  double contrast = a->scale * rng_between(c, 1 - most, 1 + most);
  light = a->scale * rng_between(c, -light, light);
  for (int k = 0; k < 4 && a->dtype == TY_I8; k++) l.offset[k] = (float)-a->mean[k];
  for (int k = 0; k < 4 && a->dtype != TY_I8; k++) {
    l.factor[k] = (float)(contrast / a->std[k]);
    l.offset[k] = (float)((light - (a->mean_img ? 0 : a->mean[k]) * contrast) / a->std[k]);
  }
  return l;
}

int augment_run(const struct augment *a, struct file_bytes file, struct rng *rng,
    struct workspace *s, void *out)
{
  TRY(workspace_decode(s, file, a->c));
  if (a->resize > 0) TRY(workspace_resize_short(s, a->inter_method, rng, a->resize));
  if (a->affine) TRY(warp_image(s, a, rng));
  if (a->pad > 0)
    TRY(workspace_border(s, s->now.h + 2 * a->pad, s->now.w + 2 * a->pad, a->pad, a->pad,
        a->fill_value));
  TRY(take_window(s, a, rng));
  augment_colors(s, a, rng);
  bool mirror = a->mirror || (a->rand_mirror && rng_unit(rng) < 0.5);
  struct levels l = make_levels(a, rng);
  workspace_put(s, (int)a->dtype, &l, mirror, out);
  return TY_OK;
}
