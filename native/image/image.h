/* image.h - images as dense (height, width, channels): resampling, borders, colours. Used by
** operators and by data pipelines. Elements are uint8 or float32; channels are red, green,
** blue[, alpha], or grey alone.
**
** The rules of resampling are those that images prepared with OpenCV were made with: bytes are
** resampled in fixed point (11 bits of weight per axis), so that equal images give equal bytes.
*/
#pragma once
#include <math.h>
#include "tensor/tensor.h"

struct pixels { void *p; int dtype; int64_t h, w, c; };

enum { NEAREST, LINEAR, CUBIC, AREA, LANCZOS, RESAMPLINGS };
/* bytes; 0 is possible */
size_t resize_scratch(const struct pixels *to, const struct pixels *from, int how);
void   resize_pixels(const struct pixels *to, const struct pixels *from, int how, void *scratch);
/* cubic to enlarge, area to shrink, else linear */
int    resampling_for(int64_t h, int64_t w, int64_t to_h, int64_t to_w);

enum { BORDER_CONSTANT, BORDER_EDGE, BORDER_REFLECT, BORDER_WRAP, BORDER_REFLECT_101, BORDERS };
/* whether n pixels can be continued so far */
bool   border_fits(int kind, int64_t n, int64_t before, int64_t after);
void border_pixels(const struct pixels *to, const struct pixels *from, int64_t top, int64_t left,
    int kind, const double *value);

/* to(x, y) = from(m * (x, y, 1)), bytes only, bilinear; what lies outside is `fill`. */
void warp_pixels(
    const struct pixels *to, const struct pixels *from, const double m[6], uint8_t fill);
void   crop_pixels(const struct pixels *to, const struct pixels *from, int64_t y, int64_t x);

/* -- colours: red, green, blue in 0..1; hue in degrees, lightness and saturation in 0..1 ------- */

#define GREY_R 0.299f
#define GREY_G 0.587f
#define GREY_B 0.114f

void hls_of_rgb(const float rgb[3], float hls[3]);
void rgb_of_hls(const float hls[3], float rgb[3]);

/* What a normal number of each principal component adds to red, green and blue (of ImageNet, in
** 0..255). */
void lighting_of(const float alpha[3], float rgb[3]);

/* to = from, tuned; both may be the same. The greyness that contrast and saturation blend with:
** the image's mean grey, the pixel's grey, or, for SATURATION_BLUE, 0.114 of blue alone. Images
** of one channel keep their saturation, hue and light. */
enum { BRIGHTNESS, CONTRAST, SATURATION, SATURATION_BLUE, HUE, LIGHTING, TUNINGS };
/* alpha: a factor, or turns of the hue; rgb: what LIGHTING adds */
struct tuning { int kind; float alpha, rgb[3]; };
void tune_pixels(const struct pixels *to, const struct pixels *from, struct tuning t);

/* Bytes saturate and drop the fraction. */
static inline uint8_t byte_of(float v)
{
  return v <= 0 ? 0 : v >= 255 ? 255 : v == v ? (uint8_t)v : 0;
}
