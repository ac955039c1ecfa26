// density.cu - densities of given samples and their gradients, by kernel/element/density.h, in
// double. Each parameter has a block of samples. Method: one thread per sample; for gradients of
// parameters, one team per parameter, which sums over its block. Bound: operations of doubles.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/density.h"
#define T float
#define LAW normal
#define TEAM 32
#include "team.cuh"
#endif
#ifndef LAW
#define LAW normal
#endif
#define JOINED(a, b) a##b
#define OF_LAW(law, what) JOINED(law, what)

// Sizes. is_log: y holds logarithms of densities; else gradients are multiplied by the densities y.
struct density_args { i64 n, block, width, is_log; };

FN double at_or(const T *x, i64 i, double otherwise) { return x ? (double)x[i] : otherwise; }
FN double with_density(const density_args &s, const T *g, const T *y, i64 i)
{
  return (double)g[i] * (s.is_log ? 1 : (double)y[i]);
}

extern "C" __global__ void density(T *y, const T *x, const T *a, const T *b,
    const struct density_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    double l = OF_LAW(LAW, _log)(x[i], a[i / s.block], at_or(b, i / s.block, 0));
    set(y[i], s.is_log ? l : exp(l));
  }
}

extern "C" __global__ void slope_of_sample(T *dx, const T *g, const T *y, const T *x, const T *a,
    const T *b, const struct density_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    double d[3] = { 0, 0, 0 };
    OF_LAW(LAW, _slope)(x[i], a[i / s.block], at_or(b, i / s.block, 0), d);
    set(dx[i], with_density(s, g, y, i) * d[0]);
  }
}

// Computes the gradients of both parameters. da, db: NULL where unused.
extern "C" __global__ void slope_of_parameters(T *da, T *db, const T *g, const T *y, const T *x,
    const T *a, const T *b, const struct density_args __grid_constant__ s)
{
  EACH_ROW(k, s.n / s.block)
  {
    double sum[2] = { 0, 0 };
    EACH_OF_TEAM(i, k * s.block, (k + 1) * s.block)
    {
      double d[3] = { 0, 0, 0 }, by = with_density(s, g, y, i);
      OF_LAW(LAW, _slope)(x[i], a[k], at_or(b, k, 0), d);
      sum[0] += by * d[1];
      sum[1] += by * d[2];
    }
    sum[0] = team_sum(sum[0]);
    sum[1] = team_sum(sum[1]);
    if (LEADS && da) set(da[k], sum[0]);
    if (LEADS && db) set(db[k], sum[1]);
  }
}

// -- Dirichlet: samples and parameters are vectors of `width` -------------------------------------

extern "C" __global__ void dirichlet(
    T *y, const T *x, const T *a, const struct density_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    double l = 0, sum = 0;
    for (i64 j = 0; j < s.width; j++) {
      double alpha = a[i / s.block * s.width + j];
      l += times_log(alpha - 1, x[i * s.width + j]) - ln_gamma(alpha);
      sum += alpha;
    }
    l += ln_gamma(sum);
    set(y[i], s.is_log ? l : exp(l));
  }
}

extern "C" __global__ void dirichlet_sample(T *dx, const T *g, const T *y, const T *x, const T *a,
    const struct density_args __grid_constant__ s)
{
  EACH(e, s.n * s.width)
  {
    i64 i = e / s.width, j = e % s.width;
    double alpha = a[i / s.block * s.width + j];
    set(dx[e], with_density(s, g, y, i) * (alpha - 1) / (double)x[e]);
  }
}

extern "C" __global__ void dirichlet_parameter(T *da, const T *g, const T *y, const T *x,
    const T *a, const struct density_args __grid_constant__ s)
{
  EACH_ROW(e, s.n / s.block * s.width)
  {
    i64 k = e / s.width, j = e % s.width;
    double total = 0, sum = 0;
    for (i64 m = 0; m < s.width; m++) total += a[k * s.width + m];
    double level = digamma(total) - digamma(a[e]);
    EACH_OF_TEAM(i, k * s.block, (k + 1) * s.block)
      sum += with_density(s, g, y, i) * (log((double)x[i * s.width + j]) + level);
    sum = team_sum(sum);
    if (LEADS) set(da[e], sum);
  }
}
