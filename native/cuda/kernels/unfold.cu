// unfold.cu - im2col, which copies what each position of a window reads of an image, and its
// adjoint col2im; and LRN, a window over channels. Images are planes of (depth, height, width).
// Method: one thread per element that is written; adjoints gather, tap by tap. Bound: bytes, if the
// caches keep what windows share.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#include "window.cuh"
#endif

// Writes the columns of windows, or with `add` adds to them.
extern "C" __global__ void unfold(
    T *columns, const T *image, const struct window __grid_constant__ s, i32 add)
{
  const i64 taps = count_of(s.kernel), outs = count_of(s.out);
  EACH(i, s.n)
  {
    i64 plane = i / outs / taps;
    i64 at = element_seen(s, apart(i % outs, s.out), apart(i / outs % taps, s.kernel));
    T v = at >= 0 ? image[plane * count_of(s.in) + at] : 0;
    set(columns[i], add ? columns[i] + v : v);
  }
}

extern "C" __global__ void fold(
    T *image, const T *columns, const struct window __grid_constant__ s, i32 add)
{
  const i64 taps = count_of(s.kernel), outs = count_of(s.out), pixels = count_of(s.in);
  EACH(i, s.n)
  {
    i64 plane = i / pixels;
    triple at = apart(i % pixels, s.in);
    T sum = add ? image[i] : 0;
    for (i64 t = 0; t < taps; t++) {
      i64 o = element_seen_from(s, at, apart(t, s.kernel));
      if (o >= 0) sum += columns[(plane * taps + t) * outs + o];
    }
    set(image[i], sum);
  }
}

// -- LRN: channels c - half .. c + half of (n, k, inner) ------------------------------------------

struct lrn_args { i64 n, k, inner, half; double alpha, beta, knorm; };

extern "C" __global__ void lrn(
    T *y, T *norm, const T *x, const struct lrn_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 c = i / s.inner % s.k;
    T sum = 0;
    for (i64 w = c > s.half ? -s.half : -c; w <= s.half && c + w < s.k; w++)
      sum += x[i + w * s.inner] * x[i + w * s.inner];
    sum = (T)s.knorm + (T)s.alpha * sum;
    if (norm) set(norm[i], sum);
    if (y) set(y[i], x[i] * (T)pow((double)sum, -s.beta));
  }
}

extern "C" __global__ void lrn_back(T *dx, const T *dy, const T *x, const T *norm,
    const struct lrn_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 c = i / s.inner % s.k;
    T sum = 0;
    for (i64 w = c > s.half ? -s.half : -c; w <= s.half && c + w < s.k; w++) {
      i64 at = i + w * s.inner;
      sum += dy[at] * (T)pow((double)norm[at], -s.beta) * x[at] / norm[at];
    }
    set(dx[i], dy[i] * (T)pow((double)norm[i], -s.beta) - (T)(2 * s.alpha * s.beta) * x[i] * sum);
  }
}
