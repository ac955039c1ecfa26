/* transform.c - see transform.h. */
#include <math.h>
#include "base/convert.h"
#include "io/transform.h"

enum {
  MOST_SIDE = 1 << 20,                                /* longest side of an image, pixels */
  CROP_TRIES = 10                                     /* random windows before the centre */
};

static const char *const STEP_NAMES[TY_STEPS] = {
  [TY_STEP_RESIZE] = "Resize", [TY_STEP_CROP] = "CropResize", [TY_STEP_CENTER_CROP] = "CenterCrop",
  [TY_STEP_RANDOM_CROP] = "RandomCrop", [TY_STEP_SIZE_CROP] = "RandomResizedCrop",
  [TY_STEP_BORDER] = "RandomCrop", [TY_STEP_FLIP_COLUMNS] = "RandomFlipLeftRight",
  [TY_STEP_FLIP_ROWS] = "RandomFlipTopBottom", [TY_STEP_BRIGHTNESS] = "RandomBrightness",
  [TY_STEP_CONTRAST] = "RandomContrast", [TY_STEP_SATURATION] = "RandomSaturation",
  [TY_STEP_HUE] = "RandomHue", [TY_STEP_JITTER] = "RandomColorJitter",
  [TY_STEP_LIGHTING] = "RandomLighting", [TY_STEP_GREY] = "RandomGray",
  [TY_STEP_TO_TENSOR] = "ToTensor",
  [TY_STEP_NORMALIZE] = "Normalize", [TY_STEP_CAST] = "Cast", [TY_STEP_ROTATE] = "Rotate",
  [TY_STEP_RANDOM_ROTATE] = "RandomRotation", [TY_STEP_MAYBE] = "RandomApply",
};

void picture_done(struct picture *p)
{
  workspace_done(&p->space);
  *p = (struct picture){ 0 };
}

static int fail_step(const ty_image_step *s, int code, const char *what)
{
  return fail(code, "%s: %s", STEP_NAMES[s->kind], what);
}

static int need_pixels(const ty_image_step *s, const struct picture *p)
{
  int dtype = p->space.now.dtype;
  NEED(dtype == TY_U8 || dtype == TY_F32, TY_EDTYPE,
      "%s: the image is %s, expected uint8 or float32", STEP_NAMES[s->kind], dtype_name(dtype));
  return TY_OK;
}

/* -- sizes and windows ------------------------------------------------------------------------- */

static int resize_image(const ty_image_step *s, struct picture *p)
{
  const struct pixels *now = &p->space.now;
  int64_t w = (int64_t)s->value[0], h = (int64_t)s->value[1];
  if (s->value[2] != 0 && now->h > now->w)
    h = MAX(1, now->h * w / now->w);
  else if (s->value[2] != 0)
    w = MAX(1, now->w * h / now->h);
  return workspace_resize(&p->space, (int64_t)s->value[3], NULL, h, w);
}

static int crop_image(const ty_image_step *s, struct picture *p)
{
  int64_t x = (int64_t)s->value[0], y = (int64_t)s->value[1], w = (int64_t)s->value[2],
          h = (int64_t)s->value[3];
  const struct pixels *now = &p->space.now;
  NEED(x <= now->w - w && y <= now->h - h, TY_ESHAPE,
      "CropResize: a window of %lld x %lld at row %lld, column %lld sticks out of %lld x %lld",
      (long long)h, (long long)w, (long long)y, (long long)x, (long long)now->h, (long long)now->w);
  return workspace_crop(&p->space, y, x, h, w);
}

/* Crops to a window of this size, centred or at random. If the image is too small, crops to the
** largest window of the same proportions and resizes it. */
static int take_window(
    struct picture *p, int64_t w, int64_t h, int64_t how, bool anywhere, struct rng *rng)
{
  const struct pixels *now = &p->space.now;
  double wide = (double)w, high = (double)h;
  if ((double)now->h < high) {
    wide = wide * (double)now->h / high;
    high = (double)now->h;
  }
  if ((double)now->w < wide) {
    high = high * (double)now->w / wide;
    wide = (double)now->w;
  }
  int64_t cw = MAX((int64_t)wide, 1), ch = MAX((int64_t)high, 1);
  int64_t x = (now->w - cw) / 2, y = (now->h - ch) / 2;
  if (anywhere) {
    x = rng_below(rng, now->w - cw + 1);
    y = rng_below(rng, now->h - ch + 1);
  }
  TRY(workspace_crop(&p->space, y, x, ch, cw));
  return cw == w && ch == h ? TY_OK : workspace_resize(&p->space, how, rng, h, w);
}

