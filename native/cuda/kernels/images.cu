// images.cu - images as arrays: converts pixels 0 .. 255 with channels last to planes in 0 .. 1,
// and normalises planes by mean and deviation of their channel, with gradients; adds borders by the
// rules of image/pixel.h, and mirrors images at random. Method: one thread per element. Bound:
// bytes.
#ifndef T
#include "prelude.cuh"
#include "base/philox.h"
#include "image/pixel.h"
#define T float      // pixels
#include "team.cuh"
#include "draw.cuh"
#endif

typedef computes<T>::type C;

extern "C" __global__ void to_planes(float *y, const T *x, i64 n, i64 pixels, i64 channels)
{
  EACH(i, n)
  {
    i64 plane = i / pixels, image = plane / channels;
    y[i] = get<float>(x[(image * pixels + i % pixels) * channels + plane % channels]) / 255;
  }
}

extern "C" __global__ void to_planes_back(T *dx, const float *g, i64 n, i64 pixels, i64 channels)
{
  EACH(i, n)
  {
    i64 image = i / channels / pixels;
    set(dx[i], g[(image * channels + i % channels) * pixels + i / channels % pixels] / 255);
  }
}

// Sizes. one_mean, one_deviation: whether all channels share entry 0.
struct normalize_args {
  i64 n, pixels, channels, one_mean, one_deviation;
  double mean[128], deviation[128];
};

extern "C" __global__ void normalize(
    T *y, const T *x, i32 back, const struct normalize_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 c = i / s.pixels % s.channels;
    C mean = back ? (C)0 : (C)s.mean[s.one_mean ? 0 : c];
    set(y[i], (get<C>(x[i]) - mean) / (C)s.deviation[s.one_deviation ? 0 : c]);
  }
}

// -- one image (height, width, channels) ----------------------------------------------------------

// Sizes. value: pixel of a constant border, by channel.
struct border_args { i64 n, h, w, channels, width, top, left; double value[4]; i32 kind; };

extern "C" __global__ void add_border(
    T *y, const T *x, const struct border_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 k = i % s.channels, column = i / s.channels % s.width, row = i / s.channels / s.width;
    i64 from = border_source(s.kind, column - s.left, s.w);
    i64 line = border_source(s.kind, row - s.top, s.h);
    double value = s.value[k < 3 ? k : 3];
    if (from >= 0 && line >= 0)
      y[i] = x[(line * s.w + from) * s.channels + k];
    else
      set(y[i], sizeof(T) == 1 ? (float)byte_of((float)rint(value)) : (float)value);
  }
}

// Writes x to y, with probability 1/2 in reverse order along the axis (outer, size, inner).
extern "C" __global__ void flip_at_random(T *y, const T *x, i64 n, i64 size, i64 inner,
    const struct draw_key __grid_constant__ key)
{
  bool flips = random_flip(draw(key, 0).w[0]);
  EACH(i, n)
  {
    i64 at = i / inner % size;
    y[i] = x[flips ? i + (size - 1 - 2 * at) * inner : i];
  }
}
