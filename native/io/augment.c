/* augment.c - the changes of an image on its way into a batch, in this order: decode, shorter
** side to `resize`, affine map (shear, rotation, scale, proportions), border, window, brightness
** contrast saturation, hue lightness saturation, principal components; then mirror image, mean,
** contrast, illumination, scale, deviation.
**
** The image lies in one of two buffers of the thread; a step that moves pixels writes the other
** one.
*/
#include "io/augment.h"

/* -- chance ------------------------------------------------------------------------------------ */

double chance_unit(struct chance *c)
{
  struct philox p = philox(c->seed, c->epoch, 0, c->sample + ((uint64_t)(c->used++) << 40));
  return unit_f64(p.w[0], p.w[1]);
}

int64_t chance_below(struct chance *c, int64_t n)
{
  int64_t i = (int64_t)(chance_unit(c) * (double)n);
  return MIN(i, n - 1);
}

static double between(struct chance *c, double low, double high)
{
  return low + (high - low) * chance_unit(c);
}

static double normal(struct chance *c)
{
  double radius = sqrt(-2 * log1p(-chance_unit(c)));
  return radius * cos(6.283185307179586 * chance_unit(c));
}

/* -- parameters -------------------------------------------------------------------------------- */

struct integer_option { const char *key; size_t at; int64_t init, least; };
struct real_option  { const char *key; size_t at; double init; };
struct bool_option { const char *key; size_t at; };
#define AT(field) offsetof(struct augment, field)
static const struct integer_option WHOLES[] = {
  { "resize", AT(resize), -1, -1 }, { "max_rotate_angle", AT(max_rotate_angle), 0, 0 }, { "rotate", AT(rotate), -1, -1 },
  { "max_crop_size", AT(max_crop_size), -1, -1 }, { "min_crop_size", AT(min_crop_size), -1, -1 }, { "pad", AT(pad), 0, 0 },
  { "fill_value", AT(fill_value), 255, 0 }, { "inter_method", AT(inter_method), 1, 0 }, { "random_h", AT(random_h), 0, 0 },
  { "random_s", AT(random_s), 0, 0 }, { "random_l", AT(random_l), 0, 0 },
};
static const struct real_option REALS[] = {
  { "max_aspect_ratio", AT(max_aspect_ratio), 0 }, { "min_aspect_ratio", AT(min_aspect_ratio), -1 },
  { "max_shear_ratio", AT(max_shear_ratio), 0 }, { "max_random_scale", AT(max_random_scale), 1 },
  { "min_random_scale", AT(min_random_scale), 1 }, { "max_random_area", AT(max_random_area), 1 },
  { "min_random_area", AT(min_random_area), 1 }, { "max_img_size", AT(max_img_size), 1e10 },
  { "min_img_size", AT(min_img_size), 0 }, { "brightness", AT(brightness), 0 }, { "contrast", AT(contrast), 0 },
  { "saturation", AT(saturation), 0 }, { "pca_noise", AT(pca_noise), 0 }, { "mean_r", AT(mean[0]), 0 }, { "mean_g", AT(mean[1]), 0 },
  { "mean_b", AT(mean[2]), 0 }, { "mean_a", AT(mean[3]), 0 }, { "std_r", AT(std[0]), 1 }, { "std_g", AT(std[1]), 1 },
  { "std_b", AT(std[2]), 1 }, { "std_a", AT(std[3]), 1 }, { "scale", AT(scale), 1 },
  { "max_random_contrast", AT(max_random_contrast), 0 }, { "max_random_illumination", AT(max_random_illumination), 0 },
};
static const struct bool_option TRUTHS[] = {
  { "rand_crop", AT(rand_crop) }, { "random_resized_crop", AT(random_resized_crop) }, { "mirror", AT(mirror) },
  { "rand_mirror", AT(rand_mirror) },
};

static int bad(const char *key, const char *expected)
{
  fail(TY_EVALUE, "bad '%s': expected %s", key, expected);
  fail_argument(key, expected, NULL);
  return TY_EVALUE;
}

/* Within these bounds no size overflows. */
enum { MOST_WHOLE = 1 << 20, MOST_PIXELS = 1 << 28 };

