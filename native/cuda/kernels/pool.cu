// pool.cu - pooling over windows of up to three axes, and its gradients. Data are (planes, depth,
// height, width, inner); inner: channels if they are last, else 1. Method: one thread per output,
// which walks its window; for gradients, one thread per input, which gathers from the windows that
// cover it, in order; with channels last, PACK neighbours per thread. If the window is a whole
// plane, one team per output, in loads of PACK neighbours. The kernels may include the activation
// before the pooling. Bound: bytes, if the caches keep what windows share. A NaN never becomes the
// maximum, since comparisons with it are false.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/levels.h"
#define T float
#define KIND POOL_MAX
#define POWER 2      // of POOL_LP
#define ZEROS 0      // 1: padding counts as zeros, each maximum gets the gradient (Pooling_v1)
#define PADDED 1     // 1: a mean is over the window with its padding
#define ACT 0        // activation of the data, ACT_* (kernel/epilogue.h); forward: 0 or tanh
#define AXES 2
#define KERNEL { 1, 3, 3 }   // 0: the whole axis
#define STRIDE { 1, 2, 2 }
#define PAD { 0, 1, 1 }
#include "team.cuh"
#endif
#ifndef PACK
#define PACK 1       // elements of a load
#endif

// 8-bit integers are computed in double and rounded to the nearest of their levels.
template <typename N> struct pooled : computes<N> { static constexpr double least = 0, most = 0; };
template <> struct pooled<i8> {
  typedef double type;
  static constexpr double least = -127, most = 127;
};
template <> struct pooled<u8> {
  typedef double type;
  static constexpr double least = 0, most = 255;
};
typedef pooled<T>::type C;

template <typename N> FN void put(N &to, C v)
{
  typedef pooled<N> P;
  set(to, P::most > 0 ? (C)nearest_level((double)v, P::least, P::most) : v);
}

enum { POOL_AVG, POOL_LP, POOL_MAX, POOL_SUM };
enum { NO_TAP = 255 };
enum { ACT_RELU = 1, ACT_TANH = 3 };

struct pool_args { i64 n, in[3], out[3], inner; };
struct point { i64 plane, at[3], c; };

// Returns the indices of element i of an array (planes, size, inner).
FN point point_of(i64 i, const i64 (&size)[3], i64 inner)
{
  INDEX left = (INDEX)i;
  point p;
  p.c = left % (INDEX)inner;
  left /= (INDEX)inner;
  for (int d = 2; d >= 0; d--) {
    p.at[d] = left % (INDEX)size[d];
    left /= (INDEX)size[d];
  }
  p.plane = left;
  return p;
}
// Returns the index of element (z, y, x) in the plane and channel of p.
FN i64 element_of(const point &p, i64 z, i64 y, i64 x, const i64 (&size)[3], i64 inner)
{
  return (((p.plane * size[0] + z) * size[1] + y) * size[2] + x) * inner + p.c;
}

FN i64 kernel_size(const pool_args &s, int d)
{
  constexpr i64 kernel[3] = KERNEL;
  return kernel[d] ? kernel[d] : s.in[d];
}
FN i64 stride_of(int d)
{
  constexpr i64 stride[3] = STRIDE;
  return stride[d];
}
FN i64 pad_of(int d)
{
  constexpr i64 pad[3] = PAD;
  return pad[d];
}

// A window: inputs begin .. end - 1 along each axis; start: its first position, which may be in the
// padding; whole: its length with the padding that it covers.
struct window { i64 begin[3], end[3], start[3], whole[3]; };
FN window window_of(const pool_args &s, const i64 (&o)[3])
{
  window w;
  for (int d = 0; d < 3; d++) {
    i64 start = o[d] * stride_of(d) - pad_of(d), end = start + kernel_size(s, d);
    w.start[d] = start;
    w.begin[d] = start > 0 ? start : 0;
    w.end[d] = end < s.in[d] ? end : s.in[d];
    w.whole[d] = (end < s.in[d] + pad_of(d) ? end : s.in[d] + pad_of(d)) - start;
  }
  return w;
}
FN bool covers_pad(const pool_args &s, const window &w)
{
  bool covers = false;
  for (int d = 0; d < 3; d++) covers |= w.start[d] < 0 || w.start[d] + w.whole[d] > s.in[d];
  return covers;
}
FN C inverse_size(const pool_args &s, const window &w)
{
  double n = 1;
  for (int d = 0; d < 3; d++) {
    i64 inside = w.end[d] - w.begin[d];
    n *= (double)(ZEROS ? kernel_size(s, d) : PADDED ? w.whole[d] : inside);
  }
  if (n != 0) return (C)(1 / n);
  return AXES == 3 ? infinity<C>() - infinity<C>() : 0; // the window has no elements
}

