// regions.cu - pooling over bins of regions of images: ROIPooling, ROIAlign, RROIAlign,
// PSROIPooling and its deformable form, with their gradients. kernel/element/regions.h has the
// geometry of regions, bins and samples. Method: one thread per bin and channel; for gradients, one
// thread per pixel and channel, which gathers from the bins of all regions in order, so that
// results repeat bit for bit. Bound: bytes, gathered; for gradients, pixels times regions.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/regions.h"
#define T float
#define TEAM 32
#include "team.cuh"
#endif

// A pixel of images (count, channels, size).
struct pixel { i64 image, channel, at[2]; };
FN pixel pixel_of(i64 i, i64 channels, const int64_t (&size)[2])
{
  i64 plane = i / size[1] / size[0];
  return { plane / channels, plane % channels, { i / size[1] % size[0], i % size[1] } };
}

FN bool holds(const struct bin_ends &e, i64 i) { return i >= e.from && i < e.to; }

// -- maxima ---------------------------------------------------------------------------------------

struct roi_args {
  double scale;
  i64 n, regions;
  int64_t bins[2], size[2];
  i64 images, channels;
};

FN struct pool_region pool_region_at(const T *rois, i64 r, const roi_args &s)
{
  double v[5];
  for (int i = 0; i < 5; i++) v[i] = rois[5 * r + i];
  return pool_region(v, s.scale, s.images);
}

// Pools regions. argmax: the index of each maximum in its plane, -1 for an empty bin. Either of y
// and argmax may be NULL.
extern "C" __global__ void roi_pool(
    T *y, i32 *argmax, const T *x, const T *rois, const struct roi_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 bx = i % s.bins[1], by = i / s.bins[1] % s.bins[0], c = i / s.bins[1] / s.bins[0];
    struct pool_region g = pool_region_at(rois, c / s.channels, s);
    const T *plane = x + (g.image * s.channels + c % s.channels) * s.size[0] * s.size[1];
    struct bin_ends v = pool_bin(&g, 0, by, s.bins[0], s.size[0]);
    struct bin_ends u = pool_bin(&g, 1, bx, s.bins[1], s.size[1]);
    i64 best = -1;
    T most = -infinity<T>();
    for (i64 a = v.from; g.image >= 0 && a < v.to; a++)
      for (i64 b = u.from; b < u.to; b++) {
        T value = plane[a * s.size[1] + b];
        if (value > most) {
          most = value;
          best = a * s.size[1] + b;
        }
      }
    if (y) y[i] = best < 0 ? 0 : most;
    if (argmax) argmax[i] = (i32)best;
  }
}

// Computes dx, of s.n elements.
extern "C" __global__ void roi_pool_back(T *dx, const T *dy, const i32 *argmax, const T *rois,
    const struct roi_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    pixel p = pixel_of(i, s.channels, s.size);
    i64 at = p.at[0] * s.size[1] + p.at[1];
    T sum = 0;
    for (i64 r = 0; r < s.regions; r++) {
      struct pool_region g = pool_region_at(rois, r, s);
      if (g.image != p.image) continue;
      for (i64 by = 0; by < s.bins[0]; by++) {
        if (!holds(pool_bin(&g, 0, by, s.bins[0], s.size[0]), p.at[0])) continue;
        for (i64 bx = 0; bx < s.bins[1]; bx++) {
          i64 from = ((r * s.channels + p.channel) * s.bins[0] + by) * s.bins[1] + bx;
          if (holds(pool_bin(&g, 1, bx, s.bins[1], s.size[1]), p.at[1]) && argmax[from] == at)
            sum += dy[from];
        }
      }
    }
    set(dx[i], sum);
  }
}

// -- means of samples -----------------------------------------------------------------------------

// Sizes. own: whether each bin reads its own channels.
struct align_args { struct align_grid grid; i64 n, regions, channels, own; };

FN struct align_region align_region_at(const T *rois, i64 r, const struct align_grid &k)
{
  const i64 columns = k.rotated ? 6 : 5;
  double v[6];
  for (i64 i = 0; i < columns; i++) v[i] = rois[r * columns + i];
  return align_region(&k, v);
}

FN double mixed(
    const T *plane, i64 width, const struct align_tap &v, const struct align_tap &u)
{
  const T *a = plane + v.at * width, *b = plane + v.next * width;
  double above = (1 - v.weight) * (1 - u.weight) * a[u.at] + (1 - v.weight) * u.weight * a[u.next];
  return above + v.weight * (1 - u.weight) * b[u.at] + v.weight * u.weight * b[u.next];
}

