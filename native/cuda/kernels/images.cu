// images.cu - images as arrays: pixels in 0 .. 255 with channels last become planes in 0 .. 1, and
// planes are normalised by mean and deviation of their channel; with their gradients. Method: a
// thread an element. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float      // pixels
#include "team.cuh"
#endif

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

// one: the same mean, or deviation, for all channels
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
    T mean = back ? (T)0 : (T)s.mean[s.one_mean ? 0 : c];
    y[i] = (x[i] - mean) / (T)s.deviation[s.one_deviation ? 0 : c];
  }
}
