// resize.cu - resizes images (batch, height, width, channels) by the rules of image/taps.h. Method:
// one thread per position of each axis writes tables of the pixels that it reads and of their
// weights; then one thread per element adds them up row by row, as the two passes of the CPU do, so
// that bytes are equal. Bound: bytes if an image shrinks, else the operations of its taps.
#ifndef T
#include "prelude.cuh"
#include "image/taps.h"
#define T u8          // elements
#define SUM i32       // sum of a row: i32 with fixed-point weights, else float, double for double
#define PAIRS 0       // 1: fixed-point weights, and each result reads two rows
#include "team.cuh"
#endif

// The tables of an axis: position i reads count[i] pixels; its entries begin at i pitch.
struct axis_taps { i32 *count, *index; float *weight; i64 pitch, from, to; };

extern "C" __global__ void list_taps(
    const struct axis_taps __grid_constant__ a, i32 how, i32 inside)
{
  double scale = tap_scale(a.from, a.to);
  EACH(i, a.to)
    a.count[i] = taps_at(how, i, a.from, scale, inside, (int32_t *)a.index + i * a.pitch,
        a.weight + i * a.pitch);
}

struct resize_args { i64 n, channels; axis_taps y, x; i32 twice, cubic; };

FN bool fixed() { return (SUM)0.5 == 0; }
FN SUM weight_of(const axis_taps &a, i64 entry)
{
  return fixed() ? (SUM)fixed_weight(a.weight[entry]) : (SUM)a.weight[entry];
}

// Returns the sum of weighted pixels of `row`, of one channel, for a position.
FN SUM add_row(const T *row, const resize_args &s, i64 position)
{
  SUM sum = 0;
  for (i64 e = position * s.x.pitch; e < position * s.x.pitch + s.x.count[position]; e++)
    sum += (SUM)row[s.x.index[e] * s.channels] * weight_of(s.x, e);
  return sum;
}

// The type of sums over rows: 64-bit integers for fixed-point weights.
typedef own_precision<SUM>::type sums;
FN T result_of(sums sum, bool twice)
{
  if (sizeof(T) != 1) return (T)sum;
  return (T)(fixed() ? clamp_byte((i64)sum >> 2 * WEIGHT_BITS) : byte_of_mean((float)sum, twice));
}

// Returns whether the rows of a byte are added up in float32; see bytes_in_vectors.
FN bool in_vectors(const resize_args &s, i64 column, i64 channel)
{
  return sizeof(T) == 1 && fixed() && s.cubic &&
      column * s.channels + channel < bytes_in_vectors(s.x.to * s.channels);
}

extern "C" __global__ void resize(
    T *y, const T *x, const struct resize_args __grid_constant__ s)
{
  const i64 width = s.x.from * s.channels;
  EACH(i, s.n)
  {
    i64 column = i / s.channels % s.x.to, row = i / s.channels / s.x.to % s.y.to;
    const T *from = x + i / s.channels / s.x.to / s.y.to * s.y.from * width + i % s.channels;
    i64 first = row * s.y.pitch;
#if PAIRS
    i32 a = add_row(from + s.y.index[first] * width, s, column);
    i32 b = add_row(from + s.y.index[first + 1] * width, s, column);
    y[i] = byte_of_pair(a, b, weight_of(s.y, first), weight_of(s.y, first + 1));
#else
    if (in_vectors(s, column, i % s.channels)) {
      float mean = 0;
      for (i64 e = first; e < first + s.y.count[row]; e++)
        mean += part_of_byte((i32)add_row(from + s.y.index[e] * width, s, column),
            (i32)weight_of(s.y, e));
      y[i] = (T)byte_of_mean(mean, false);
      continue;
    }
    sums sum = fixed() ? 1 << (2 * WEIGHT_BITS - 1) : 0;
    for (i64 e = first; e < first + s.y.count[row]; e++)
      sum += (sums)add_row(from + s.y.index[e] * width, s, column) * weight_of(s.y, e);
    y[i] = result_of(sum, s.twice);
#endif
  }
}

extern "C" __global__ void nearest(
    T *y, const T *x, const struct resize_args __grid_constant__ s)
{
  double down = tap_scale(s.y.from, s.y.to), across = tap_scale(s.x.from, s.x.to);
  EACH(i, s.n)
  {
    i64 column = nearest_tap(i / s.channels % s.x.to, s.x.from, across);
    i64 row = nearest_tap(i / s.channels / s.x.to % s.y.to, s.y.from, down);
    i64 image = i / s.channels / s.x.to / s.y.to;
    y[i] = x[((image * s.y.from + row) * s.x.from + column) * s.channels + i % s.channels];
  }
}
