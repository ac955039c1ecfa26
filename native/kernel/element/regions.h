/* regions.h - regions of images and their bins, shared by C and CUDA: ROIPooling, ROIAlign,
** RROIAlign, PSROIPooling and its deformable form. Axis 0 is y, axis 1 is x. Coordinates are
** rounded to the data's type; single: it is float32. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* Returns v rounded to the data's type. */
TY_DEVICE_FN double region_held(int single, double v) { return single ? (double)(float)v : v; }

/* Returns i bounded to low .. high. */
TY_DEVICE_FN int64_t region_clip(int64_t i, int64_t low, int64_t high)
{
  return i < low ? low : i > high ? high : i;
}

/* -- ROIPooling: maxima over bins that may overlap --------------------------------------------- */

/* Returns the nearest integer; 0 for NaN and for magnitudes of 1e9 or more. */
TY_DEVICE_FN int64_t region_rounded(double v)
{
  return v > -1e9 && v < 1e9 ? (int64_t)round(v) : 0;
}

struct pool_region {
  int64_t image;                                      /* -1: it does not exist */
  int64_t first[2], size[2];                          /* in pixels */
};

/* Returns the region of five numbers: image, x1, y1, x2, y2. */
TY_DEVICE_FN struct pool_region pool_region(const double v[5], double scale, int64_t images)
{
  struct pool_region g;
  g.image = v[0] >= 0 && v[0] < (double)images ? (int64_t)v[0] : -1;
  for (int i = 0; i < 2; i++) {
    int64_t last = region_rounded(v[4 - i] * scale);
    g.first[i] = region_rounded(v[2 - i] * scale);
    g.size[i] = last - g.first[i] + 1 > 1 ? last - g.first[i] + 1 : 1;
  }
  return g;
}

/* Pixels from .. to - 1. */
struct bin_ends { int64_t from, to; };

/* Returns the pixels of bin i of n along an axis of `limit` pixels. */
TY_DEVICE_FN struct bin_ends pool_bin(
    const struct pool_region *g, int axis, int64_t i, int64_t n, int64_t limit)
{
  float bin = (float)g->size[axis] / (float)n;
  int64_t a = (int64_t)floorf((float)i * bin) + g->first[axis];
  int64_t b = (int64_t)ceilf((float)(i + 1) * bin) + g->first[axis];
  struct bin_ends e = { region_clip(a, 0, limit), region_clip(b, 0, limit) };
  return e;
}

/* -- ROIAlign: means of bilinear samples ------------------------------------------------------- */

/* What all regions share. */
struct align_grid {
  double scale;                                       /* pixels per unit of a region's numbers */
  int64_t bins[2];
  int64_t size[2];                                    /* of the images, in pixels */
  int64_t images;
  int64_t ratio;                                      /* samples per side of a bin; 0: by size */
  int32_t aligned;                                    /* pixels have their centre at + 0.5 */
  int32_t rotated;                                    /* regions have an angle */
  int32_t single;
};

struct align_region {
  int64_t image;                                      /* -1: there are no samples */
  double start[2];                                    /* of a rotated region, from its centre */
  double bin[2];                                      /* size of a bin, in pixels */
  double grid[2];                                     /* samples per bin */
  double centre[2], cosine, sine;                     /* of a rotated region */
};

/* Returns the region of five numbers, or six of a rotated one. v is overwritten. */
TY_DEVICE_FN struct align_region align_region(const struct align_grid *k, double v[6])
{
  struct align_region g = { -1, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, 1, 0 };
  double scale = region_held(k->single, k->scale), shift = k->aligned ? 0.5 : 0;
  for (int i = 0; i < (k->rotated ? 6 : 5); i++) {
    if (i > 0 && i < 5) v[i] = region_held(k->single, v[i] * scale);
    if (!(fabs(v[i]) <= 1e9)) return g;
  }
  if (!(v[0] > -1 && v[0] < (double)k->images)) return g;
  for (int i = 0; i < 2; i++) {
    double first = region_held(k->single, v[2 - i] - shift), size = v[4 - i];
    if (!k->rotated) size = region_held(k->single, region_held(k->single, size - shift) - first);
    if (k->aligned && !(size > 0)) return g;
    if (!k->aligned && size < 1) size = 1;
    g.centre[i] = k->rotated ? first : 0;
    g.start[i] = k->rotated ? region_held(k->single, -size / 2) : first;
    g.bin[i] = region_held(k->single, size / (double)k->bins[i]);
    g.grid[i] = k->ratio > 0 ? (double)k->ratio : fmax(ceil(g.bin[i]), 1.0);
  }
  if (k->rotated) {
    double angle = region_held(k->single, v[5] * (3.14159265358979323846 / 180));
    g.cosine = region_held(k->single, cos(angle));
    g.sine = region_held(k->single, sin(angle));
  }
  g.image = (int64_t)v[0];
  return g;
}