// Aligns regions; s.channels are those of the result.
extern "C" __global__ void align(
    T *y, const T *x, const T *rois, const struct align_args __grid_constant__ s)
{
  const struct align_grid &k = s.grid;
  const i64 bins = k.bins[0] * k.bins[1];
  EACH(i, s.n)
  {
    i64 bin = i % bins, c = i / bins % s.channels;
    struct align_region g = align_region_at(rois, i / bins / s.channels, k);
    double sum = 0, low[2], high[2];
    if (g.image >= 0) {
      i64 plane = s.own ? (g.image * s.channels + c) * bins + bin : g.image * s.channels + c;
      for (int d = 0; d < 2; d++) align_image(&k, &g, d, &low[d], &high[d]);
      struct sample_ends v = align_within(&g, 0, bin / k.bins[1], low[0], high[0]);
      struct sample_ends u = align_within(&g, 1, bin % k.bins[1], low[1], high[1]);
      for (double a = v.from; a < v.to; a++)
        for (double b = u.from; b < u.to; b++) {
          double down = align_sample(&k, &g, 0, bin / k.bins[1], a);
          double across = align_sample(&k, &g, 1, bin % k.bins[1], b);
          if (k.rotated) align_turn(&k, &g, &down, &across);
          struct align_tap ty = align_tap(&k, 0, down), tx = align_tap(&k, 1, across);
          if (ty.at >= 0 && tx.at >= 0)
            sum += mixed(x + plane * k.size[0] * k.size[1], k.size[1], ty, tx);
        }
      sum *= 1 / (g.grid[0] * g.grid[1]);
    }
    set(y[i], sum);
  }
}

// Returns the weight of a pixel in a sample along one axis.
FN double part_of_tap(const struct align_tap &t, i64 i)
{
  if (t.at < 0) return 0;
  return (t.at == i ? 1 - t.weight : 0) + (t.next == i ? t.weight : 0);
}

// Returns the weight of a pixel in bin (by, bx) of a region, summed over its samples.
FN double part_of_bin(
    const struct align_grid &k, const struct align_region &g, const pixel &p, i64 by, i64 bx)
{
  struct sample_ends v = align_within(&g, 0, by, p.at[0] - 1, p.at[0] + 1);
  struct sample_ends u = align_within(&g, 1, bx, p.at[1] - 1, p.at[1] + 1);
  double sum = 0;
  for (double a = v.from; a < v.to; a++) {
    double down = part_of_tap(align_tap(&k, 0, align_sample(&k, &g, 0, by, a)), p.at[0]);
    for (double b = u.from; down != 0 && b < u.to; b++)
      sum += down * part_of_tap(align_tap(&k, 1, align_sample(&k, &g, 1, bx, b)), p.at[1]);
  }
  return sum;
}

// Computes dx, of s.n elements; s.channels are those of dy.
extern "C" __global__ void align_back(
    T *dx, const T *dy, const T *rois, const struct align_args __grid_constant__ s)
{
  const struct align_grid &k = s.grid;
  const i64 bins = k.bins[0] * k.bins[1];
  EACH(i, s.n)
  {
    pixel p = pixel_of(i, s.own ? s.channels * bins : s.channels, k.size);
    i64 c = s.own ? p.channel / bins : p.channel;
    i64 first = s.own ? p.channel % bins : 0, end = s.own ? first + 1 : bins;
    double sum = 0;
    for (i64 r = 0; r < s.regions; r++) {
      struct align_region g = align_region_at(rois, r, k);
      if (g.image != p.image) continue;
      for (i64 bin = first; bin < end; bin++) {
        double part = part_of_bin(k, g, p, bin / k.bins[1], bin % k.bins[1]);
        if (part != 0)
          sum += part * (dy[(r * s.channels + c) * bins + bin] * (1 / (g.grid[0] * g.grid[1])));
      }
    }
    set(dx[i], sum);
  }
}

// -- bins that read different channels ------------------------------------------------------------

// Sizes. channels: those of the images; classes: those of trans, 0 if there is none.
struct ps_args { struct ps_grid grid; i64 n, regions, channels, classes; };
struct ps_bin_index { i64 region, output, at[2]; };   // a bin

FN struct ps_region ps_region_at(const T *rois, i64 r, const struct ps_grid &k, double shift)
{
  double v[5];
  for (int i = 0; i < 5; i++) v[i] = rois[5 * r + i];
  return ps_region(&k, v, shift);
}
FN ps_bin_index ps_bin_of(i64 i, const struct ps_grid &k)
{
  i64 output = i / k.bins / k.bins;
  return { output / k.outputs, output % k.outputs, { i / k.bins % k.bins, i % k.bins } };
}
FN i64 ps_channel(const struct ps_grid &k, const ps_bin_index &b)
{
  return (b.output * k.cells + ps_cell(&k, b.at[0])) * k.cells + ps_cell(&k, b.at[1]);
}
FN double ps_area(const struct bin_ends &v, const struct bin_ends &u)
{
  return v.to > v.from && u.to > u.from ? (double)((v.to - v.from) * (u.to - u.from)) : 0;
}

