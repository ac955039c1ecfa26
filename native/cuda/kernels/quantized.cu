// quantized.cu - arithmetic on 8-bit integers of a range (kernel/element/levels.h): products with
// int8 weights, sums and products of elements, batch normalisation, concatenation. Ranges are
// float32 arrays of one element and are read here, so that the host need not wait; the first thread
// writes the range of the result. Method: one thread per element of the result; for a fully
// connected layer, one warp. Sums are of integers, so their order does not matter and all devices
// agree. Bound: bytes; for a convolution, integer operations.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/levels.h"
#define T u8          // the first operand
#define B i8          // the second
#define Y i32         // the result
#define SUM i32       // holds a sum of products
#define TEAM 32
#include "team.cuh"
#include "window.cuh"
#endif

// The least and greatest level of an integer type. real: whether the type is a float, which has no
// levels.
template <typename N> struct levels_of {
  static constexpr bool real = false;
  static constexpr double least = -2147483647, most = 2147483647;
};
template <> struct levels_of<i8> {
  static constexpr bool real = false;
  static constexpr double least = -127, most = 127;
};
template <> struct levels_of<u8> {
  static constexpr bool real = false;
  static constexpr double least = 0, most = 255;
};
template <> struct levels_of<float> {
  static constexpr bool real = true;
  static constexpr double least = 0, most = 1;
};

template <typename N> FN void put(N &to, double v)
{
  typedef levels_of<N> L;
  to = (N)(L::real ? v : nearest_level(v, L::least, L::most));
}

// Returns the number of levels that represent the number 1 in a range of size r.
template <typename N> FN double levels_of_one(double r)
{
  typedef levels_of<N> L;
  return L::real ? 1 : r > 0 ? L::most / r : 0;
}

FN void put_range(float *from, float *to, double least, double most)
{
  if (blockIdx.x || threadIdx.x) return;
  if (from) *from = (float)least;
  if (to) *to = (float)most;
}

// Returns the real number that one level of N represents.
template <typename N> FN double unit_of(const float *low, const float *high)
{
  return range_size(*low, *high) / levels_of<N>::most;
}

// -- layers: of data, weight and, unless it is NULL, bias ----------------------------------------

struct layer8_args { const void *x; const i8 *weight, *bias; const float *low[3], *high[3]; };

FN double product_unit(const layer8_args &a)
{
  return unit_of<T>(a.low[0], a.high[0]) * unit_of<i8>(a.low[1], a.high[1]);
}
FN void put_sum(Y &y, const layer8_args &a, i64 filter, SUM sum)
{
  double bias = 0;
  if (a.bias)
    bias = bias_level(a.bias[filter], unit_of<i8>(a.low[2], a.high[2]), product_unit(a));
  put(y, (double)sum + bias);
}
FN void put_layer_range(float *from, float *to, const layer8_args &a)
{
  double most = product_unit(a) * levels_of<i32>::most;
  put_range(from, to, -most, most);
}

// Multiplies m rows of k numbers by n rows of the weight.
extern "C" __global__ void fully_connect(Y *y, float *from, float *to,
    const struct layer8_args __grid_constant__ a, i64 m, i64 n, i64 k)
{
  EACH_ROW(i, m * n)
  {
    const T *x = (const T *)a.x + i / n * k;
    const i8 *w = a.weight + i % n * k;
    SUM sum = 0;
    EACH_OF_TEAM(j, 0, k) sum += (SUM)x[j] * w[j];
    sum = team_sum(sum);
    if (LEADS) put_sum(y[i], a, i % n, sum);
  }
  put_layer_range(from, to, a);
}

// Convolves groups of `filters` filters, each over `channels` channels.
extern "C" __global__ void convolve(Y *y, float *from, float *to,
    const struct layer8_args __grid_constant__ a, const struct window __grid_constant__ s,
    i64 groups, i64 filters, i64 channels)
{
  const i64 taps = count_of(s.kernel), outs = count_of(s.out), pixels = count_of(s.in);
  EACH(i, s.n)
  {
    i64 group = i / outs / filters, filter = i / outs % (groups * filters);
    const T *x = (const T *)a.x + group * channels * pixels;
    const i8 *w = a.weight + filter * channels * taps;
    triple o = apart(i % outs, s.out);
    SUM sum = 0;
    for (i64 t = 0; t < taps; t++) {
      i64 at = element_seen(s, o, apart(t, s.kernel));
      if (at < 0) continue;
      for (i64 c = 0; c < channels; c++) sum += (SUM)x[c * pixels + at] * w[c * taps + t];
    }
    put_sum(y[i], a, filter, sum);
  }
  put_layer_range(from, to, a);
}

// -- elements -------------------------------------------------------------------------------------

// Operands and result. least .. most: the range given to the operator; NaN: that of the result.
struct pair8_args {
  const T *a;
  const B *b;
  const float *low[2], *high[2];
  double least, most;
  i64 n, product;
};
extern "C" __global__ void combine(
    Y *y, float *from, float *to, const struct pair8_args __grid_constant__ s)
{
  double a = unit_of<T>(s.low[0], s.high[0]), b = unit_of<B>(s.low[1], s.high[1]);
  double least = s.least, most = s.most;
  if (is_nan(least)) {
    most = s.product ? a * b * levels_of<i32>::most
                     : range_size(*s.low[0], *s.high[0]) + range_size(*s.low[1], *s.high[1]);
    least = -most;
  }
  double scale = levels_of_one<Y>(range_size(least, most));
  EACH(i, s.n)
  {
    double u = (double)s.a[i] * a, v = (double)s.b[i] * b;
    put(y[i], (s.product ? u * v : u + v) * scale);
  }
  put_range(from, to, least, most);
}

struct norm8_args {
  const T *x;
  const float *gamma, *beta, *mean, *variance, *low, *high;
  double eps, least, most;
  i64 n, channels, inner;
};
// Normalises channels. gamma: NULL stands for 1.
extern "C" __global__ void normalize(
    Y *y, float *from, float *to, const struct norm8_args __grid_constant__ s)
{
  double unit = unit_of<T>(s.low, s.high), r = range_size(s.least, s.most);
  EACH(i, s.n)
  {
    i64 k = i / s.inner % s.channels;
    double v = normalized((double)s.x[i] * unit, s.gamma ? (double)s.gamma[k] : 1, s.beta[k],
        s.mean[k], s.variance[k], s.eps);
    put(y[i], r > 0 ? v * levels_of<i8>::most / r : 0);
  }
  put_range(from, to, s.least, s.most);
}

// -- concatenation: all arrays are scaled to the widest range, which is found first --------------

extern "C" __global__ void widen(double *range, const float *low, const float *high, i32 first)
{
  if (blockIdx.x || threadIdx.x) return;
  range[0] = fmin(first ? infinity<double>() : range[0], (double)*low);
  range[1] = fmax(first ? -infinity<double>() : range[1], (double)*high);
}

extern "C" __global__ void give_range(float *from, float *to, const double *range)
{
  put_range(from, to, range[0], range[1]);
}

// Copies pieces of `run` elements, in levels of the result's range, to offset `at` of each `whole`
// elements of the result.
extern "C" __global__ void join(T *y, const T *x, const float *low, const float *high,
    const double *range, i64 n, i64 run, i64 whole, i64 at)
{
  double widest = range_size(range[0], range[1]);
  double scale = widest > 0 ? range_size(*low, *high) / widest : 0;
  EACH(i, n) put(y[i / run * whole + at + i % run], (double)x[i] * scale);
}
