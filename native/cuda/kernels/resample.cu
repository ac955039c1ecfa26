// resample.cu - resizes images (planes, height, width): repeated pixels, bilinear kernels of a
// transposed convolution, bilinear resizing, means over adaptive windows; with their gradients.
// kernel/element/resample.h computes where a pixel comes from. Method: one thread per element that
// is written; gradients gather. Bound: bytes, if the caches keep what windows share.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/resample.h"
#define T float
#include "team.cuh"
#endif

typedef accumulates<T>::type A;

// Sizes. h, w: of the small image or the input; H, W: of the large image or the result.
struct resample_args { i64 n, channels, all_channels, first, h, w, H, W; };

// -- repeated pixels: channels first .. first + channels - 1 of the large image -------------------

FN i64 large_plane(const resample_args &s, i64 plane)
{
  return plane / s.channels * s.all_channels + s.first + plane % s.channels;
}

// Repeats the pixels of a small image; `add` adds to the elements of the large one.
extern "C" __global__ void repeat_pixels(
    T *large, const T *small, const struct resample_args __grid_constant__ s, i32 add)
{
  const i64 down = s.H / s.h, across = s.W / s.w;
  EACH(i, s.n)
  {
    i64 x = i % s.W, y = i / s.W % s.H, plane = i / s.W / s.H;
    T v = small[(plane * s.h + y / down) * s.w + x / across];
    T &to = large[(large_plane(s, plane) * s.H + y) * s.W + x];
    to = add ? to + v : v;
  }
}

extern "C" __global__ void repeat_pixels_back(
    T *small, const T *large, const struct resample_args __grid_constant__ s)
{
  const i64 down = s.H / s.h, across = s.W / s.w;
  EACH(i, s.n)
  {
    i64 x = i % s.w, y = i / s.w % s.h, plane = large_plane(s, i / s.w / s.h);
    T sum = 0;
    for (i64 a = 0; a < down; a++)
      for (i64 b = 0; b < across; b++)
        sum += large[(plane * s.H + y * down + a) * s.W + x * across + b];
    set(small[i], sum);
  }
}

// -- a transposed convolution of each channel, its kernels k x k ----------------------------------

struct kernel_args { i64 n, channels, h, w, scale, k, pad; };

extern "C" __global__ void repeat_kernels(
    T *large, const T *small, const T *weight, const struct kernel_args __grid_constant__ s)
{
  const i64 H = s.h * s.scale, W = s.w * s.scale;
  EACH(i, s.n)
  {
    i64 x = i % W + s.pad, y = i / W % H + s.pad, plane = i / W / H;
    const T *of = weight + plane % s.channels * s.k * s.k;
    T sum = 0;
    for (i64 ky = y % s.scale; ky < s.k; ky += s.scale)
      for (i64 kx = x % s.scale; kx < s.k; kx += s.scale) {
        i64 iy = (y - ky) / s.scale, ix = (x - kx) / s.scale;
        if (y < ky || x < kx || iy >= s.h || ix >= s.w) continue;
        sum += of[ky * s.k + kx] * small[(plane * s.h + iy) * s.w + ix];
      }
    set(large[i], sum);
  }
}

// Returns the index in the large image of element (ky, kx) of the window of pixel (iy, ix) of the
// small image; -1 if it is outside.
FN i64 under_kernel(const kernel_args &s, i64 plane, i64 iy, i64 ix, i64 ky, i64 kx)
{
  const i64 H = s.h * s.scale, W = s.w * s.scale;
  i64 y = iy * s.scale + ky - s.pad, x = ix * s.scale + kx - s.pad;
  return y < 0 || y >= H || x < 0 || x >= W ? -1 : (plane * H + y) * W + x;
}

extern "C" __global__ void repeat_kernels_back(
    T *small, const T *large, const T *weight, const struct kernel_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 x = i % s.w, y = i / s.w % s.h, plane = i / s.w / s.h;
    const T *of = weight + plane % s.channels * s.k * s.k;
    T sum = 0;
    for (i64 tap = 0; tap < s.k * s.k; tap++) {
      i64 from = under_kernel(s, plane, y, x, tap / s.k, tap % s.k);
      if (from >= 0) sum += of[tap] * large[from];
    }
    set(small[i], sum);
  }
}