extern "C" __global__ void ps_mean(
    T *y, const T *x, const T *rois, const struct ps_args __grid_constant__ s)
{
  const struct ps_grid &k = s.grid;
  EACH(i, s.n)
  {
    ps_bin_index b = ps_bin_of(i, k);
    struct ps_region g = ps_region_at(rois, b.region, k, 0);
    struct bin_ends v = ps_pixels(&k, &g, 0, b.at[0]), u = ps_pixels(&k, &g, 1, b.at[1]);
    double area = g.image < 0 ? 0 : ps_area(v, u), sum = 0;
    const T *plane = x + (g.image * s.channels + ps_channel(k, b)) * k.size[0] * k.size[1];
    for (i64 a = v.from; area > 0 && a < v.to; a++)
      for (i64 c = u.from; c < u.to; c++) sum += plane[a * k.size[1] + c];
    set(y[i], area > 0 ? (T)(sum / area) : 0);
  }
}

// Returns the bins along an axis that read a cell.
FN struct bin_ends ps_readers(const struct ps_grid &k, i64 cell)
{
  struct bin_ends e = { cell * k.bins / k.cells, k.bins };
  while (e.from > 0 && ps_cell(&k, e.from - 1) >= cell) e.from--;
  while (e.from < k.bins && ps_cell(&k, e.from) < cell) e.from++;
  for (e.to = e.from; e.to < k.bins && ps_cell(&k, e.to) == cell;) e.to++;
  return e;
}

extern "C" __global__ void ps_mean_back(
    T *dx, const T *dy, const T *rois, const struct ps_args __grid_constant__ s)
{
  const struct ps_grid &k = s.grid;
  EACH(i, s.n)
  {
    pixel p = pixel_of(i, s.channels, k.size);
    struct bin_ends rows = ps_readers(k, p.channel / k.cells % k.cells);
    struct bin_ends columns = ps_readers(k, p.channel % k.cells);
    i64 output = p.channel / k.cells / k.cells;
    double sum = 0;
    for (i64 r = 0; r < s.regions; r++) {
      struct ps_region g = ps_region_at(rois, r, k, 0);
      if (g.image != p.image) continue;
      for (i64 by = rows.from; by < rows.to; by++) {
        struct bin_ends v = ps_pixels(&k, &g, 0, by);
        for (i64 bx = columns.from; holds(v, p.at[0]) && bx < columns.to; bx++) {
          struct bin_ends u = ps_pixels(&k, &g, 1, bx);
          if (holds(u, p.at[1]))
            sum += dy[((r * k.outputs + output) * k.bins + by) * k.bins + bx] / ps_area(v, u);
        }
      }
    }
    set(dx[i], sum);
  }
}

// -- the same with offsets ------------------------------------------------------------------------

// Returns the index in trans of a bin's offset along x; its offset along y is one plane further.
FN i64 ps_offset(const ps_args &s, const ps_bin_index &b)
{
  const struct ps_grid &k = s.grid;
  i64 set = b.region * s.classes + b.output / (k.outputs / s.classes);
  return (set * 2 * k.parts + ps_part(&k, b.at[0])) * k.parts + ps_part(&k, b.at[1]);
}
FN double ps_start_at(
    const ps_args &s, const struct ps_region &g, const ps_bin_index &b, const T *trans, int axis)
{
  const struct ps_grid &k = s.grid;
  i64 plane = axis ? 0 : k.parts * k.parts;
  double move = s.classes ? (double)trans[ps_offset(s, b) + plane] : 0;
  return ps_start(&k, &g, axis, b.at[axis], move);
}

extern "C" __global__ void ps_sample(T *y, T *count, const T *x, const T *rois, const T *trans,
    const struct ps_args __grid_constant__ s)
{
  const struct ps_grid &k = s.grid;
  EACH(i, s.n)
  {
    ps_bin_index b = ps_bin_of(i, k);
    struct ps_region g = ps_region_at(rois, b.region, k, 0.5);
    double sum = 0;
    i64 counted = 0;
    if (g.image >= 0) {
      const T *plane = x + (g.image * s.channels + ps_channel(k, b)) * k.size[0] * k.size[1];
      double top = ps_start_at(s, g, b, trans, 0), left = ps_start_at(s, g, b, trans, 1);
      for (i64 j = 0; j < k.samples * k.samples; j++) {
        struct align_tap v = ps_tap(&k, &g, 0, top, j / k.samples);
        struct align_tap u = ps_tap(&k, &g, 1, left, j % k.samples);
        if (v.at < 0 || u.at < 0) continue;
        sum += mixed(plane, k.size[1], v, u);
        counted++;
      }
    }
    if (y) set(y[i], counted ? (T)(sum / (double)counted) : 0);
    if (count) count[i] = (T)counted;
  }
}

