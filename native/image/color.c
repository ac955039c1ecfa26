/* color.c - colours of images: brightness, contrast, saturation, hue, light. */
#include "base/parallel.h"
#include "image/image.h"

/* -- hue, lightness, saturation ---------------------------------------------------------------- */

void hls_of_rgb(const float rgb[3], float hls[3])
{
  float r = rgb[0], g = rgb[1], b = rgb[2], most = MAX(r, MAX(g, b)), least = MIN(r, MIN(g, b)),
        range = most - least, h;
  hls[0] = hls[2] = 0;
  hls[1] = (most + least) * 0.5f;
  if (!(range > 1.1920929e-7f)) return;
  hls[2] = range / (hls[1] < 0.5f ? most + least : 2 - most - least);
  if (most == r)
    h = (g - b) * 60 / range;
  else if (most == g)
    h = (b - r) * 60 / range + 120;
  else
    h = (r - g) * 60 / range + 240;
  hls[0] = h < 0 ? h + 360 : h;
}

static float ramp_of(float low, float high, float h) /* rises at 0..60 degrees, falls at 180..240 */
{
  h -= 360 * floorf(h / 360);
  if (h < 60) return low + (high - low) * h / 60;
  if (h < 180) return high;
  return h < 240 ? low + (high - low) * (240 - h) / 60 : low;
}

void rgb_of_hls(const float hls[3], float rgb[3])
{
  float h = hls[0], l = hls[1], s = hls[2];
  float high = l <= 0.5f ? l * (1 + s) : l + s - l * s, low = 2 * l - high;
  bool grey = s == 0;
  rgb[0] = grey ? l : ramp_of(low, high, h + 120);
  rgb[1] = grey ? l : ramp_of(low, high, h);
  rgb[2] = grey ? l : ramp_of(low, high, h - 120);
}

void lighting_of(const float alpha[3], float rgb[3])
{
  static const float value[3] = { 55.46f, 4.794f, 1.148f };
  static const float vector[3][3] = { { -0.5675f, 0.7192f, 0.4009f },
    { -0.5808f, -0.0045f, -0.8140f }, { -0.5836f, -0.6948f, 0.4203f } };
  for (int i = 0; i < 3; i++) {
    rgb[i] = 0;
    for (int k = 0; k < 3; k++) rgb[i] += vector[i][k] * value[k] * alpha[k];
  }
}

/* -- tuning ------------------------------------------------------------------------------------ */

static float grey_of(const float *v, int64_t c)
{
  return c < 3 ? v[0] : GREY_R * v[0] + GREY_G * v[1] + GREY_B * v[2];
}

static void load_pixel(const struct pixels *a, int64_t i, float *v)
{
  for (int64_t k = 0; k < a->c; k++)
    v[k] = a->dtype == TY_U8 ? ((const uint8_t *)a->p)[i * a->c + k]
                             : ((const float *)a->p)[i * a->c + k];
}

static void store_pixel(const struct pixels *a, int64_t i, const float *v)
{
  for (int64_t k = 0; k < a->c; k++)
    if (a->dtype == TY_U8)
      ((uint8_t *)a->p)[i * a->c + k] = byte_of(v[k]);
    else
      ((float *)a->p)[i * a->c + k] = v[k];
}

static float mean_grey(const struct pixels *a)
{
  double sum = 0;
  float v[4];
  for (int64_t i = 0; i < a->h * a->w; i++) {
    load_pixel(a, i, v);
    sum += grey_of(v, a->c);
  }
  return (float)(sum / (double)(a->h * a->w));
}

static void blend(float *v, int64_t c, float alpha, float grey)
{
  for (int64_t k = 0; k < c; k++) v[k] = v[k] * alpha + grey;
}

static void turn_hue(float *v, float alpha)
{
  float rgb[3], hls[3];
  for (int k = 0; k < 3; k++) rgb[k] = v[k] / 255;
  hls_of_rgb(rgb, hls);
  hls[0] += alpha * 360;
  rgb_of_hls(hls, rgb);
  for (int k = 0; k < 3; k++) v[k] = rgb[k] * 255;
}

struct tune { const struct pixels *to, *from; struct tuning t; float grey; };

static void tune_pixel(const struct tune *a, float *v)
{
  const struct tuning *t = &a->t;
  int64_t c = MIN(a->to->c, 3);
  switch (t->kind) {
  case BRIGHTNESS:
  case CONTRAST: blend(v, c, t->alpha, a->grey); break;
  case SATURATION: blend(v, c, t->alpha, (1 - t->alpha) * grey_of(v, c)); break;
  case SATURATION_BLUE: blend(v, c, t->alpha, (1 - t->alpha) * GREY_B * v[2]); break;
  case HUE: turn_hue(v, t->alpha); break;
  case LIGHTING:
    for (int k = 0; k < 3; k++) v[k] += t->rgb[k];
    break;
  default: break;
  }
}

static void tune_body(int64_t begin, int64_t end, void *context)
{
  const struct tune *a = context;
  float v[4];
  for (int64_t i = begin; i < end; i++) {
    load_pixel(a->from, i, v);
    tune_pixel(a, v);
    store_pixel(a->to, i, v);
  }
}

void tune_pixels(const struct pixels *to, const struct pixels *from, struct tuning t)
{
  struct tune a = { to, from, t, 0 };
  if (to->c < 3 && t.kind != BRIGHTNESS && t.kind != CONTRAST) a.t.kind = TUNINGS;
  if (t.kind == CONTRAST) a.grey = (1 - t.alpha) * mean_grey(from);
  parallel_for(to->h * to->w, 8192, tune_body, &a);
}
