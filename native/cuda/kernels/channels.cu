// channels.cu - what is the same for all elements of a channel in (outer, k, inner): the lines
// a x + d of BatchNorm and its gradient, and the numbers per channel that these need, of which P is
// the type. Method: a thread an element, or a channel. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define P float
#define RELU 0
#include "team.cuh"
#endif

typedef computes<T>::type C;

FN INDEX channel_of(i64 i, i64 k, i64 inner) { return (INDEX)i / (INDEX)inner % (INDEX)k; }

// y = a x + d, then relu, whose mask may be asked for
extern "C" __global__ void channel_line(
    T *y, T *mask, const T *x, const P *a, const P *d, i64 n, i64 k, i64 inner)
{
  EACH(i, n)
  {
    INDEX c = channel_of(i, k, inner);
    C v = get<C>(a[c]) * get<C>(x[i]) + get<C>(d[c]);
    bool live = !(v <= 0); // NaN stays
    set(y[i], RELU && !live ? 0 : v);
    if (mask) set(mask[i], (C)live);
  }
}

// dx = f dy + g x + h
extern "C" __global__ void channel_plane(T *dx, const T *dy, const T *x, const P *f, const P *g,
    const P *h, i64 n, i64 k, i64 inner)
{
  EACH(i, n)
  {
    INDEX c = channel_of(i, k, inner);
    set(dx[i], get<C>(f[c]) * get<C>(dy[i]) + (get<C>(g[c]) * get<C>(x[i]) + get<C>(h[c])));
  }
}

// dy where y > 0 (or is NaN)
extern "C" __global__ void where_live(T *masked, const T *dy, const T *y, i64 n)
{
  EACH(i, n) set(masked[i], get<C>(y[i]) <= 0 ? 0 : get<C>(dy[i]));
}

struct batch_args {
  i64 k;
  double eps, momentum, count;
  i32 fixed, batch, variance, ones; // ones: a fixed gamma is written as 1
};

// a, d of BatchNorm's line, from mean and variance; what it gives out of these
extern "C" __global__ void batch_lines(P *a, P *d, P *mean_out, P *third_out, const P *mean,
    const P *var, P *gamma, const P *beta, const struct batch_args __grid_constant__ s)
{
  EACH(c, s.k)
  {
    double m = get<double>(mean[c]), v = get<double>(var[c]), inverse = 1 / sqrt(v + s.eps);
    P rounded;
    set(rounded, inverse);
    double slope = (s.fixed ? 1 : get<double>(gamma[c])) * get<double>(rounded);
    set(a[c], slope);
    set(d[c], get<double>(beta[c]) - m * slope);
    if (mean_out) set(mean_out[c], m);
    if (third_out) set(third_out[c], s.variance ? v : inverse);
    if (s.ones) set(gamma[c], 1.0);
  }
}

// f, g, h of the gradient from the sums of dy and dy (x - mean); gradients of gamma and beta; the
// moving statistics take a step. third: 1 / sqrt(var + eps), or the variance
extern "C" __global__ void batch_planes(P *f, P *g, P *h, P *dgamma, P *dbeta, const P *sums,
    const P *dots, const P *mean, const P *third, const P *gamma, P *moving_mean, P *moving_var,
    const struct batch_args __grid_constant__ s)
{
  EACH(c, s.k)
  {
    double m = get<double>(mean[c]), t = get<double>(third[c]), sum = get<double>(sums[c]),
           dot = get<double>(dots[c]);
    double inverse = s.variance || !s.batch ? 1 / sqrt(t + s.eps) : t;
    double slope = (s.fixed ? 1 : get<double>(gamma[c])) * inverse;
    double by_x = s.batch ? -slope * inverse * inverse * dot / s.count : 0;
    set(f[c], slope);
    set(g[c], by_x);
    set(h[c], s.batch ? -slope * sum / s.count - by_x * m : 0);
    if (dgamma) set(dgamma[c], s.fixed ? 0 : dot * inverse);
    if (dbeta) set(dbeta[c], sum);
    if (!s.batch) continue;
    double var = s.variance ? t : 1 / (t * t) - s.eps, rest = 1 - s.momentum;
    set(moving_mean[c], get<double>(moving_mean[c]) * s.momentum + m * rest);
    set(moving_var[c], get<double>(moving_var[c]) * s.momentum + (var > 0 ? var : 0) * rest);
  }
}

// IdentityAttachKLSparseReg: the moving average of each unit takes a step; a = 1 and d = slope of
// the penalty are a line over the gradient
extern "C" __global__ void sparse_lines(P *a, P *d, P *moving, const P *mean, i64 k, double target,
    double penalty, double momentum)
{
  EACH(c, k)
  {
    set(moving[c], momentum * get<double>(moving[c]) + (1 - momentum) * get<double>(mean[c]));
    double average = get<double>(moving[c]);
    set(a[c], 1.0);
    set(d[c], penalty * ((1 - target) / (1 - average) - target / average));
  }
}
