// correlation.cu - Correlation: means of products (or absolute differences) of patches of one image
// with displaced patches of another. Positions count from the corner of the padding, which is
// zeros. Method: one thread per output; for gradients, one thread per pixel, which gathers from the
// patches that contain it. Bound: operations, patch size times channels for each output.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

struct correlation_args {
  i64 n, channels, h, w, H, W, out_h, out_w, kernel, pad, range, step, shift, radius, multiply;
};

// Returns the pixel at a position of the padded image; 0 in the padding.
FN double pixel_at(const T *x, const correlation_args &s, i64 n, i64 c, i64 y, i64 at)
{
  y -= s.pad;
  at -= s.pad;
  if (y < 0 || at < 0 || y >= s.h || at >= s.w) return 0;
  return x[((n * s.channels + c) * s.h + y) * s.w + at];
}

// Writes the image with its padding as (n, H, W, channels).
extern "C" __global__ void pad_image(
    T *padded, const T *x, const struct correlation_args __grid_constant__ s)
{
  EACH(i, s.n * s.H * s.W * s.channels)
  {
    i64 c = i % s.channels, at = i / s.channels;
    padded[i] = (T)pixel_at(x, s, at / s.W / s.H, c, at / s.W % s.H, at % s.W);
  }
}

// The displacement of output channel k along both axes.
struct displaced { i64 down, across; };
FN displaced displacement(const correlation_args &s, i64 k)
{
  const i64 side = 2 * s.radius + 1;
  return { (k / side - s.radius) * s.shift, (k % side - s.radius) * s.shift };
}
// Returns whether a position and its displaced position are before the end of the padded image.
FN bool both_inside(const correlation_args &s, i64 y, i64 x, const displaced &d)
{
  return y < s.H && x < s.W && y + d.down < s.H && x + d.across < s.W;
}

extern "C" __global__ void correlate(
    T *out, const T *a, const T *b, const struct correlation_args __grid_constant__ s)
{
  const i64 outputs = (2 * s.radius + 1) * (2 * s.radius + 1);
  EACH(i, s.n * outputs * s.out_h * s.out_w)
  {
    i64 x = i % s.out_w * s.step + s.range, y = i / s.out_w % s.out_h * s.step + s.range;
    i64 k = i / s.out_w / s.out_h % outputs, n = i / s.out_w / s.out_h / outputs;
    displaced d = displacement(s, k);
    double sum = 0;
    for (i64 t = 0; t < s.kernel * s.kernel; t++) {
      i64 ay = y + t / s.kernel, ax = x + t % s.kernel;
      if (!both_inside(s, ay, ax, d)) continue;
      for (i64 c = 0; c < s.channels; c++) {
        double u = pixel_at(a, s, n, c, ay, ax);
        double v = pixel_at(b, s, n, c, ay + d.down, ax + d.across);
        sum += s.multiply ? u * v : u < v ? v - u : u - v;
      }
    }
    set(out[i], sum * (1 / (double)(s.kernel * s.kernel * s.channels)));
  }
}

// Computes the gradient of the first image, or with `second` of the other one.
extern "C" __global__ void correlate_back(T *dx, const T *g, const T *a, const T *b, i32 second,
    const struct correlation_args __grid_constant__ s)
{
  const i64 outputs = (2 * s.radius + 1) * (2 * s.radius + 1);
  EACH(i, s.n * s.channels * s.h * s.w)
  {
    i64 x = i % s.w + s.pad, y = i / s.w % s.h + s.pad, c = i / s.w / s.h % s.channels;
    i64 n = i / s.w / s.h / s.channels;
    double sum = 0;
    for (i64 k = 0; k < outputs; k++) {
      displaced d = displacement(s, k);
      i64 ay = second ? y - d.down : y, ax = second ? x - d.across : x;
      if (ay < 0 || ax < 0 || !both_inside(s, ay, ax, d)) continue;
      double u = pixel_at(a, s, n, c, ay, ax);
      double v = pixel_at(b, s, n, c, ay + d.down, ax + d.across);
      double slope = s.multiply ? second ? u : v : (u >= v) != (second != 0) ? 1 : -1;
      for (i64 t = 0; t < s.kernel * s.kernel; t++) {
        i64 oy = ay - t / s.kernel - s.range, ox = ax - t % s.kernel - s.range;
        if (oy < 0 || ox < 0 || oy % s.step || ox % s.step) continue;
        oy /= s.step;
        ox /= s.step;
        if (oy >= s.out_h || ox >= s.out_w) continue;
        sum += slope * (double)g[((n * outputs + k) * s.out_h + oy) * s.out_w + ox];
      }
    }
    set(dx[i], sum * (1 / (double)(s.kernel * s.kernel * s.channels)));
  }
}