// Computes the gradient of the kernels over s.n images, one team per element of a channel's kernel.
extern "C" __global__ void repeat_kernels_weight(
    T *weight, const T *large, const T *small, const struct kernel_args __grid_constant__ s)
{
  EACH_ROW(e, s.channels * s.k * s.k)
  {
    i64 c = e / (s.k * s.k), tap = e % (s.k * s.k);
    A sum = 0;
    EACH_OF_TEAM(j, 0, s.n * s.h * s.w)
    {
      i64 plane = j / (s.h * s.w) * s.channels + c, at = j % (s.h * s.w);
      i64 from = under_kernel(s, plane, at / s.w, at % s.w, tap / s.k, tap % s.k);
      if (from >= 0) sum += (A)(large[from] * small[plane * s.h * s.w + at]);
    }
    sum = team_sum(sum);
    if (LEADS) set(weight[e], sum);
  }
}

// -- bilinear resizing of (h, w) to (H, W) --------------------------------------------------------

extern "C" __global__ void resize(
    T *to, const T *from, const struct resample_args __grid_constant__ s, i32 corners)
{
  EACH(i, s.n)
  {
    struct resize_tap v = resize_tap(i / s.W % s.H, s.h, s.H, corners);
    struct resize_tap u = resize_tap(i % s.W, s.w, s.W, corners);
    const T *a = from + (i / s.W / s.H * s.h + v.at) * s.w + u.at, *b = a + v.next * s.w;
    A above = (1 - u.weight) * a[0] + u.weight * a[u.next];
    A below = (1 - u.weight) * b[0] + u.weight * b[u.next];
    set(to[i], (1 - v.weight) * above + v.weight * below);
  }
}

// Returns the first output along an axis that may read pixel `at`: its first tap is `at` - 1 or
// later.
FN i64 first_look(i64 at, i64 in, i64 out, i32 corners)
{
  i64 low = 0, high = out;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if (resize_tap(middle, in, out, corners).at + 1 < at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Returns the weight of a pixel in an output, along one axis.
FN double look_weight(const struct resize_tap &t, i64 pixel)
{
  return (t.at == pixel ? 1 - t.weight : 0) + (t.at + t.next == pixel ? t.weight : 0);
}

extern "C" __global__ void resize_back(
    T *to, const T *from, const struct resample_args __grid_constant__ s, i32 corners)
{
  EACH(i, s.n)
  {
    i64 x = i % s.w, y = i / s.w % s.h, plane = i / s.w / s.h;
    i64 top = first_look(y, s.h, s.H, corners), left = first_look(x, s.w, s.W, corners);
    A sum = 0;
    for (i64 a = top; a < s.H; a++) {
      struct resize_tap v = resize_tap(a, s.h, s.H, corners);
      if (v.at > y) break;
      for (i64 b = left; b < s.W; b++) {
        struct resize_tap u = resize_tap(b, s.w, s.W, corners);
        if (u.at > x) break;
        sum += (A)from[(plane * s.H + a) * s.W + b] * look_weight(v, y) * look_weight(u, x);
      }
    }
    set(to[i], sum);
  }
}

// -- means over H x W windows ---------------------------------------------------------------------

extern "C" __global__ void adaptive(
    T *to, const T *from, const struct resample_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 ox = i % s.W, oy = i / s.W % s.H, plane = i / s.W / s.H;
    i64 y0 = window_from(oy, s.h, s.H), y1 = window_to(oy, s.h, s.H);
    i64 x0 = window_from(ox, s.w, s.W), x1 = window_to(ox, s.w, s.W);
    A sum = 0;
    for (i64 y = y0; y < y1; y++)
      for (i64 x = x0; x < x1; x++) sum += from[(plane * s.h + y) * s.w + x];
    set(to[i], sum / (A)((y1 - y0) * (x1 - x0)));
  }
}

FN i64 first_over(i64 at, i64 in, i64 n)
{
  i64 o = at * n / in;
  while (o > 0 && window_to(o - 1, in, n) > at) o--;
  return o;
}

extern "C" __global__ void adaptive_back(
    T *to, const T *from, const struct resample_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 x = i % s.w, y = i / s.w % s.h, plane = i / s.w / s.h;
    i64 left = first_over(x, s.w, s.W);
    A sum = 0;
    for (i64 oy = first_over(y, s.h, s.H); oy < s.H && window_from(oy, s.h, s.H) <= y; oy++)
      for (i64 ox = left; ox < s.W && window_from(ox, s.w, s.W) <= x; ox++) {
        i64 rows = window_to(oy, s.h, s.H) - window_from(oy, s.h, s.H);
        i64 columns = window_to(ox, s.w, s.W) - window_from(ox, s.w, s.W);
        sum += (A)from[(plane * s.H + oy) * s.W + ox] / (A)(rows * columns);
      }
    set(to[i], sum);
  }
}