/* Returns the coordinate of sample i of bin b along an axis, before rotation. */
TY_DEVICE_FN double align_sample(
    const struct align_grid *k, const struct align_region *g, int axis, int64_t b, double i)
{
  double move = region_held(k->single, (double)b * g->bin[axis]);
  double first = region_held(k->single, g->start[axis] + move);
  double step = region_held(k->single, (i + 0.5) * g->bin[axis]);
  return region_held(k->single, first + region_held(k->single, step / g->grid[axis]));
}

/* Samples from .. to - 1. */
struct sample_ends { double from, to; };
/* Returns the samples of bin b along an axis that may be within low .. high, up to two more at each
** end. */
TY_DEVICE_FN struct sample_ends align_within(
    const struct align_region *g, int axis, int64_t b, double low, double high)
{
  double step = g->bin[axis] / g->grid[axis], first = g->start[axis] + (double)b * g->bin[axis];
  struct sample_ends e = { fmin(fmax(floor((low - first) / step) - 2, 0.0), g->grid[axis]),
    fmin(fmax(ceil((high - first) / step) + 2, 0.0), g->grid[axis]) };
  return e;
}

/* Two pixels along an axis. */
struct align_tap {
  int64_t at;                                         /* -1: the sample is outside */
  int64_t next;
  double weight;                                      /* of the second */
};

/* Returns the pixels of the sample at coordinate v. */
TY_DEVICE_FN struct align_tap align_tap(const struct align_grid *k, int axis, double v)
{
  struct align_tap t = { -1, 0, 0 };
  double most = (double)k->size[axis];
  if (!(v >= -1 && v <= most)) return t;
  v = fmin(fmax(v, 0.0), most - 1);
  t.at = (int64_t)v;
  t.next = t.at + 1 < k->size[axis] ? t.at + 1 : t.at;
  t.weight = region_held(k->single, v - (double)t.at);
  return t;
}

/* Replaces the coordinates of a sample of a rotated region by those in the image. */
TY_DEVICE_FN void align_turn(
    const struct align_grid *k, const struct align_region *g, double *y, double *x)
{
  double down = *y, across = *x;
  int s = k->single;
  *y = region_held(s, region_held(s, down * g->cosine) - region_held(s, across * g->sine));
  *y = region_held(s, *y + g->centre[0]);
  *x = region_held(s, region_held(s, across * g->cosine) + region_held(s, down * g->sine));
  *x = region_held(s, *x + g->centre[1]);
}

/* Sets *low and *high to the ends of the image along an axis before the rotation. */
TY_DEVICE_FN void align_image(const struct align_grid *k, const struct align_region *g, int axis,
    double *low, double *high)
{
  *low = INFINITY;
  *high = -INFINITY;
  for (int i = 0; i < 4; i++) {
    double y = (i / 2 ? (double)k->size[0] : -1) - g->centre[0];
    double x = (i % 2 ? (double)k->size[1] : -1) - g->centre[1];
    double corner = axis ? x * g->cosine - y * g->sine : y * g->cosine + x * g->sine;
    *low = fmin(*low, corner);
    *high = fmax(*high, corner);
  }
}

/* -- PSROIPooling: each bin reads another channel ---------------------------------------------- */

