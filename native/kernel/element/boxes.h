/* boxes.h - boxes, their overlaps, and boxes relative to anchors, shared by C and CUDA. A box is
** two corners and its area. Since overlaps are compared with thresholds, they are rounded to the
** data's type (`single`: float32), so that float32 data decides ties as float32 arithmetic does. A
** box with a NaN overlaps nothing. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* Forms of a box as four numbers. */
enum {
  CORNER,                                             /* x1, y1, x2, y2 */
  CENTER,                                             /* x, y, width, height */
};

struct box { double x1, y1, x2, y2, area; };

struct metric {
  bool single;                                        /* round as float32 does */
  double pixel;                                       /* 1 if sides include both ends, else 0 */
};

/* Returns v rounded to the data's type. */
TY_DEVICE_FN double box_held(const struct metric *m, double v)
{
  return m->single ? (double)(float)v : v;
}

/* Returns the box given by four numbers in a form. */
TY_DEVICE_FN struct box box_of(const struct metric *m, const double v[4], int form)
{
  struct box b = { v[0], v[1], v[2], v[3], 0 };
  double w = v[2], h = v[3];
  if (form == CENTER) {
    b.x1 = box_held(m, v[0] - w / 2);
    b.x2 = box_held(m, v[0] + w / 2);
    b.y1 = box_held(m, v[1] - h / 2);
    b.y2 = box_held(m, v[1] + h / 2);
  }
  else {
    w = box_held(m, box_held(m, v[2] - v[0]) + m->pixel);
    h = box_held(m, box_held(m, v[3] - v[1]) + m->pixel);
  }
  b.area = w < 0 || h < 0 ? 0 : box_held(m, w * h);
  return b;
}

/* Returns the length of the intersection of sides a1 .. a2 and b1 .. b2; 0 or less if there is
** none. */
TY_DEVICE_FN double box_side(const struct metric *m, double a1, double a2, double b1, double b2)
{
  double first = a1 > b1 ? a1 : b1, last = a2 < b2 ? a2 : b2;
  return box_held(m, box_held(m, last - first) + m->pixel);
}

/* Returns the intersection of two boxes over their union. */
TY_DEVICE_FN double box_overlap(const struct metric *m, const struct box *a, const struct box *b)
{
  double w = box_side(m, a->x1, a->x2, b->x1, b->x2);
  double h = box_side(m, a->y1, a->y2, b->y1, b->y2);
  double both = w > 0 && h > 0 ? box_held(m, w * h) : 0, sum = a->area + b->area;
  if (sum != sum) return NAN;
  return both > 0 ? box_held(m, both / box_held(m, box_held(m, sum) - both)) : 0;
}

/* Converts a box in place to form `to` from the other form. */
TY_DEVICE_FN void box_reform(double v[4], int to)
{
  for (int i = 0; i < 2; i++) {
    double a = v[i], b = v[i + 2];
    v[i] = to == CENTER ? (a + b) / 2 : a - b / 2;
    v[i + 2] = to == CENTER ? b - a : a + b / 2;
  }
}

/* Sets middle and size, per axis, of the box with corners v. */
TY_DEVICE_FN void box_middle(const double v[4], double middle[2], double size[2])
{
  for (int i = 0; i < 2; i++) {
    middle[i] = (v[i] + v[i + 2]) / 2;
    size[i] = v[i + 2] - v[i];
  }
}

/* Sets `to` to the offsets of an object from an anchor, less the means, divided by the stds. */
TY_DEVICE_FN void box_encode(const double anchor[4], const double object[4], const double mean[4],
    const double std[4], double to[4])
{
  double from[2], size[2], middle[2], real[2];
  box_middle(anchor, from, size);
  box_middle(object, middle, real);
  for (int k = 0; k < 2; k++) {
    to[k] = ((middle[k] - from[k]) / size[k] - mean[k]) / std[k];
    to[k + 2] = (log(real[k] / size[k]) - mean[k + 2]) / std[k + 2];
  }
}

/* Sets `to` to the corners of the box with offsets `by` times std from an anchor. limit: if above
** 0, the most by which the logarithms of width and height grow. */
TY_DEVICE_FN void box_decode(const double middle[2], const double size[2], const double by[4],
    const double std[4], double limit, double to[4])
{
  for (int k = 0; k < 2; k++) {
    double grow = by[k + 2] * std[k + 2];
    if (limit > 0 && grow > limit) grow = limit;
    double half = exp(grow) * size[k] / 2, at = by[k] * std[k] * size[k] + middle[k];
    to[k] = at - half;
    to[k + 2] = at + half;
  }
}
