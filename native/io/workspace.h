/* workspace.h - a thread's state for image augmentation: random numbers, two buffers, and the steps
** that all pipelines share (decoding, resizing, cropping, borders).
**
** Random numbers depend on (seed, epoch, sample) alone, so results do not depend on which thread
** works on which sample.
*/
#pragma once
#include "base/philox.h"
#include "image/codec.h"
#include "io/reader.h"

/* The random numbers of a sample. used: how many were drawn so far. */
struct rng { uint64_t seed, epoch, sample; uint32_t used; };
double  rng_unit(struct rng *c);                                        /* [0, 1) */
double  rng_between(struct rng *c, double low, double high);
int64_t rng_below(struct rng *c, int64_t n);                            /* 0 .. n - 1 */
uint32_t rng_word(struct rng *c);

struct buffer { void *p; size_t n; };                   /* p grows, n: its bytes */
/* The image `now` is in image[at]; steps that move pixels write the other buffer and swap.
** Zero-initialised: empty. */
struct workspace { struct buffer image[2], scratch; int at; struct pixels now; };
void workspace_done(struct workspace *s);
int  workspace_decode(struct workspace *s, struct file_bytes file, int64_t channels);
/* Further values of inter_method, after the rules of image/taps.h. */
enum { BY_SIZES = 9, AT_RANDOM = 10 };
/* Returns the rule for resizing the image to h x w: `how` itself, or what BY_SIZES (resampling_for)
** or AT_RANDOM chooses. */
int64_t workspace_choose_rule(
    const struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w);
/* Resizes the image. how: see workspace_choose_rule. */
int  workspace_resize(struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w);
/* Resizes the image so that the shorter side becomes `size`. */
int  workspace_resize_short(struct workspace *s, int64_t how, struct rng *c, int64_t size);
/* Crops to the h x w pixels from (y, x) on. */
int  workspace_crop(struct workspace *s, int64_t y, int64_t x, int64_t h, int64_t w);
/* Places the image at (top, left) in h x w pixels of `fill`. */
int  workspace_border(
    struct workspace *s, int64_t h, int64_t w, int64_t top, int64_t left, int64_t fill);
/* Returns in *out the other buffer as an image of this dtype and size, with the channels of the
** current one. */
int  workspace_other(struct workspace *s, int dtype, int64_t h, int64_t w, struct pixels *out);
/* Makes the image in the other buffer the current one. */
void workspace_swap(struct workspace *s, struct pixels image);
/* Adds to hue, lightness and saturation, in units of bytes; the hue, 0 to 180, is clamped. Images
** of one channel are not changed. */
void workspace_shift_hls(struct workspace *s, float hue, float light, float saturation);

/* A value v of a channel becomes v * factor + offset. mean: NULL, or a mean image (channels,
** height, width) of images that are not mirrored, which is subtracted before. */
struct levels { float factor[4], offset[4]; const float *mean; };
/* Writes the image to `out`, channels first, as a float dtype or uint8, or as int8, rounded, for
** which factors are 1. */
void workspace_put(
    const struct workspace *s, int dtype, const struct levels *l, bool mirror, void *out);

/* -- parameters: tables of fields of a struct -------------------------------------------------- */

struct integer_option { const char *key; size_t at; int64_t init, least; };
struct real_option  { const char *key; size_t at; double init; };
int option_bad(const char *key, const char *expected);
int options_integers(const struct options *o, const struct integer_option *list, int n, void *to);
int options_reals(const struct options *o, const struct real_option *list, int n, void *to);

/* Loads the mean image of a file, which must have the shape of a sample. The caller frees it by
** mem_free. */
int mean_image_load(const char *path, const ty_desc *shape, float **out);