/* Crops to a random part of the image. Values: width, height, bounds of the part of the area,
** bounds of width / height, rule. */
static int size_crop(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  const double *v = s->value;
  const struct pixels *now = &p->space.now;
  int64_t w = (int64_t)v[0], h = (int64_t)v[1], how = (int64_t)v[6];
  for (int i = 0; i < CROP_TRIES; i++) {
    double area = (double)now->h * (double)now->w * rng_between(rng, v[2], v[3]);
    double ratio = exp(rng_between(rng, log(v[4]), log(v[5])));
    int64_t cw = (int64_t)floor(sqrt(area * ratio) + 0.5);
    int64_t ch = (int64_t)floor(sqrt(area / ratio) + 0.5);
    if (cw > now->w || ch > now->h || cw < 1 || ch < 1) continue;
    int64_t x = rng_below(rng, now->w - cw + 1), y = rng_below(rng, now->h - ch + 1);
    TRY(workspace_crop(&p->space, y, x, ch, cw));
    return cw == w && ch == h ? TY_OK : workspace_resize(&p->space, how, rng, h, w);
  }
  return take_window(p, w, h, how, false, rng);
}

static int add_border(const ty_image_step *s, struct picture *p)
{
  const double *v = s->value;
  const struct pixels *now = &p->space.now;
  int64_t top = (int64_t)v[0], left = (int64_t)v[2];
  return workspace_border(&p->space, now->h + top + (int64_t)v[1], now->w + left + (int64_t)v[3],
      top, left, (int64_t)v[4]);
}

/* -- mirror images ----------------------------------------------------------------------------- */

static void mirror_row(char *to, const char *from, int64_t n, size_t size)
{
  from += (size_t)(n - 1) * size;
  if (size == 3)
    for (int64_t i = 0; i < n; i++, to += 3, from -= 3) memcpy(to, from, 3);
  else if (size == 1)
    for (int64_t i = 0; i < n; i++) *to++ = *from--;
  else
    for (int64_t i = 0; i < n; i++, to += size, from -= size) memcpy(to, from, size);
}

static int flip_image(struct picture *p, bool rows)
{
  const struct pixels now = p->space.now;
  struct pixels to;
  TRY(workspace_other(&p->space, now.dtype, now.h, now.w, &to));
  size_t pixel = (size_t)now.c * dtype_size(now.dtype), row = pixel * (size_t)now.w;
  for (int64_t y = 0; y < now.h; y++) {
    const char *from = (const char *)now.p + (size_t)(rows ? now.h - 1 - y : y) * row;
    if (rows)
      memcpy((char *)to.p + (size_t)y * row, from, row);
    else
      mirror_row((char *)to.p + (size_t)y * row, from, now.w, pixel);
  }
  workspace_swap(&p->space, to);
  return TY_OK;
}

/* -- colours ----------------------------------------------------------------------------------- */

static int tune_colors(const ty_image_step *s, struct picture *p, struct tuning t)
{
  const struct pixels now = p->space.now;
  struct pixels to;
  NEED(now.c == 1 || now.c == 3, TY_ESHAPE, "%s: the image has %lld channels, expected 1 or 3",
      STEP_NAMES[s->kind], (long long)now.c);
  TRY(workspace_other(&p->space, now.dtype, now.h, now.w, &to));
  tune_pixels(&to, &now, t);
  workspace_swap(&p->space, to);
  return TY_OK;
}

static int tune_by_factor(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  static const int kind[TY_STEPS] = { [TY_STEP_BRIGHTNESS] = BRIGHTNESS,
    [TY_STEP_CONTRAST] = CONTRAST, [TY_STEP_SATURATION] = SATURATION_BLUE, [TY_STEP_HUE] = HUE };
  float factor = random_between(rng_word(rng), s->value[0], s->value[1]);
  return tune_colors(s, p, (struct tuning){ .kind = kind[s->kind], .alpha = factor });
}

static int jitter_colors(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  struct tuning plan[4] = { 0 };
  uint32_t word[8];
  for (int i = 0; i < 8; i++) word[i] = rng_word(rng);
  jitter_of(s->value, word, plan);
  for (int i = 0; i < 4; i++)
    if (plan[i].kind != TUNINGS) TRY(tune_colors(s, p, plan[i]));
  return TY_OK;
}