/* What all regions share. */
struct ps_grid {
  double scale;                                       /* pixels per unit of a region's numbers */
  double trans_std;                                   /* sizes of the region per unit of trans */
  int64_t outputs;                                    /* channels of the result */
  int64_t bins;                                       /* along a side */
  int64_t cells;                                      /* of channels, along a side */
  int64_t parts;                                      /* of trans, along a side */
  int64_t samples;                                    /* along a side of a bin */
  int64_t size[2];                                    /* of the images, in pixels */
  int64_t images;
  int32_t single;
};

struct ps_region {
  int64_t image;                                      /* -1: it does not exist */
  double start[2], size[2], bin[2];                   /* in pixels */
};

/* Returns the region of five numbers. shift: 0.5 where pixels have their centre at + 0.5, else
** 0. */
TY_DEVICE_FN struct ps_region ps_region(const struct ps_grid *k, const double v[5], double shift)
{
  struct ps_region g = { -1, { 0, 0 }, { 0, 0 }, { 0, 0 } };
  int s = k->single;
  double scale = region_held(s, k->scale);
  for (int i = 0; i < 5; i++)
    if (!(fabs(v[i]) < 1e9)) return g;
  for (int i = 0; i < 2; i++) {
    double end = region_held(s, region_held(s, (round(v[4 - i]) + 1) * scale) - shift);
    g.start[i] = region_held(s, region_held(s, round(v[2 - i]) * scale) - shift);
    g.size[i] = fmax(region_held(s, end - g.start[i]), region_held(s, 0.1));
    g.bin[i] = region_held(s, g.size[i] / (double)k->bins);
  }
  if (v[0] > -1 && v[0] < (double)k->images) g.image = (int64_t)v[0];
  return g;
}

/* Returns the cell along an axis whose channels bin i reads. */
TY_DEVICE_FN int64_t ps_cell(const struct ps_grid *k, int64_t i)
{
  int64_t cell = i * k->cells / k->bins;
  return cell < k->cells - 1 ? cell : k->cells - 1;
}

/* Returns the pixels of bin i along an axis. */
TY_DEVICE_FN struct bin_ends ps_pixels(
    const struct ps_grid *k, const struct ps_region *g, int axis, int64_t i)
{
  int s = k->single;
  double first = region_held(s, region_held(s, (double)i * g->bin[axis]) + g->start[axis]);
  double last = region_held(s, region_held(s, (double)(i + 1) * g->bin[axis]) + g->start[axis]);
  double most = (double)k->size[axis];
  struct bin_ends e = { (int64_t)fmin(fmax(floor(first), 0.0), most),
    (int64_t)fmin(fmax(ceil(last), 0.0), most) };
  return e;
}

/* Returns the part of trans along an axis that moves bin i. */
TY_DEVICE_FN int64_t ps_part(const struct ps_grid *k, int64_t i) { return i * k->parts / k->bins; }

/* Returns where the samples of bin i begin along an axis, moved by trans. */
TY_DEVICE_FN double ps_start(
    const struct ps_grid *k, const struct ps_region *g, int axis, int64_t i, double trans)
{
  int s = k->single;
  double move = region_held(s, trans * region_held(s, k->trans_std));
  double first = region_held(s, region_held(s, (double)i * g->bin[axis]) + g->start[axis]);
  return region_held(s, first + region_held(s, move * g->size[axis]));
}

/* Returns the two pixels between which sample i along an axis is, and the weight of the second.
** `at` is -1 if the sample is outside the image. */
TY_DEVICE_FN struct align_tap ps_tap(
    const struct ps_grid *k, const struct ps_region *g, int axis, double start, int64_t i)
{
  struct align_tap t = { -1, 0, 0 };
  double most = (double)k->size[axis];
  double step = region_held(k->single, g->bin[axis] / (double)k->samples);
  double v = region_held(k->single, start + region_held(k->single, (double)i * step));
  if (!(v >= -0.5 && v <= most - 0.5)) return t;
  v = fmin(fmax(v, 0.0), most - 1);
  t.at = (int64_t)floor(v);
  t.next = (int64_t)ceil(v);
  t.weight = v - (double)t.at;
  return t;
}
