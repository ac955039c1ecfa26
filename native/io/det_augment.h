/* det_augment.h - turns the bytes of an image file and the boxes of its objects into a sample:
** decoding, random augmentation of both, normalisation.
**
** A label is a header (its length, how many numbers an object has, ...) and objects (class, left,
** top, right, bottom as fractions of the image's size, ...).
*/
#pragma once
#include "io/workspace.h"

enum { MOST_SAMPLERS = 32 };

/* One way to draw a crop window, tried up to `trials` times. Pairs are lower and upper bounds. */
struct window_sampler {
  double scale[2], ratio[2], overlap[2], sample_coverage[2], object_coverage[2];
  int64_t trials;
};

/* The parameters of ImageDetRecordIter, by their names there. */
struct det_augment {
  ty_desc shape;
  int64_t dtype, resize, fill_value, inter_method, max_random_hue, max_random_saturation,
      max_random_illumination, num_crop_sampler;
  double  rand_crop_prob, emit_overlap_thresh, rand_pad_prob, max_pad_scale, random_hue_prob,
      random_saturation_prob, random_illumination_prob, max_random_contrast, random_contrast_prob,
      rand_mirror_prob;
  int     emit, mode;
  struct window_sampler sampler[MOST_SAMPLERS];
  double  mean[4], std[4], scale;
  float  *mean_img;
};

int  det_augment_open(const struct options *o, const ty_desc *shape, int dtype,
    struct det_augment *out);
void det_augment_close(struct det_augment *a);

/* Checks that a label of n numbers has this form. */
int  det_label_check(const float *label, int64_t n);
/* Augments an image into `out` and its label (*n numbers) in place. size: channels, height and
** width of the image before it is padded to data_shape. */
int  det_augment_run(const struct det_augment *a, struct file_bytes file, struct rng *rng,
    struct workspace *s, float *label, int64_t *n, float size[3], void *out);
