/* workspace.h - what a thread works on an image with: random numbers, two buffers, and the steps
** that all pipelines share: decoding, sizes, windows, borders.
**
** A random number is a function of (seed, epoch, sample) alone, so it does not matter which
** thread works on what.
*/
#pragma once
#include "base/philox.h"
#include "image/codec.h"
#include "io/reader.h"

/* used: numbers drawn so far */
struct rng { uint64_t seed, epoch, sample; uint32_t used; };
double  rng_unit(struct rng *c);                                        /* [0, 1) */
double  rng_between(struct rng *c, double low, double high);
int64_t rng_below(struct rng *c, int64_t n);                            /* 0 .. n - 1 */
uint32_t rng_word(struct rng *c);

struct buffer { void *p; size_t n; };                   /* grows */
/* The image is in one of two buffers; a step that moves pixels writes the other one.
** Zero-initialised is fine. */
struct workspace { struct buffer image[2], scratch; int at; struct pixels now; };
void workspace_done(struct workspace *s);
int  workspace_decode(struct workspace *s, struct file_bytes file, int64_t channels);
/* Values of inter_method besides the rules of image/taps.h. */
enum { BY_SIZES = 9, AT_RANDOM = 10 };
/* Returns the rule for a change of the image to h x w pixels: that of `how`, by resampling_for, or
** one of them at random. */
int64_t workspace_choose_rule(
    const struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w);
/* Resizes the image. how: as of workspace_choose_rule. */
int  workspace_resize(struct workspace *s, int64_t how, struct rng *c, int64_t h, int64_t w);
/* Resizes so that the shorter side becomes `size`. */
int  workspace_resize_short(struct workspace *s, int64_t how, struct rng *c, int64_t size);
int  workspace_crop(struct workspace *s, int64_t y, int64_t x, int64_t h, int64_t w);
/* Puts the image at (top, left) within h x w pixels of `fill`. */
int  workspace_border(
    struct workspace *s, int64_t h, int64_t w, int64_t top, int64_t left, int64_t fill);
/* Returns the other buffer as an image of this type and size. */
int  workspace_other(struct workspace *s, int dtype, int64_t h, int64_t w, struct pixels *out);
/* Makes an image in the other buffer the current one. */
void workspace_swap(struct workspace *s, struct pixels image);
/* Adds to hue, lightness and saturation, in units of bytes; the hue of 0 to 180 stops at its
** ends. Images of one channel stay. */
void workspace_shift_hls(struct workspace *s, float hue, float light, float saturation);

/* v * factor + offset, by channel; with a mean image (channels, height, width), which is that of
** images before they are mirrored, its element times factor is taken away */
struct levels { float factor[4], offset[4]; const float *mean; };
/* Writes the image as floats or bytes, channels first; as int8 with factors of 1, and rounded. */
void workspace_put(
    const struct workspace *s, int dtype, const struct levels *l, bool mirror, void *out);

/* -- parameters: tables of what a struct holds ------------------------------------------------- */

struct integer_option { const char *key; size_t at; int64_t init, least; };
struct real_option  { const char *key; size_t at; double init; };
int option_bad(const char *key, const char *expected);
int options_integers(const struct options *o, const struct integer_option *list, int n, void *to);
int options_reals(const struct options *o, const struct real_option *list, int n, void *to);

/* Loads the array of a file, which has the shape of a sample. */
int mean_image_load(const char *path, const ty_desc *shape, float **out);
