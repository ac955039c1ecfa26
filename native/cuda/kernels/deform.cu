// deform.cu - deformable convolutions: columns of the samples that the taps read, to be multiplied
// by the weight, and gradients from the columns' gradient. kernel/element/deform.h computes where a
// tap reads. One image at a time; each group of its channels has its own offsets. Method: one
// thread per number that is written; gradients of offsets and masks loop over the channels, the
// gradient of the image uses taps.cu. Bound: bytes, gathered.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/deform.h"
#define T float
#define MODULATED 0
#include "team.cuh"
#include "keys.cuh"
#endif

// Sizes. channels: of one group; area: positions of the output.
struct deform_args {
  i64 groups, channels, h, w, area, out_w, taps, kernel_w, stride[2], pad[2], dilate[2];
};
struct mix { struct deform_mix m; double mask; };

// Returns where unit u (group times taps + tap) reads for output position o, and its weights. mask:
// of the image; may be NULL.
FN mix mix_at(const deform_args &s, const T *offset, const T *mask, i64 u, i64 o)
{
  i64 t = u % s.taps, pair = 2 * u * s.area + o;
  i64 row = o / s.out_w * s.stride[0] - s.pad[0] + t / s.kernel_w * s.dilate[0];
  i64 column = o % s.out_w * s.stride[1] - s.pad[1] + t % s.kernel_w * s.dilate[1];
  double y = (double)row + (double)offset[pair], x = (double)column + (double)offset[pair + s.area];
  return { deform_mix(y, x, s.h, s.w, MODULATED), mask ? (double)mask[u * s.area + o] : 1 };
}

FN double mixed(const T *plane, const struct deform_mix &m, const double (&weight)[4])
{
  double sum = 0;
  for (int k = 0; k < 4; k++)
    if (m.weight[k] != 0 || weight[k] != 0) sum += weight[k] * (double)plane[m.at[k]];
  return sum;
}

// Writes columns (groups, channels, taps, area).
extern "C" __global__ void fill_columns(T *columns, const T *x, const T *offset, const T *mask,
    const struct deform_args __grid_constant__ s)
{
  EACH(i, s.groups * s.channels * s.taps * s.area)
  {
    i64 o = i % s.area, t = i / s.area % s.taps, c = i / s.area / s.taps;
    mix m = mix_at(s, offset, mask, c / s.channels * s.taps + t, o);
    set(columns[i], m.mask * mixed(x + c * s.h * s.w, m.m, m.m.weight));
  }
}

// Computes the gradients of offsets and masks. doffset, dmask: NULL where unused.
extern "C" __global__ void sampling_gradients(T *doffset, T *dmask, const T *columns, const T *x,
    const T *offset, const T *mask, const struct deform_args __grid_constant__ s)
{
  EACH(i, s.groups * s.taps * s.area)
  {
    i64 u = i / s.area, o = i % s.area, first = u / s.taps * s.channels;
    mix m = mix_at(s, offset, mask, u, o);
    double down = 0, across = 0, through = 0;
    for (i64 c = first; c < first + s.channels; c++) {
      const T *plane = x + c * s.h * s.w;
      double d = columns[(c * s.taps + u % s.taps) * s.area + o];
      down += d * mixed(plane, m.m, m.m.down);
      across += d * mixed(plane, m.m, m.m.across);
      through += d * mixed(plane, m.m, m.m.weight);
    }
    if (doffset) {
      set(doffset[2 * u * s.area + o], m.mask * down);
      set(doffset[(2 * u + 1) * s.area + o], m.mask * across);
    }
    if (dmask) set(dmask[i], through);
  }
}

// Lists the taps of the image as keys and weights, the input of taps.cu.
extern "C" __global__ void list_taps(sort_key *keys, T *weight, const T *offset, const T *mask,
    const struct deform_args __grid_constant__ s)
{
  EACH(i, s.groups * s.taps * s.area)
  {
    i64 u = i / s.area;
    mix m = mix_at(s, offset, mask, u, i % s.area);
    for (int k = 0; k < 4; k++) {
      const bool is_inside = m.m.weight[k] != 0;
      const u64 key = (u64)(u / s.taps * s.h * s.w + m.m.at[k]);
      keys[4 * i + k] = { is_inside ? key : ~0ULL, 4 * i + k };
      weight[4 * i + k] = (T)(m.mask * m.m.weight[k]);
    }
  }
}

extern "C" __global__ void fill_bias(T *y, const T *bias, i64 n, i64 area)
{
  EACH(i, n) y[i] = bias[i / area];
}
