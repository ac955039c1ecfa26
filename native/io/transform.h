/* transform.h - applies the transforms of gluon.data.vision (ty_image_step) to one image, on any
** thread.
**
** An image is an array of three dimensions. After TO_TENSOR channels come first; a later step
** treats the first dimension as rows, as the operators of the same names do. Results are those of
** these operators. Random numbers come from the sample's stream.
*/
#pragma once
#include "io/workspace.h"

/* A thread's image and memory. The image is space.now, with dimensions (h, w, c); its pixels may
** belong to others, and are never written then. levels: results of TO_TENSOR and NORMALIZE by
** channel and byte; levels_of: the step for which they hold. Zero-initialised: empty. */
struct picture {
  struct workspace space;
  float levels[4][256];
  ty_image_step levels_of;
  bool has_levels;
};
void picture_done(struct picture *p);

/* Checks steps; TY_EVALUE for an unknown one or invalid values. */
int  steps_check(const ty_image_step *step, int n);
/* Applies n steps to the image of p. */
int  steps_run(const ty_image_step *step, int n, struct rng *rng, struct picture *p);
