/* proposal.h - regions that a region proposal network derives from anchors, shared by C and
** CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include "kernel/element/boxes.h"
#endif

/* Sets v to the corners of an anchor in the first cell. A square of `side` is changed to the ratio
** (height over width) with the same area and rounded sides, then scaled. */
TY_DEVICE_FN void anchor_of(double side, double ratio, double scale, double v[4])
{
  double width = floor(sqrt(floor(side * side / ratio)) + 0.5), height = floor(width * ratio + 0.5);
  double size[2] = { width * scale, height * scale }, middle = (side - 1) / 2;
  for (int i = 0; i < 2; i++) {
    v[i] = middle - (size[i] - 1) / 2;
    v[i + 2] = middle + (size[i] - 1) / 2;
  }
}

/* Moves an anchor's middle by by[0], by[1] of its size, and scales its size by exp(by[2]),
** exp(by[3]). */
TY_DEVICE_FN void stretch_anchor(const double by[4], double v[4])
{
  for (int i = 0; i < 2; i++) {
    double size = v[i + 2] - v[i] + 1, middle = v[i] + (size - 1) / 2 + by[i] * size;
    double half = (exp(by[i + 2]) * size - 1) / 2;
    v[i] = middle - half;
    v[i + 2] = middle + half;
  }
}

struct proposal_rules {
  struct metric m;
  int64_t stride;                                     /* distance of cells, in pixels */
  int64_t least;                                      /* least side, pixels of the unscaled image */
  int64_t corners;                                    /* 1: the network moves corners, in pixels */
};
struct proposal { double v[4], score; };

/* Returns the region of an anchor. v: the anchor in the first cell; cell: column and row; by: the
** network's output for it; info: height, width and scale of the image. The score is set to -1 in
** cells outside the image, if the box or the score is NaN, and for boxes smaller than the least
** side, which are enlarged by half of it at each end. */
TY_DEVICE_FN struct proposal propose(const struct proposal_rules *r, const double v[4],
    const int64_t cell[2], const double by[4], const double info[3], double score)
{
  struct proposal q = { { v[0], v[1], v[2], v[3] }, score };
  double least = box_held(&r->m, (double)r->least * info[2]);
  bool small = false, wrong = score != score;
  for (int i = 0; i < 4; i++) q.v[i] += (double)(cell[i % 2] * r->stride);
  if (r->corners)
    for (int i = 0; i < 4; i++) q.v[i] += by[i];
  else
    stretch_anchor(by, q.v);
  for (int i = 0; i < 4; i++) {
    double end = info[1 - i % 2] - 1, at = q.v[i] < end ? q.v[i] : end;
    wrong |= q.v[i] != q.v[i];
    q.v[i] = box_held(&r->m, at > 0 ? at : 0);
  }
  for (int i = 0; i < 2; i++) small |= q.v[i + 2] - q.v[i] + 1 < least;
  for (int i = 0; i < 4 && small; i++) q.v[i] += i < 2 ? -least / 2 : least / 2;
  bool beyond = (double)cell[0] >= trunc(info[1] / (double)r->stride) ||
      (double)cell[1] >= trunc(info[0] / (double)r->stride);
  if (small || wrong || beyond) q.score = -1;
  return q;
}