static int read_options(const struct options *o, struct augment *a)
{
  for (int i = 0; i < COUNT(WHOLES); i++) {
    int64_t *slot = (int64_t *)((char *)a + WHOLES[i].at);
    TRY(option_int(o, WHOLES[i].key, WHOLES[i].init, WHOLES[i].least, slot));
    if (*slot > MOST_WHOLE) return bad(WHOLES[i].key, "at most 1048576");
  }
  for (int i = 0; i < COUNT(REALS); i++)
    TRY(option_real(o, REALS[i].key, REALS[i].init, (double *)((char *)a + REALS[i].at)));
  for (int i = 0; i < COUNT(TRUTHS); i++)
    TRY(option_bool(o, TRUTHS[i].key, false, (bool *)((char *)a + TRUTHS[i].at)));
  return TY_OK;
}

static int check_options(const struct augment *a)
{
  if (a->c != 1 && a->c != 3 && a->c != 4)
    return bad("data_shape", "1, 3 or 4 channels, height, width");
  if (a->inter_method > LANCZOS && a->inter_method != 9 && a->inter_method != 10)
    return bad("inter_method", "0 to 4, 9 or 10");
  if (a->resize == 0) return bad("resize", "-1 or a size above 0");
  if (a->min_crop_size > a->max_crop_size) return bad("min_crop_size", "at most max_crop_size");
  if (a->max_crop_size != -1 && a->min_crop_size < 1)
    return bad("min_crop_size", "a size above 0, as max_crop_size is given");
  if (a->w > MOST_PIXELS || a->h > MOST_PIXELS / a->w)
    return bad("data_shape", "at most 268435456 pixels");
  if (a->min_img_size > MOST_WHOLE) return bad("min_img_size", "at most 1048576");
  if (!(a->min_random_scale > 0 && a->max_random_scale >= a->min_random_scale &&
          a->max_random_scale <= 1000))
    return bad("min_random_scale", "above 0 and at most max_random_scale");
  if (!(a->min_random_area > 0 && a->max_random_area >= a->min_random_area &&
          a->max_random_area <= 1000))
    return bad("min_random_area", "above 0 and at most max_random_area");
  if (!(a->max_aspect_ratio >= 0 && a->max_aspect_ratio <= 1000 &&
          (a->min_aspect_ratio >= 0 || a->max_aspect_ratio < 1)))
    return bad("max_aspect_ratio", "0 to below 1, unless min_aspect_ratio is given");
  if (a->min_aspect_ratio >= 0 &&
      !(a->min_aspect_ratio > 0 && a->min_aspect_ratio <= a->max_aspect_ratio))
    return bad("min_aspect_ratio", "above 0 and at most max_aspect_ratio");
  for (int i = 0; i < 4; i++)
    if (a->std[i] == 0) return bad("std_r, std_g, std_b or std_a", "not 0");
  return TY_OK;
}

/* The array of the file, which has the shape of a sample. */
static int load_mean(const char *path, struct augment *a)
{
  ty_bag *bag;
  int named;
  const char *name;
  ty_tensor *t = NULL;
  int64_t n = a->c * a->h * a->w;
  TRY(ty_params_load(path, &bag, &named));
  int code = ty_bag_at(bag, 0, &name, &t);
  if (code == TY_OK && (!t || t->d.dtype != TY_F32 || desc_count(&t->d) != n))
    code = fail(
        TY_ESHAPE, "'%s': the mean image is no float32 array of %lld elements", path, (long long)n);
  if (code == TY_OK && !(a->mean_img = NEWS(float, n))) code = TY_EMEMORY;
  if (code == TY_OK) code = ty_tensor_read(t, a->mean_img, sizeof(float) * (size_t)n);
  ty_bag_free(bag);
  return code;
}

int augment_open(const struct options *o, const ty_desc *shape, int dtype, struct augment *a)
{
  *a = (struct augment){
    .c = shape->dim[0], .h = shape->dim[1], .w = shape->dim[2], .dtype = dtype
  };
  if (shape->ndim != 3) return bad("data_shape", "channels, height, width");
  TRY(read_options(o, a));
  TRY(check_options(a));
  a->affine = a->max_rotate_angle > 0 || a->max_shear_ratio > 0 || a->rotate > 0 ||
      a->max_random_scale != 1 || a->min_random_scale != 1 ||
      (a->max_aspect_ratio != 0 && !a->random_resized_crop) || a->max_img_size != 1e10 ||
      a->min_img_size != 0;
  const char *path = option_text(o, "mean_img", "");
  return *path ? load_mean(path, a) : TY_OK;
}

