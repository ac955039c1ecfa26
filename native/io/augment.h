/* augment.h - turns the bytes of an image file into a sample of a batch: decoding, random
** augmentation, normalisation.
*/
#pragma once
#include "io/workspace.h"

/* The parameters of ImageRecordIter, by their names there. */
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
/* Reads the options and loads the mean image. shape: (c, h, w). If it fails, nothing has to be
** closed. */
int  augment_open(const struct options *o, const ty_desc *shape, int dtype, struct augment *out);
void augment_close(struct augment *a);

/* Makes a sample of c * h * w elements of `dtype` at out. Each thread has its own rng and s. */
int augment_run(
    const struct augment *a, struct file_bytes file, struct rng *rng, struct workspace *s,
        void *out);
