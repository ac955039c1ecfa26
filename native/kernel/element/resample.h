/* resample.h - the pixels that resizing an image reads along one axis, shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include "base/philox.h"
#endif

/* Returns the first pixel of window o of n over `in` pixels: floor(o in / n). */
TY_DEVICE_FN int64_t window_from(int64_t o, int64_t in, int64_t n) { return o * in / n; }

/* Returns the first pixel after window o: ceil((o + 1) in / n). */
TY_DEVICE_FN int64_t window_to(int64_t o, int64_t in, int64_t n)
{
  return ((o + 1) * in + n - 1) / n;
}

/* The two pixels between which an output lies. */
struct resize_tap {
  int64_t at;                                         /* the first pixel */
  int64_t next;                                       /* steps to the second pixel */
  double weight;                                      /* of the second pixel */
};

/* Returns the pixels of output i of `out`. corners: whether the corner pixels of both images
** coincide; else their edges do. `at` does not decrease as i grows. */
TY_DEVICE_FN struct resize_tap resize_tap(int64_t i, int64_t in, int64_t out, int corners)
{
  double scale = out < 2 ? 0
      : corners          ? (double)(in - 1) / (double)(out - 1)
                         : (double)in / (double)out;
  double x = corners ? (double)i * scale : ((double)i + 0.5) * scale - 0.5;
  if (x < 0) x = 0;
  int64_t at = (int64_t)x < in - 1 ? (int64_t)x : in - 1;
  struct resize_tap t = { at, at < in - 1, x - (double)at };
  return t;
}