void augment_close(struct augment *a) { mem_free(a->mean_img); }

/* -- the studio -------------------------------------------------------------------------------- */

static int make_room(struct room *r, size_t n)
{
  if (n <= r->n) return TY_OK;
  mem_free(r->p);
  r->n = 0;
  r->p = mem_new(n);
  if (!r->p) return TY_EMEMORY;
  r->n = n;
  return TY_OK;
}

void studio_done(struct studio *s)
{
  for (int i = 0; i < 2; i++) mem_free(s->image[i].p);
  mem_free(s->scratch.p);
}

/* The other buffer as an image of this size. */
static int other_image(struct studio *s, int64_t h, int64_t w, struct pixels *out)
{
  struct room *r = &s->image[!s->at];
  *out = (struct pixels){ NULL, TY_U8, h, w, s->now.c };
  NEED(h > 0 && w > 0 && h <= (1 << 30) / w, TY_EVALUE, "the image would have %lld x %lld pixels",
      (long long)h, (long long)w);
  TRY(make_room(r, (size_t)(h * w * s->now.c)));
  out->p = r->p;
  return TY_OK;
}

static void turn_to(struct studio *s, struct pixels image)
{
  s->now = image;
  s->at = !s->at;
}

/* -- steps ------------------------------------------------------------------------------------- */

static int decode(struct studio *s, const struct augment *a, struct file_bytes file)
{
  struct pixels size;
  TRY(image_measure(file, 1, &size));
  s->now.c = a->c;
  TRY(other_image(s, size.h, size.w, &size));
  TRY(image_decode(file, &size));
  turn_to(s, size);
  return TY_OK;
}

static int resize(
    struct studio *s, const struct augment *a, struct chance *chance, int64_t h, int64_t w)
{
  struct pixels to;
  int how = (int)a->inter_method;
  if (how == 9) how = resampling_for(s->now.h, s->now.w, h, w);
  if (how == 10) how = (int)chance_below(chance, RESAMPLINGS);
  TRY(other_image(s, h, w, &to));
  TRY(make_room(&s->scratch, resize_scratch(&to, &s->now, how)));
  resize_pixels(&to, &s->now, how, s->scratch.p);
  turn_to(s, to);
  return TY_OK;
}

static int resize_short(struct studio *s, const struct augment *a, struct chance *chance)
{
  int64_t h = a->resize, w = a->resize;
  if (s->now.h > s->now.w)
    h = a->resize * s->now.h / s->now.w;
  else
    w = a->resize * s->now.w / s->now.h;
  return resize(s, a, chance, h, w);
}

static double ratio_of(const struct augment *a, struct chance *c)
{
  if (a->min_aspect_ratio >= 0) return between(c, a->min_aspect_ratio, a->max_aspect_ratio);
  return 1 + between(c, -a->max_aspect_ratio, a->max_aspect_ratio);
}

