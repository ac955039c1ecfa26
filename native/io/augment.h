/* augment.h - from the bytes of an image file to a sample of a batch: decoding, random changes,
** normalisation.
**
** What chance decides is a function of (seed, epoch, sample) alone, so it does not matter which
** thread works on what.
*/
#pragma once
#include "image/codec.h"
#include "base/philox.h"
#include "io/reader.h"

/* used: numbers drawn so far */
struct chance { uint64_t seed, epoch, sample; uint32_t used; };
double  chance_unit(struct chance *c);                                        /* [0, 1) */
int64_t chance_below(struct chance *c, int64_t n);                            /* 0 .. n - 1 */

/* as the parameters of ImageRecordIter are called */
struct augment {
  int64_t c, h, w, dtype;
  bool    rand_crop, random_resized_crop, mirror, rand_mirror, affine;
  int64_t resize, max_rotate_angle, rotate, max_crop_size, min_crop_size, pad, fill_value,
      inter_method;
  int64_t random_h, random_s, random_l;
  double  max_aspect_ratio, min_aspect_ratio, max_shear_ratio, max_random_scale, min_random_scale,
      max_random_area, min_random_area, max_img_size, min_img_size, brightness, contrast,
      saturation, pca_noise;
  double  mean[4], std[4], scale, max_random_contrast, max_random_illumination;
  float  *mean_img;                                   /* (c, h, w), or NULL */
};
int  augment_open(const struct options *o, const ty_desc *shape, int dtype, struct augment *out);
void augment_close(struct augment *a);

struct room { void *p; size_t n; };                   /* grows */
/* of a thread; zero-initialised is fine */
struct studio { struct room image[2], scratch; int at; struct pixels now; };
void studio_done(struct studio *s);
int augment_run(
    const struct augment *a, struct file_bytes file, struct chance *chance, struct studio *s,
        void *out);
