// taps.cu - gradients of samples at arbitrary positions of an image: each tap, a pixel that a
// sample reads, returns its weight times the sample's gradient to the pixel. Method: taps become
// keys by pixel and are sorted (sort.cu), so that one thread adds the taps of one pixel and channel
// in the order of the samples, and results repeat bit for bit. Bound: bytes of the taps, for each
// channel, and the sort.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#include "keys.cuh"
#endif

// Sizes. keys: the index of a pixel among those of all images (~0: none), and of the tap. Gradients
// of samples are (images, channels, samples); each sample has `fan` taps.
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