/* Shear, rotation, scale and proportions about the middle; m takes places of the result to the
** image. */
static int64_t affine_of(
    const struct augment *a, struct chance *c, const struct pixels *image, double m[6], int64_t *w)
{
  double shear = between(c, -a->max_shear_ratio, a->max_shear_ratio);
  int64_t angle = chance_below(c, 2 * a->max_rotate_angle + 1) - a->max_rotate_angle;
  if (a->rotate > 0) angle = a->rotate;
  double turn = (double)angle / 180 * 3.14159265358979323846, ca = cos(turn), sa = sin(turn);
  double scale = between(c, a->min_random_scale, a->max_random_scale),
         ratio = a->random_resized_crop ? 1 : ratio_of(a, c);
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

static int warp(struct studio *s, const struct augment *a, struct chance *chance)
{
  struct pixels to;
  double m[6];
  int64_t w, h = affine_of(a, chance, &s->now, m, &w);
  TRY(other_image(s, h, w, &to));
  warp_pixels(&to, &s->now, m, (uint8_t)MIN(a->fill_value, 255));
  turn_to(s, to);
  return TY_OK;
}

static int add_border(struct studio *s, const struct augment *a)
{
  struct pixels to;
  double v = (double)a->fill_value, value[4] = { v, v, v, v };
  TRY(other_image(s, s->now.h + 2 * a->pad, s->now.w + 2 * a->pad, &to));
  border_pixels(&to, &s->now, a->pad, a->pad, BORDER_CONSTANT, value);
  turn_to(s, to);
  return TY_OK;
}

static int cut(struct studio *s, int64_t y, int64_t x, int64_t h, int64_t w)
{
  struct pixels to;
  if (h == s->now.h && w == s->now.w) return TY_OK;
  TRY(other_image(s, h, w, &to));
  crop_pixels(&to, &s->now, y, x);
  turn_to(s, to);
  return TY_OK;
}

static int cut_window(
    struct studio *s, const struct augment *a, struct chance *c, int64_t h, int64_t w)
{
  int64_t y = s->now.h - h, x = s->now.w - w;
  NEED(y >= 0 && x >= 0, TY_ESHAPE,
      "the image has %lld x %lld pixels, fewer than the window of %lld x %lld; use resize",
      (long long)s->now.h, (long long)s->now.w, (long long)h, (long long)w);
  if (a->rand_crop)
    y = chance_below(c, y + 1), x = chance_below(c, x + 1);
  else
    y /= 2, x /= 2;
  return cut(s, y, x, h, w);
}

/* A window of random area and proportions, or after ten tries the largest in the middle with
** those of the sample. */
static int cut_some(struct studio *s, const struct augment *a, struct chance *c)
{
  double area = (double)s->now.h * (double)s->now.w, high = (double)s->now.h / (double)a->h,
         wide = (double)s->now.w / (double)a->w;
  for (int i = 0; i < 10; i++) {
    double part = area * between(c, a->min_random_area, a->max_random_area), ratio = ratio_of(a, c);
    bool turned = chance_unit(c) < 0.5;
    int64_t w = (int64_t)(sqrt(part * ratio) + 0.5), h = (int64_t)(sqrt(part / ratio) + 0.5),
            held = w;
    if (turned) w = h, h = held;
    if (h < 1 || w < 1 || h > s->now.h || w > s->now.w) continue;
    int64_t y = chance_below(c, s->now.h - h + 1), x = chance_below(c, s->now.w - w + 1);
    return cut(s, y, x, h, w);
  }
  int64_t h = MAX(1, (int64_t)((double)a->h * MIN(high, wide))),
          w = MAX(1, (int64_t)((double)a->w * MIN(high, wide)));
  return cut(s, (s->now.h - h) / 2, (s->now.w - w) / 2, h, w);
}

static int take_window(struct studio *s, const struct augment *a, struct chance *c)
{
  if (a->random_resized_crop) {
    TRY(cut_some(s, a, c));
    return resize(s, a, c, a->h, a->w);
  }
  if (a->max_crop_size == -1) return cut_window(s, a, c, a->h, a->w);
  int64_t size = a->min_crop_size + chance_below(c, a->max_crop_size - a->min_crop_size + 1);
  TRY(cut_window(s, a, c, size, size));
  return resize(s, a, c, a->h, a->w);
}

/* -- colours ----------------------------------------------------------------------------------- */

static void jitter(struct studio *s, const struct augment *a, struct chance *c)
{
  const double part[3] = { a->brightness, a->contrast, a->saturation };
  static const int kind[3] = { BRIGHTNESS, CONTRAST, SATURATION };
  int order[3] = { 0, 1, 2 };
  for (int i = 2; i > 0; i--) {
    int64_t k = chance_below(c, i + 1);
    int held = order[i];
    order[i] = order[k];
    order[k] = held;
  }
  for (int i = 0; i < 3; i++) {
    int k = order[i];
    float alpha = (float)(1 + between(c, -part[k], part[k]));
    if (part[k] > 0)
      tune_pixels(&s->now, &s->now, (struct tuning){ .kind = kind[k], .alpha = alpha });
  }
}

static float clamp(float v, float most) { return v < 0 ? 0 : v > most ? most : v; }

/* In units of bytes: the hue of 0 to 180 stops at its ends. */
static void shift_hls(struct studio *s, const struct augment *a, struct chance *c)
{
  float h = truncf((float)between(c, (double)-a->random_h, (double)a->random_h));
  float sat = truncf((float)between(c, (double)-a->random_s, (double)a->random_s));
  float light = truncf((float)between(c, (double)-a->random_l, (double)a->random_l)), rgb[3],
        hls[3];
  uint8_t *p = s->now.p;
  for (int64_t i = 0; s->now.c >= 3 && i < s->now.h * s->now.w; i++, p += s->now.c) {
    for (int k = 0; k < 3; k++) rgb[k] = (float)p[k] / 255;
    hls_of_rgb(rgb, hls);
    hls[0] = clamp(hls[0] / 2 + h, 180) * 2;
    hls[1] = clamp(hls[1] * 255 + light, 255) / 255;
    hls[2] = clamp(hls[2] * 255 + sat, 255) / 255;
    rgb_of_hls(hls, rgb);
    for (int k = 0; k < 3; k++) p[k] = byte_of(rgb[k] * 255 + 0.5f);
  }
}

static void lighten(struct studio *s, const struct augment *a, struct chance *c)
{
  struct tuning t = { .kind = LIGHTING };
  float alpha[3];
  for (int i = 0; i < 3; i++) alpha[i] = (float)(a->pca_noise * normal(c));
  lighting_of(alpha, t.rgb);
  tune_pixels(&s->now, &s->now, t);
}

static void color(struct studio *s, const struct augment *a, struct chance *c)
{
  if (a->brightness > 0 || a->contrast > 0 || a->saturation > 0) jitter(s, a, c);
  if (a->random_h || a->random_s || a->random_l) shift_hls(s, a, c);
  if (a->pca_noise > 0) lighten(s, a, c);
}

/* -- out --------------------------------------------------------------------------------------- */

/* v * factor + offset, by channel; a mean image takes the means' place */
struct levels { float factor[4], offset[4]; };

static struct levels levels_of(const struct augment *a, struct chance *c)
{
  struct levels l;
  double contrast = a->scale * between(c, 1 - a->max_random_contrast, 1 + a->max_random_contrast);
  double light = a->scale * between(c, -a->max_random_illumination, a->max_random_illumination);
  for (int k = 0; k < 4; k++) {
    l.factor[k] = (float)(contrast / a->std[k]);
    l.offset[k] = (float)((light - (a->mean_img ? 0 : a->mean[k]) * contrast) / a->std[k]);
  }
  return l;
}

/* Channels first. The mean image is that of images before they are mirrored. */
static void put_floats(const struct augment *a, const struct pixels *now, const struct levels *l,
    bool mirror, float *out)
{
  float table[256];
  for (int64_t k = 0; k < a->c; k++) {
    for (int v = 0; v < 256; v++) table[v] = (float)v * l->factor[k] + l->offset[k];
    for (int64_t y = 0; y < a->h; y++) {
      const uint8_t *row = (const uint8_t *)now->p + y * a->w * a->c + k;
      const float *mean = a->mean_img ? a->mean_img + (k * a->h + y) * a->w : NULL;
      for (int64_t x = 0; x < a->w; x++) {
        int64_t from = mirror ? a->w - 1 - x : x;
        *out++ = mean ? table[row[from * a->c]] - mean[from] * l->factor[k]
                      : table[row[from * a->c]];
      }
    }
  }
}

static void put_bytes(const struct augment *a, const struct pixels *now, bool mirror, uint8_t *out)
{
  for (int64_t k = 0; k < a->c; k++)
    for (int64_t y = 0; y < a->h; y++)
      for (int64_t x = 0; x < a->w; x++)
        *out++ = ((const uint8_t *)now->p)[(y * a->w + (mirror ? a->w - 1 - x : x)) * a->c + k];
}

int augment_run(const struct augment *a, struct file_bytes file, struct chance *chance,
    struct studio *s, void *out)
{
  TRY(decode(s, a, file));
  if (a->resize > 0) TRY(resize_short(s, a, chance));
  if (a->affine) TRY(warp(s, a, chance));
  if (a->pad > 0) TRY(add_border(s, a));
  TRY(take_window(s, a, chance));
  color(s, a, chance);
  bool mirror = a->mirror || (a->rand_mirror && chance_unit(chance) < 0.5);
  struct levels l = levels_of(a, chance);
  if (a->dtype == TY_F32)
    put_floats(a, &s->now, &l, mirror, out);
  else
    put_bytes(a, &s->now, mirror, out);
  return TY_OK;
}
