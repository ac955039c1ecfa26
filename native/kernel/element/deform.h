/* deform.h - the pixels that a tap of a deformable convolution reads, shared by C and CUDA. Two
** forms differ at the border. `modulated` (with a mask): pixels outside the image are 0, and mixed
** with the image for points from -1 to height and width. Else a point outside [0, height) x [0,
** width) gives 0, and the last row and column extend to the edge. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* The four pixels of a bilinear sample. A pixel outside has index 0 and weight 0. */
struct deform_mix {
  int64_t at[4];                                      /* indices into a plane */
  double weight[4];
  double down[4];                                     /* derivatives of the weights by y */
  double across[4];                                   /* derivatives of the weights by x */
};

/* Returns the pixels and weights of the sample at (y, x). */
TY_DEVICE_FN struct deform_mix deform_mix(
    double y, double x, int64_t height, int64_t width, int modulated)
{
  struct deform_mix m = { { 0 }, { 0 }, { 0 }, { 0 } };
  const bool inside = modulated ? y > -1 && x > -1 : y >= 0 && x >= 0;
  if (!inside || !(y < (double)height && x < (double)width)) return m;
  double top = floor(y), left = floor(x);
  int64_t row = (int64_t)top, column = (int64_t)left;
  double fy = y - top, fx = x - left;
  int sy = 1, sx = 1;
  if (!modulated && row == height - 1) fy = 0, sy = 0; /* the last row extends to the edge */
  if (!modulated && column == width - 1) fx = 0, sx = 0;
  for (int k = 0; k < 4; k++) {
    int64_t i = row + k / 2, j = column + k % 2;
    if (i < 0 || j < 0 || i >= height || j >= width) continue;
    double wy = k / 2 ? fy : 1 - fy, wx = k % 2 ? fx : 1 - fx;
    m.at[k] = i * width + j;
    m.weight[k] = wy * wx;
    m.down[k] = (k / 2 ? sy : -sy) * wx;
    m.across[k] = (k % 2 ? sx : -sx) * wy;
  }
  return m;
}
