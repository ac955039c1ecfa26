/* image.h - images as dense (height, width, channels): resampling, borders, colours. Used by
** operators and by data pipelines. Elements are uint8 or float32; channels are red, green,
** blue[, alpha], or grey alone.
**
** The rules of resampling are those that images prepared with OpenCV were made with: bytes are
** resampled in fixed point (11 bits of weight per axis), so that equal images give equal bytes.
*/
#pragma once
#include "image/pixel.h"
#include "image/taps.h"
#include "tensor/tensor.h"

struct pixels { void *p; int dtype; int64_t h, w, c; };

/* Returns the bytes of scratch; 0 is possible. */
size_t resize_scratch(const struct pixels *to, const struct pixels *from, int how);
void   resize_pixels(const struct pixels *to, const struct pixels *from, int how, void *scratch);
/* Returns what a rule becomes for these sizes: AREA or WIDE, too. */
int    resize_rule(const struct pixels *to, const struct pixels *from, int how);
bool   resize_halves(const struct pixels *to, const struct pixels *from);
/* Returns the rule for a size: cubic to enlarge, area to shrink, else linear. */
int    resampling_for(int64_t h, int64_t w, int64_t to_h, int64_t to_w);

/* Returns whether n pixels can be continued so far. */
bool   border_fits(int kind, int64_t n, int64_t before, int64_t after);
void border_pixels(const struct pixels *to, const struct pixels *from, int64_t top, int64_t left,
    int kind, const double *value);

/* Computes to(x, y) = from(m * (x, y, 1)), bytes only, resampled by a rule, AREA as LINEAR; what is
** outside is `fill`. */
void warp_pixels(
    const struct pixels *to, const struct pixels *from, const double m[6], int how, uint8_t fill);
void   crop_pixels(const struct pixels *to, const struct pixels *from, int64_t y, int64_t x);

/* Writes `from`, tuned (image/pixel.h), to `to`; both may be the same. */
void tune_pixels(const struct pixels *to, const struct pixels *from, struct tuning t);
