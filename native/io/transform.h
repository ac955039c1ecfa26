/* transform.h - what the transforms of gluon.data.vision do to one image (ty_image_step), in any
** thread.
**
** An image is an array of three dimensions: after TO_TENSOR channels come first, and a step that
** follows takes the first dimension for rows, as the operators of the same names do. Values are
** those of these operators. What is random is drawn from the stream of the sample.
*/
#pragma once
#include "io/workspace.h"

/* What a thread works with: the image is space.now (h, w and c are the dimensions), and may be in
** memory of others that is only read. levels: what bytes become by TO_TENSOR and NORMALIZE, for
** each channel, and of which steps that is so. Zero-initialised is fine. */
struct picture {
  struct workspace space;
  float levels[4][256];
  ty_image_step levels_of;
  bool has_levels;
};
void picture_done(struct picture *p);

/* Checks steps; TY_EVALUE: one that is none, or values that it cannot have. */
int  steps_check(const ty_image_step *step, int n);
int  steps_run(const ty_image_step *step, int n, struct rng *rng, struct picture *p);
