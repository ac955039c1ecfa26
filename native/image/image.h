/* image.h - images as dense arrays (height, width, channels): resampling, borders, colours. Used by
** operators and by data pipelines. Elements are uint8 or float32; channels are red, green, blue[,
** alpha], or grey.
**
** Resampling gives the same bytes as OpenCV, with which data sets were usually prepared: uint8 is
** resampled in fixed point (11 bits of weight per axis).
*/
#pragma once
#include "image/pixel.h"
#include "image/taps.h"
#include "tensor/tensor.h"

struct pixels { void *p; int dtype; int64_t h, w, c; };

/* Returns the bytes of scratch that resize_pixels needs; may be 0. how: a rule of image/taps.h. */
size_t resize_scratch(const struct pixels *to, const struct pixels *from, int how);
/* Resizes an image. Uses the team of the calling thread. */
void   resize_pixels(const struct pixels *to, const struct pixels *from, int how, void *scratch);
/* Returns the rule that is used for these sizes: LINEAR becomes AREA if both axes are halved, AREA
** becomes WIDE if an axis grows. */
int    resize_rule(const struct pixels *to, const struct pixels *from, int how);
/* Returns whether `to` has exactly half the size of `from` on both axes. */
bool   resize_halves(const struct pixels *to, const struct pixels *from);
/* Returns the default rule for a change of size: cubic to enlarge, area to shrink, else linear. */
int    resampling_for(int64_t h, int64_t w, int64_t to_h, int64_t to_w);

/* Returns whether a border of this kind can extend n pixels by `before` and `after` pixels. */
bool   border_fits(int kind, int64_t n, int64_t before, int64_t after);
/* Places an image at (top, left) and fills the border. value: a number per channel, for
** BORDER_CONSTANT. */
void border_pixels(const struct pixels *to, const struct pixels *from, int64_t top, int64_t left,
    int kind, const double *value);

/* Computes to(x, y) = from(m * (x, y, 1)) for uint8, by a rule of resampling (AREA counts as
** LINEAR). Pixels outside `from` are `fill`. */
void warp_pixels(
    const struct pixels *to, const struct pixels *from, const double m[6], int how, uint8_t fill);
/* Copies the pixels of `from` from (y, x) on, as many as `to` has. */
void   crop_pixels(const struct pixels *to, const struct pixels *from, int64_t y, int64_t x);

/* Adjusts colours (image/pixel.h). `to` may be `from`. */
void tune_pixels(const struct pixels *to, const struct pixels *from, struct tuning t);