static int add_lighting(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  struct tuning t = { .kind = LIGHTING };
  float alpha[3];
  for (int i = 0; i < 3; i++) {
    struct philox words = { { rng_word(rng), rng_word(rng) } };
    alpha[i] = (float)s->value[0] * random_normal(words);
  }
  lighting_of(alpha, t.rgb);
  return tune_colors(s, p, t);
}

/* -- numbers ----------------------------------------------------------------------------------- */

static int cast_values(struct picture *p, int dtype)
{
  const struct pixels now = p->space.now;
  struct pixels to;
  if (dtype == now.dtype) return TY_OK;
  TRY(workspace_other(&p->space, dtype, now.h, now.w, &to));
  dtype_convert(to.p, dtype, now.p, now.dtype, now.h * now.w * now.c);
  workspace_swap(&p->space, to);
  return TY_OK;
}

static int normalize_fits(const ty_image_step *s, int64_t channels)
{
  NEED(channels == 1 || channels == 3, TY_ESHAPE,
      "Normalize: the image has %lld channels in its first dimension, expected 1 or 3",
      (long long)channels);
  for (int i = 6; i < 8; i++)
    NEED(s->value[i] == 1 || (int64_t)s->value[i] == channels, TY_EVALUE,
        "Normalize: %s: expected 1 or %lld numbers, got %lld", i == 6 ? "mean" : "std",
        (long long)channels, (long long)s->value[i]);
  return TY_OK;
}

static double channel_mean(const ty_image_step *s, int64_t k)
{
  return s->value[s->value[6] == 1 ? 0 : k];
}

static double channel_std(const ty_image_step *s, int64_t k)
{
  return s->value[3 + (s->value[7] == 1 ? 0 : k)];
}

#define NORMALIZE(name, T) \
static void name(T *out, const T *in, int64_t n, T mean, T std) \
{ \
  for (int64_t i = 0; i < n; i++) out[i] = (in[i] - mean) / std; \
}
NORMALIZE(normalize_floats, float)
NORMALIZE(normalize_doubles, double)

static int normalize_values(const ty_image_step *s, struct picture *p)
{
  const struct pixels now = p->space.now;
  struct pixels to;
  NEED(now.dtype == TY_F32 || now.dtype == TY_F64, TY_EDTYPE,
      "Normalize: the image is %s, expected floats: ToTensor comes before",
      dtype_name(now.dtype));
  TRY(normalize_fits(s, now.h));
  TRY(workspace_other(&p->space, now.dtype, now.h, now.w, &to));
  int64_t n = now.w * now.c;
  for (int64_t k = 0; k < now.h; k++) {
    double mean = channel_mean(s, k), std = channel_std(s, k);
    if (now.dtype == TY_F32)
      normalize_floats(
          (float *)to.p + k * n, (const float *)now.p + k * n, n, (float)mean, (float)std);
    else
      normalize_doubles((double *)to.p + k * n, (const double *)now.p + k * n, n, mean, std);
  }
  workspace_swap(&p->space, to);
  return TY_OK;
}

/* Fills in `levels`. next: a normalisation that follows, or NULL. */
static void make_levels(struct picture *p, const ty_image_step *next)
{
  const ty_image_step none = { .kind = TY_STEP_TO_TENSOR }, *of = next ? next : &none;
  if (p->has_levels && !memcmp(&p->levels_of, of, sizeof *of)) return;
  for (int k = 0; k < 4; k++)
    for (int v = 0; v < 256; v++) {
      float x = (float)v / 255;
      bool scaled = next && k < 3;
      p->levels[k][v] = scaled ? (x - (float)channel_mean(next, k)) / (float)channel_std(next, k)
                               : x;
    }
  p->levels_of = *of;
  p->has_levels = true;
}

/* Writes the image as planes, through the tables of make_levels. */
static void put_levels(const struct picture *p, const struct pixels *now, float *out)
{
  const uint8_t *in = now->p;
  int64_t n = now->h * now->w;
  if (now->c == 3) {
    float *red = out, *green = out + n, *blue = out + 2 * n;
    for (int64_t i = 0; i < n; i++, in += 3) {
      red[i] = p->levels[0][in[0]];
      green[i] = p->levels[1][in[1]];
      blue[i] = p->levels[2][in[2]];
    }
    return;
  }
  for (int64_t k = 0; k < now->c; k++, in++)
    for (int64_t i = 0; i < n; i++) *out++ = p->levels[k & 3][in[i * now->c]];
}

