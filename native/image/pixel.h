/* pixel.h - colours of one pixel, and the source of a border's pixel; shared by C and CUDA.
** Channels are red, green, blue[, alpha], or grey; numbers are in 0..255. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

#define GREY_R 0.299f
#define GREY_G 0.587f
#define GREY_B 0.114f

/* Converts a number to a byte: saturates and drops the fraction; 0 for NaN. */
TY_DEVICE_FN unsigned char byte_of(float v)
{
  return v <= 0 ? 0 : v >= 255 ? 255 : v == v ? (unsigned char)v : 0;
}

/* -- hue in degrees; lightness, saturation, red, green and blue in 0..1 ------------------------ */

TY_DEVICE_FN float pixel_most(float a, float b) { return a > b ? a : b; }
TY_DEVICE_FN float pixel_least(float a, float b) { return a < b ? a : b; }

TY_DEVICE_FN void hls_of_rgb(const float rgb[3], float hls[3])
{
  float r = rgb[0], g = rgb[1], b = rgb[2], most = pixel_most(r, pixel_most(g, b)),
        least = pixel_least(r, pixel_least(g, b)), range = most - least, h;
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

/* Returns a ramp that rises at 0..60 degrees and falls at 180..240. */
TY_DEVICE_FN float hue_ramp(float low, float high, float h)
{
  h -= 360 * floorf(h / 360);
  if (h < 60) return low + (high - low) * h / 60;
  if (h < 180) return high;
  return h < 240 ? low + (high - low) * (240 - h) / 60 : low;
}

TY_DEVICE_FN void rgb_of_hls(const float hls[3], float rgb[3])
{
  float h = hls[0], l = hls[1], s = hls[2];
  float high = l <= 0.5f ? l * (1 + s) : l + s - l * s, low = 2 * l - high;
  bool grey = s == 0;
  rgb[0] = grey ? l : hue_ramp(low, high, h + 120);
  rgb[1] = grey ? l : hue_ramp(low, high, h);
  rgb[2] = grey ? l : hue_ramp(low, high, h - 120);
}

/* -- tuning ------------------------------------------------------------------------------------ */

/* Computes what is added to red, green and blue for normal numbers alpha, one per principal
** component of ImageNet's colours. */
TY_DEVICE_FN void lighting_of(const float alpha[3], float rgb[3])
{
  const float value[3] = { 55.46f, 4.794f, 1.148f };
  const float vector[3][3] = { { -0.5675f, 0.7192f, 0.4009f }, { -0.5808f, -0.0045f, -0.8140f },
    { -0.5836f, -0.6948f, 0.4203f } };
  for (int i = 0; i < 3; i++) {
    rgb[i] = 0;
    for (int k = 0; k < 3; k++) rgb[i] += vector[i][k] * value[k] * alpha[k];
  }
}

/* Kinds of adjustment. CONTRAST blends with the image's mean grey, SATURATION with the pixel's
** grey, SATURATION_BLUE with 0.114 of its blue. Images of one channel are changed by BRIGHTNESS and
** CONTRAST only. TUNINGS: no change. */
enum { BRIGHTNESS, CONTRAST, SATURATION, SATURATION_BLUE, HUE, LIGHTING, TUNINGS };
/* alpha: a factor, or for HUE turns of the hue; rgb: added by LIGHTING. */
struct tuning { int kind; float alpha, rgb[3]; };

TY_DEVICE_FN float grey_of(const float *v, int64_t channels)
{
  return channels < 3 ? v[0] : GREY_R * v[0] + GREY_G * v[1] + GREY_B * v[2];
}

TY_DEVICE_FN void blend_pixel(float *v, int64_t channels, float alpha, float grey)
{
  for (int64_t k = 0; k < channels; k++) v[k] = v[k] * alpha + grey;
}

TY_DEVICE_FN void turn_hue(float *v, float alpha)
{
  float rgb[3], hls[3];
  for (int k = 0; k < 3; k++) rgb[k] = v[k] / 255;
  hls_of_rgb(rgb, hls);
  hls[0] += alpha * 360;
  rgb_of_hls(hls, rgb);
  for (int k = 0; k < 3; k++) v[k] = rgb[k] * 255;
}

/* Adjusts a pixel. mean: mean grey of the image, for CONTRAST. */
TY_DEVICE_FN void tune_pixel(const struct tuning *t, float mean, float *v, int64_t channels)
{
  int64_t c = channels < 3 ? channels : 3;
  float rest = 1 - t->alpha;
  if (c < 3 && t->kind > CONTRAST) return;
  switch (t->kind) {
  case BRIGHTNESS: blend_pixel(v, c, t->alpha, 0); break;
  case CONTRAST: blend_pixel(v, c, t->alpha, rest * mean); break;
  case SATURATION: blend_pixel(v, c, t->alpha, rest * grey_of(v, c)); break;
  case SATURATION_BLUE: blend_pixel(v, c, t->alpha, rest * GREY_B * v[2]); break;
  case HUE: turn_hue(v, t->alpha); break;
  case LIGHTING:
    for (int k = 0; k < 3; k++) v[k] += t->rgb[k];
    break;
  default: break;
  }
}

/* -- tuning at random -------------------------------------------------------------------------- */

TY_DEVICE_FN float random_between(uint32_t word, double low, double high)
{
  return (float)(low + (high - low) * unit_f32(word));
}

/* Returns a normal number from two random words (Box and Muller). */
TY_DEVICE_FN float random_normal(struct philox p)
{
  double radius = sqrt(-2 * log1p(-(double)unit_f32(p.w[0])));
  return (float)(radius * cos(6.283185307179586 * unit_f32(p.w[1])));
}

TY_DEVICE_FN bool random_flip(uint32_t word) { return unit_f32(word) < 0.5f; }

/* Draws changes of brightness, contrast, saturation and hue, each between -part and part, in random
** order. Words 1 to 3 determine the order, 4 to 7 the sizes. */
TY_DEVICE_FN void jitter_of(const double part[4], const uint32_t word[8], struct tuning plan[4])
{
  const int kind[4] = { BRIGHTNESS, CONTRAST, SATURATION_BLUE, HUE };
  int order[4] = { 0, 1, 2, 3 };
  for (int i = 3; i > 0; i--) {
    int k = (int)(unit_f32(word[i]) * (float)(i + 1)), held = order[i];
    if (k > i) k = i;
    order[i] = order[k];
    order[k] = held;
  }
  for (int i = 0; i < 4; i++) {
    int k = order[i];
    float alpha = random_between(word[4 + k], -part[k], part[k]);
    plan[i].kind = part[k] > 0 ? kind[k] : TUNINGS;
    plan[i].alpha = kind[k] == HUE ? alpha : 1 + alpha;
  }
}

/* -- borders ----------------------------------------------------------------------------------- */

enum { BORDER_CONSTANT, BORDER_EDGE, BORDER_REFLECT, BORDER_WRAP, BORDER_REFLECT_101, BORDERS };
/* Returns which of n pixels is shown at position i, which may be outside 0 .. n - 1; -1: none. */
TY_DEVICE_FN int64_t border_source(int kind, int64_t i, int64_t n)
{
  if (i >= 0 && i < n) return i;
  switch (kind) {
  case BORDER_EDGE: return i < 0 ? 0 : n - 1;
  case BORDER_REFLECT: return i < 0 ? -1 - i : 2 * n - 1 - i;
  case BORDER_REFLECT_101: return i < 0 ? -i : 2 * n - 2 - i;
  case BORDER_WRAP: return i < 0 ? i + n : i - n;
  default: return -1;
  }
}
