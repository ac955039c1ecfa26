/* augment.h - from the bytes of an image file to a sample of a batch: decoding, random changes,
** normalisation.
*/
#pragma once
#include "io/workspace.h"

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

int augment_run(
    const struct augment *a, struct file_bytes file, struct rng *rng, struct workspace *s,
        void *out);