/* Converts to float32 with channels first. If the next step is a normalisation, applies it too and
** sets *taken. */
static int to_tensor(struct picture *p, const ty_image_step *next, bool *taken)
{
  struct pixels now = p->space.now, to;
  *taken = now.dtype == TY_U8 && next && next->kind == TY_STEP_NORMALIZE;
  if (*taken) TRY(normalize_fits(next, now.c));
  if (now.dtype != TY_U8) {
    TRY(cast_values(p, TY_F32));
    now = p->space.now;
  }
  TRY(workspace_other(&p->space, TY_F32, now.h, now.w, &to));
  if (now.dtype == TY_U8) {
    make_levels(p, *taken ? next : NULL);
    put_levels(p, &now, to.p);
  } else {
    int64_t n = now.h * now.w;
    for (int64_t k = 0; k < now.c; k++)
      for (int64_t i = 0; i < n; i++)
        ((float *)to.p)[k * n + i] = ((const float *)now.p)[i * now.c + k] / 255;
  }
  to.h = now.c, to.w = now.h, to.c = now.w;
  workspace_swap(&p->space, to);
  return TY_OK;
}

/* -- turns ------------------------------------------------------------------------------------- */

/* Returns the factor by which to scale the sampled window so that the rotated image fills it (in),
** or is all inside it (out). */
static double rotation_zoom(double h, double w, double angle, bool in, bool out)
{
  if (!in && !out) return 1;
  double diagonal = sqrt(h * h + w * w), corner = atan(h / w), first = corner + fabs(angle),
         second = corner - fabs(angle);
  double wide = fmax(fabs(diagonal * cos(first)), fabs(diagonal * cos(second)));
  double high = fmax(fabs(diagonal * sin(first)), fabs(diagonal * sin(second)));
  return out ? fmax(wide / w, high / h) : fmin(w / wide, h / high);
}

static float pixel_or_zero(const float *plane, int64_t h, int64_t w, int64_t y, int64_t x)
{
  return y >= 0 && y < h && x >= 0 && x < w ? plane[y * w + x] : 0;
}

/* Returns the bilinear sample at (y, x); pixels outside are 0. */
static float sample_plane(const float *plane, int64_t h, int64_t w, double y, double x)
{
  double top = floor(y), left = floor(x);
  if (top < -1 || top > (double)h || left < -1 || left > (double)w) return 0;
  int64_t i = (int64_t)top, k = (int64_t)left;
  float down = (float)(y - top), right = (float)(x - left);
  return pixel_or_zero(plane, h, w, i, k) * (1 - down) * (1 - right) +
      pixel_or_zero(plane, h, w, i, k + 1) * (1 - down) * right +
      pixel_or_zero(plane, h, w, i + 1, k) * down * (1 - right) +
      pixel_or_zero(plane, h, w, i + 1, k + 1) * down * right;
}

/* Rotates the image counter-clockwise about its centre, as ty.image.imrotate does. */
static int rotate_image(
    const ty_image_step *s, struct picture *p, double degrees, bool in, bool out)
{
  const struct pixels now = p->space.now;
  const int64_t planes = now.h, h = now.w, w = now.c;
  struct pixels to;
  NEED(now.dtype == TY_F32, TY_EDTYPE, "%s: the image is %s, expected float32",
      STEP_NAMES[s->kind], dtype_name(now.dtype));
  TRY(workspace_other(&p->space, TY_F32, planes, h, &to));
  double angle = degrees * 0.017453292519943295, middle_y = (double)(h - 1) / 2,
         middle_x = (double)(w - 1) / 2, zoom = rotation_zoom((double)h, (double)w, angle, in, out);
  double sine = zoom * sin(angle), cosine = zoom * cos(angle);
  for (int64_t y = 0; y < h; y++)
    for (int64_t x = 0; x < w; x++) {
      double dy = (double)y - middle_y, dx = (double)x - middle_x;
      /* along an axis of one pixel there is only one position */
      double from_x = w > 1 ? cosine * dx - sine * dy + middle_x : 0;
      double from_y = h > 1 ? sine * dx + cosine * dy + middle_y : 0;
      for (int64_t k = 0; k < planes; k++)
        ((float *)to.p)[(k * h + y) * w + x] =
            sample_plane((const float *)now.p + k * h * w, h, w, from_y, from_x);
    }
  workspace_swap(&p->space, to);
  return TY_OK;
}