FN C power_of(C x, int power) { return power == 1 ? x : power == 2 ? x * x : x * x * x; }
FN C root_of(C x)
{
  return POWER == 1 ? x : POWER == 2 ? sqrt_of(x) : (C)cbrt((double)x);
}
// The start of a maximum: the lowest finite number of T; for 8-bit integers any number below their
// levels, since put() clips.
template <typename N> struct range { static constexpr double least = -3.4028234663852886e38; };
template <> struct range<double> { static constexpr double least = -1.7976931348623157e308; };
template <> struct range<f16> { static constexpr double least = -65504; };
template <> struct range<bf16> { static constexpr double least = -3.3895313892515355e38; };

// Pools windows. argmax: the tap of the first maximum. Either of y and argmax may be NULL.
extern "C" __global__ void pool(
    T *y, u8 *argmax, const T *x, const struct pool_args __grid_constant__ s)
{
  EACH(i, s.n / PACK)
  {
    point p = point_of(i * PACK, s.out, s.inner);
    window w = window_of(s, p.at);
    C v[PACK];
    u8 best[PACK];
    for (int l = 0; l < PACK; l++) {
      v[l] = KIND == POOL_MAX ? (C)range<T>::least : 0;
      best[l] = NO_TAP;
    }
    for (i64 a = w.begin[0]; a < w.end[0]; a++)
      for (i64 b = w.begin[1]; b < w.end[1]; b++)
        for (i64 c = w.begin[2]; c < w.end[2]; c++) {
          const lanes<T, PACK> u_at =
              *(const lanes<T, PACK> *)&x[element_of(p, a, b, c, s.in, s.inner)];
          const u8 tap = (u8)((b - w.start[1]) * kernel_size(s, 2) + c - w.start[2]);
          for (int l = 0; l < PACK; l++) {
            const C u = ACT == ACT_TANH ? tanh_of(get<C>(u_at.at[l])) : get<C>(u_at.at[l]);
            if (KIND != POOL_MAX)
              v[l] += KIND == POOL_LP ? power_of(u, POWER) : u;
            else if (u > v[l] || (u == v[l] && best[l] == NO_TAP)) {
              v[l] = u;
              best[l] = tap;
            }
          }
        }
    lanes<T, PACK> to;
    lanes<u8, PACK> taps;
    const bool zero = KIND == POOL_MAX && ZEROS && covers_pad(s, w);
    for (int l = 0; l < PACK; l++) {
      if (KIND == POOL_AVG) v[l] *= inverse_size(s, w);
      if (KIND == POOL_LP) v[l] = root_of(v[l]);
      if (zero && v[l] < 0) v[l] = 0;
      put(to.at[l], v[l]);
      taps.at[l] = best[l];
    }
    if (y) *(lanes<T, PACK> *)&y[i * PACK] = to;
    if (argmax) *(lanes<u8, PACK> *)&argmax[i * PACK] = taps;
  }
}

// -- windows that are planes of k elements --------------------------------------------------------

extern "C" __global__ void pool_planes(T *y, const T *x, i64 planes, i64 k)
{
  EACH_ROW(row, planes)
  {
    C v[PACK];
    for (int l = 0; l < PACK; l++) v[l] = KIND == POOL_MAX ? (C)range<T>::least : 0;
    for (i64 j = threadIdx.x % TEAM * PACK; j < k; j += TEAM * PACK) {
      const lanes<T, PACK> from = *(const lanes<T, PACK> *)&x[row * k + j];
      for (int l = 0; l < PACK; l++) {
        const C u = get<C>(from.at[l]);
        if (KIND == POOL_MAX)
          v[l] = join_max()(v[l], u);
        else
          v[l] += KIND == POOL_LP ? power_of(u, POWER) : u;
      }
    }
    for (int l = 1; l < PACK; l++) v[0] = KIND == POOL_MAX ? join_max()(v[0], v[l]) : v[0] + v[l];
    C whole = KIND == POOL_MAX ? team_max(v[0]) : team_sum(v[0]);
    if (KIND == POOL_AVG) whole *= (C)(1 / (double)k);
    if (KIND == POOL_LP) whole = root_of(whole);
    if (LEADS) put(y[row], whole);
  }
}