extern "C" __global__ void ps_sample_back(T *dx, const T *dy, const T *count, const T *rois,
    const T *trans, const struct ps_args __grid_constant__ s)
{
  const struct ps_grid &k = s.grid;
  EACH(i, s.n)
  {
    pixel p = pixel_of(i, s.channels, k.size);
    struct bin_ends rows = ps_readers(k, p.channel / k.cells % k.cells);
    struct bin_ends columns = ps_readers(k, p.channel % k.cells);
    double sum = 0;
    for (i64 r = 0; r < s.regions; r++) {
      struct ps_region g = ps_region_at(rois, r, k, 0.5);
      if (g.image != p.image) continue;
      for (i64 by = rows.from; by < rows.to; by++)
        for (i64 bx = columns.from; bx < columns.to; bx++) {
          ps_bin_index b = { r, p.channel / k.cells / k.cells, { by, bx } };
          i64 from = ((r * k.outputs + b.output) * k.bins + by) * k.bins + bx;
          if (!(count[from] > 0)) continue;
          double top = ps_start_at(s, g, b, trans, 0), left = ps_start_at(s, g, b, trans, 1);
          double share = (double)dy[from] / (double)count[from];
          for (i64 j = 0; j < k.samples * k.samples; j++) {
            struct align_tap v = ps_tap(&k, &g, 0, top, j / k.samples);
            struct align_tap u = ps_tap(&k, &g, 1, left, j % k.samples);
            if (v.at < 0 || u.at < 0) continue;
            sum += share * part_of_tap(v, p.at[0]) * part_of_tap(u, p.at[1]);
          }
        }
    }
    set(dx[i], sum);
  }
}

// Returns the derivative of a sample's value by its position along an axis, per pixel.
FN double slope_of(
    const T *plane, i64 width, const struct align_tap &v, const struct align_tap &u, int axis)
{
  double a = plane[v.at * width + u.at], b = plane[v.at * width + u.next];
  double c = plane[v.next * width + u.at], d = plane[v.next * width + u.next];
  return axis ? (b - a) * (1 - v.weight) + (d - c) * v.weight
              : (c - a) * (1 - u.weight) + (d - b) * u.weight;
}

// Computes dtrans, of s.n elements, one team per element, which loops over the outputs and bins
// whose offset the element is.
extern "C" __global__ void ps_trans_back(T *dtrans, const T *dy, const T *count, const T *x,
    const T *rois, const T *trans, const struct ps_args __grid_constant__ s)
{
  const struct ps_grid &k = s.grid;
  const i64 bins = k.bins * k.bins, each = k.outputs / s.classes;
  EACH_ROW(e, s.n)
  {
    i64 part = e % (k.parts * k.parts), set = e / (k.parts * k.parts) / 2;
    int axis = e / (k.parts * k.parts) % 2 == 0;
    i64 r = set / s.classes, first = set % s.classes * each;
    struct ps_region g = ps_region_at(rois, r, k, 0.5);
    double sum = 0;
    EACH_OF_TEAM(m, 0, g.image < 0 ? 0 : each * bins)
    {
      ps_bin_index b = { r, first + m / bins, { m / k.bins % k.bins, m % k.bins } };
      i64 from = (r * k.outputs + b.output) * bins + m % bins;
      if (ps_part(&k, b.at[0]) * k.parts + ps_part(&k, b.at[1]) != part) continue;
      if (!(count[from] > 0)) continue;
      const T *plane = x + (g.image * s.channels + ps_channel(k, b)) * k.size[0] * k.size[1];
      double top = ps_start_at(s, g, b, trans, 0), left = ps_start_at(s, g, b, trans, 1);
      double share = (double)dy[from] / (double)count[from];
      for (i64 j = 0; j < k.samples * k.samples; j++) {
        struct align_tap v = ps_tap(&k, &g, 0, top, j / k.samples);
        struct align_tap u = ps_tap(&k, &g, 1, left, j % k.samples);
        if (v.at < 0 || u.at < 0) continue;
        sum += share * slope_of(plane, k.size[1], v, u, axis) * k.trans_std * g.size[axis];
      }
    }
    sum = team_sum(sum);
    if (LEADS) dtrans[e] = plain((T)sum);
  }
}
