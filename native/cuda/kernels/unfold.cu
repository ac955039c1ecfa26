// unfold.cu - what each position of a window sees of an image, and its adjoint: im2col, col2im; and
// LRN, a window over channels. Images are planes of (depth, height, width). Method: a thread an
// element of what is written; adjoints gather, tap by tap. Bound: bytes, where the caches keep what
// windows share.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

struct unfold_args { i64 n, in[3], out[3], kernel[3], stride[3], dilate[3], pad[3]; };

// Along axis d: the place that tap t sees at position o, and back; -1: there is none.
FN i64 seen(const unfold_args &s, int d, i64 o, i64 t)
{
  i64 i = o * s.stride[d] + t * s.dilate[d] - s.pad[d];
  return i >= 0 && i < s.in[d] ? i : -1;
}
FN i64 seen_from(const unfold_args &s, int d, i64 i, i64 t)
{
  i64 from = i + s.pad[d] - t * s.dilate[d], o = from / s.stride[d];
  return from >= 0 && from % s.stride[d] == 0 && o < s.out[d] ? o : -1;
}

struct triple { i64 at[3]; };
FN triple apart(i64 i, const i64 (&size)[3])
{
  return { { i / size[2] / size[1], i / size[2] % size[1], i % size[2] } };
}
FN i64 count_of(const i64 (&size)[3]) { return size[0] * size[1] * size[2]; }

// add: onto what is there
extern "C" __global__ void unfold(
    T *columns, const T *image, const struct unfold_args __grid_constant__ s, i32 add)
{
  const i64 taps = count_of(s.kernel), outs = count_of(s.out);
  EACH(i, s.n)
  {
    i64 plane = i / outs / taps, at = 0;
    triple o = apart(i % outs, s.out), t = apart(i / outs % taps, s.kernel);
    bool inside = true;
    for (int d = 0; d < 3; d++) {
      i64 p = seen(s, d, o.at[d], t.at[d]);
      inside &= p >= 0;
      at = at * s.in[d] + p;
    }
    T v = inside ? image[plane * count_of(s.in) + at] : 0;
    columns[i] = add ? columns[i] + v : v;
  }
}

extern "C" __global__ void fold(
    T *image, const T *columns, const struct unfold_args __grid_constant__ s, i32 add)
{
  const i64 taps = count_of(s.kernel), outs = count_of(s.out), pixels = count_of(s.in);
  EACH(i, s.n)
  {
    i64 plane = i / pixels;
    triple at = apart(i % pixels, s.in);
    T sum = add ? image[i] : 0;
    for (i64 t = 0; t < taps; t++) {
      triple tap = apart(t, s.kernel);
      i64 o = 0;
      bool inside = true;
      for (int d = 0; d < 3; d++) {
        i64 p = seen_from(s, d, at.at[d], tap.at[d]);
        inside &= p >= 0;
        o = o * s.out[d] + p;
      }
      if (inside) sum += columns[(plane * taps + t) * outs + o];
    }
    image[i] = sum;
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
    if (norm) norm[i] = sum;
    if (y) y[i] = x[i] * (T)pow((double)sum, -s.beta);
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
    dx[i] = dy[i] * (T)pow((double)norm[i], -s.beta) - (T)(2 * s.alpha * s.beta) * x[i] * sum;
  }
}
