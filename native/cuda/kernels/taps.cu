// taps.cu - gradients of samples at any place of an image: what a sample takes of a pixel, a
// tap, gives its weight times the sample's gradient back. Method: taps are keys by pixel, which are
// sorted (sort.cu), so that a thread adds the taps of one pixel and channel, in the order of the
// samples: equal bits on each run. Bound: bytes of the taps, for each channel, and the sort.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#include "keys.cuh"
#endif

// key: the pixel among those of all images, ~0: of none; index: which tap.
// Gradients of samples have the shape (images, channels, samples); a sample has `fan` taps.
struct tap_args { i64 taps, channels, samples, fan, plane; };

extern "C" __global__ void add_taps(T *dx, const T *dy, const sort_key *keys, const T *weight,
    const struct tap_args __grid_constant__ s)
{
  EACH(i, s.taps * s.channels)
  {
    i64 p = i % s.taps, c = i / s.taps;
    u64 key = keys[p].key;
    if (key == ~0ULL || (p && keys[p - 1].key == key)) continue;
    i64 image = (i64)key / s.plane;
    T sum = 0;
    for (i64 q = p; q < s.taps && keys[q].key == key; q++) {
      i64 tap = keys[q].index, sample = tap / s.fan % s.samples;
      sum += weight[tap] * dy[(image * s.channels + c) * s.samples + sample];
    }
    set(dx[(image * s.channels + c) * s.plane + (i64)key % s.plane], sum);
  }
}