static int rotate_randomly(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  const double *v = s->value;
  if (rng_unit(rng) > v[4]) return TY_OK;
  return rotate_image(s, p, rng_between(rng, v[0], v[1]), v[2] != 0, v[3] != 0);
}

/* -- all of them ------------------------------------------------------------------------------- */

static int run_step(const ty_image_step *s, struct picture *p, struct rng *rng)
{
  if (s->kind != TY_STEP_CAST && s->kind != TY_STEP_NORMALIZE) TRY(need_pixels(s, p));
  switch (s->kind) {
  case TY_STEP_RESIZE: return resize_image(s, p);
  case TY_STEP_CROP: return crop_image(s, p);
  case TY_STEP_CENTER_CROP:
  case TY_STEP_RANDOM_CROP:
    return take_window(p, (int64_t)s->value[0], (int64_t)s->value[1], (int64_t)s->value[2],
        s->kind == TY_STEP_RANDOM_CROP, rng);
  case TY_STEP_SIZE_CROP: return size_crop(s, p, rng);
  case TY_STEP_BORDER: return add_border(s, p);
  case TY_STEP_FLIP_COLUMNS: return rng_unit(rng) < s->value[0] ? flip_image(p, false) : TY_OK;
  case TY_STEP_FLIP_ROWS: return rng_unit(rng) < s->value[0] ? flip_image(p, true) : TY_OK;
  case TY_STEP_BRIGHTNESS:
  case TY_STEP_CONTRAST:
  case TY_STEP_SATURATION:
  case TY_STEP_HUE: return tune_by_factor(s, p, rng);
  case TY_STEP_JITTER: return jitter_colors(s, p, rng);
  case TY_STEP_LIGHTING: return add_lighting(s, p, rng);
  case TY_STEP_GREY:
    return rng_unit(rng) < s->value[0] ? tune_colors(s, p, (struct tuning){ .kind = SATURATION })
                                       : TY_OK;
  case TY_STEP_NORMALIZE: return normalize_values(s, p);
  case TY_STEP_CAST: return cast_values(p, (int)s->value[0]);
  case TY_STEP_ROTATE: return rotate_image(s, p, s->value[0], s->value[1] != 0, s->value[2] != 0);
  case TY_STEP_RANDOM_ROTATE: return rotate_randomly(s, p, rng);
  default: return TY_OK;
  }
}

int steps_run(const ty_image_step *step, int n, struct rng *rng, struct picture *p)
{
  for (int i = 0; i < n; i++) {
    const ty_image_step *s = &step[i];
    bool taken;
    if (s->kind == TY_STEP_MAYBE) {
      if (rng_unit(rng) > s->value[0]) i += s->count;
    } else if (s->kind == TY_STEP_TO_TENSOR) {
      TRY(to_tensor(p, i + 1 < n ? s + 1 : NULL, &taken));
      i += taken;
    } else
      TRY(run_step(s, p, rng));
  }
  return TY_OK;
}

/* -- checks ------------------------------------------------------------------------------------ */

static bool check_range(double v, double least, double most) { return v >= least && v <= most; }

/* Fails unless values from .. to - 1 are whole numbers, `least` or more. */
static int check_pixels(const ty_image_step *s, int from, int to, double least, const char *what)
{
  for (int i = from; i < to; i++)
    NEED(check_range(s->value[i], least, MOST_SIDE) && floor(s->value[i]) == s->value[i],
        TY_EVALUE, "%s: %s is %g, expected a whole number from %g to %d", STEP_NAMES[s->kind],
        what, s->value[i], least, (int)MOST_SIDE);
  return TY_OK;
}

/* Fails unless value `at` is a rule of ty.image; 9 chooses by sizes, 10 at random. */
static int check_rule(const ty_image_step *s, int at, bool random)
{
  double v = s->value[at];
  const bool named = v == BY_SIZES || (random && v == AT_RANDOM);
  NEED((check_range(v, 0, RESAMPLINGS - 1) || named) && floor(v) == v, TY_EVALUE,
      "%s: interpolation is %g, expected 0 to %d%s", STEP_NAMES[s->kind], v,
      (int)RESAMPLINGS - 1, random ? ", 9 or 10" : " or 9");
  return TY_OK;
}