// Computes the gradient of a mean or a sum over whole planes.
extern "C" __global__ void pool_planes_back(T *dx, const T *dy, i64 planes, i64 k)
{
  EACH(i, planes * k / PACK)
  {
    lanes<T, PACK> to;
    C g = get<C>(dy[(INDEX)(i * PACK) / (INDEX)k]);
    if (KIND == POOL_AVG) g *= (C)(1 / (double)k);
    for (int l = 0; l < PACK; l++) set(to.at[l], g);
    *(lanes<T, PACK> *)&dx[i * PACK] = to;
  }
}

// Returns whether an earlier element of the window equals its maximum.
FN bool equals_before(const pool_args &s, const T *x, C maximum, const point &p, const window &w)
{
  for (i64 a = w.begin[0]; a <= p.at[0]; a++)
    for (i64 b = w.begin[1]; b < w.end[1]; b++)
      for (i64 c = w.begin[2]; c < w.end[2]; c++) {
        if (a == p.at[0] && (b > p.at[1] || (b == p.at[1] && c >= p.at[2]))) return false;
        if (get<C>(x[element_of(p, a, b, c, s.in, s.inner)]) == maximum) return true;
      }
  return false;
}

// Returns the part of the gradient g of window w that an input gets.
FN C share_of(const pool_args &s, const T *x, const T *y, const point &p, const window &w,
    i64 from, i64 to, C g)
{
  if (KIND == POOL_SUM) return g;
  if (KIND == POOL_AVG) return g * inverse_size(s, w);
  C v = get<C>(x[to]), whole = get<C>(y[from]);
  if (KIND == POOL_MAX)
    return v == whole && (ZEROS || !equals_before(s, x, whole, p, w)) ? g : 0;
  if (whole == 0) return 0;
  return POWER == 1 ? g : g * power_of(v / whole, POWER - 1);
}

// Returns the first window over element i of axis d.
FN i64 first_window(const pool_args &s, int d, i64 i)
{
  i64 above = i + pad_of(d) - kernel_size(s, d) + 1;
  return above > 0 ? (above + stride_of(d) - 1) / stride_of(d) : 0;
}
// Returns the window after the last one over element i of axis d.
FN i64 end_window(const pool_args &s, int d, i64 i)
{
  i64 end = (i + pad_of(d)) / stride_of(d) + 1;
  return end < s.out[d] ? end : s.out[d];
}

// Computes dx. argmax: of POOL_MAX, if forward wrote it; else x and y are read as far as KIND needs
// them. ACT: relu passes the gradient of elements above 0; the slope of tanh follows from its
// value, which is the output of every window whose maximum is this element.
extern "C" __global__ void pool_back(T *dx, const T *dy, const u8 *argmax, const T *x, const T *y,
    const struct pool_args __grid_constant__ s)
{
  EACH(i, s.n / PACK)
  {
    point p = point_of(i * PACK, s.in, s.inner);
    C sum[PACK] = {}, value[PACK] = {};
    i64 o[3];
    for (o[0] = first_window(s, 0, p.at[0]); o[0] < end_window(s, 0, p.at[0]); o[0]++)
      for (o[1] = first_window(s, 1, p.at[1]); o[1] < end_window(s, 1, p.at[1]); o[1]++)
        for (o[2] = first_window(s, 2, p.at[2]); o[2] < end_window(s, 2, p.at[2]); o[2]++) {
          const i64 from = element_of(p, o[0], o[1], o[2], s.out, s.inner);
          const lanes<T, PACK> g = *(const lanes<T, PACK> *)&dy[from];
          const window w = window_of(s, o);
          if (KIND == POOL_MAX && argmax) {
            const i64 tap = (p.at[1] - w.start[1]) * kernel_size(s, 2) + p.at[2] - w.start[2];
            const lanes<u8, PACK> best = *(const lanes<u8, PACK> *)&argmax[from];
            lanes<T, PACK> live = g;
            if (ACT) live = *(const lanes<T, PACK> *)&y[from];
            for (int l = 0; l < PACK; l++)
              if (best.at[l] == tap) {
                value[l] = get<C>(live.at[l]);
                sum[l] += get<C>(g.at[l]) * (ACT != ACT_RELU || value[l] > 0 ? 1 : 0);
              }
            continue;
          }
          point own = p;
          for (int l = 0; l < PACK; l++, own.c++)
            sum[l] += share_of(s, x, y, own, w, from + l, i * PACK + l, get<C>(g.at[l]));
        }
    lanes<T, PACK> to;
    for (int l = 0; l < PACK; l++)
      set(to.at[l], ACT == ACT_TANH ? sum[l] * (1 - value[l] * value[l]) : sum[l]);
    *(lanes<T, PACK> *)&dx[i * PACK] = to;
  }
}