static int check_zoom(const ty_image_step *s, bool zoom_in, bool zoom_out)
{
  NEED(!(zoom_in && zoom_out), TY_EVALUE, "%s: zoom_in and zoom_out exclude each other",
      STEP_NAMES[s->kind]);
  return TY_OK;
}

static int check_step(const ty_image_step *s)
{
  const double *v = s->value;
  NEED(s->kind >= 0 && s->kind < TY_STEPS, TY_EVALUE, "there is no step %d", s->kind);
  switch (s->kind) {
  case TY_STEP_RESIZE:
    TRY(check_pixels(s, 0, 2, 1, "a size"));
    return check_rule(s, 3, false);
  case TY_STEP_CROP:
    TRY(check_pixels(s, 0, 2, 0, "a place (x or y)"));
    return check_pixels(s, 2, 4, 1, "a size");
  case TY_STEP_CENTER_CROP:
  case TY_STEP_RANDOM_CROP:
    TRY(check_pixels(s, 0, 2, 1, "a size"));
    return check_rule(s, 2, s->kind == TY_STEP_RANDOM_CROP);
  case TY_STEP_SIZE_CROP:
    TRY(check_pixels(s, 0, 2, 1, "a size"));
    TRY(check_rule(s, 6, true));
    NEED(v[2] > 0 && v[2] <= v[3] && v[3] <= 1, TY_EVALUE,
        "%s: scale is {%g, %g}, expected 0 < least <= largest <= 1", STEP_NAMES[s->kind], v[2],
        v[3]);
    NEED(v[4] > 0 && v[4] <= v[5] && v[5] <= MOST_SIDE, TY_EVALUE,
        "%s: ratio is {%g, %g}, expected 0 < least <= largest <= %d", STEP_NAMES[s->kind], v[4],
        v[5], (int)MOST_SIDE);
    return TY_OK;
  case TY_STEP_BORDER: return check_pixels(s, 0, 4, 0, "a border of pad");
  case TY_STEP_FLIP_COLUMNS:
  case TY_STEP_FLIP_ROWS:
  case TY_STEP_GREY:
  case TY_STEP_MAYBE:
    return check_range(v[0], 0, 1) ? TY_OK : fail_step(s, TY_EVALUE, "p is not in 0 to 1");
  case TY_STEP_BRIGHTNESS:
  case TY_STEP_CONTRAST:
  case TY_STEP_SATURATION:
  case TY_STEP_HUE:
    NEED(v[0] <= v[1], TY_EVALUE, "%s: the factors are {%g, %g}, expected {least, largest}",
        STEP_NAMES[s->kind], v[0], v[1]);
    return TY_OK;
  case TY_STEP_NORMALIZE:
    for (int i = 3; i < 3 + (int)v[7]; i++)
      if (i < 6 && v[i] == 0) return fail_step(s, TY_EVALUE, "std has a 0");
    return (v[6] == 1 || v[6] == 3) && (v[7] == 1 || v[7] == 3)
        ? TY_OK : fail_step(s, TY_EVALUE, "mean and std have 1 or 3 numbers");
  case TY_STEP_CAST:
    return floor(v[0]) == v[0] && check_range(v[0], 0, TY_BF16) && dtype_size((int)v[0])
        ? TY_OK : fail_step(s, TY_EVALUE, "there is no such dtype");
  case TY_STEP_ROTATE:
    NEED(v[0] - v[0] == 0, TY_EVALUE, "%s: the angle is %g degrees, expected a finite number",
        STEP_NAMES[s->kind], v[0]);
    return check_zoom(s, v[1] != 0, v[2] != 0);
  case TY_STEP_RANDOM_ROTATE:
    NEED(v[0] < v[1] && v[1] - v[0] < HUGE_VAL, TY_EVALUE,
        "%s: angle_limits are {%g, %g}, expected {least, largest}", STEP_NAMES[s->kind], v[0],
        v[1]);
    NEED(check_range(v[4], 0, 1), TY_EVALUE,
        "%s: rotate_with_proba is %g, expected 0 to 1", STEP_NAMES[s->kind], v[4]);
    return check_zoom(s, v[2] != 0, v[3] != 0);
  default: return TY_OK;
  }
}

int steps_check(const ty_image_step *step, int n)
{
  for (int i = 0; i < n; i++) {
    TRY(check_step(&step[i]));
    NEED(step[i].count >= 0 && step[i].count < n - i, TY_EVALUE,
        "step %d chooses about %d steps, %d follow", i, step[i].count, n - 1 - i);
  }
  return TY_OK;
}
