// norm_rows.cu - normalisation of rows by their own statistics: LayerNorm, InstanceNorm, GroupNorm,
// and rows divided by their length, L2Normalization. A row is k elements, inner apart; its gains
// stand one per element, or one for the whole row. Method: a team a row; mean, then variance about
// it, then results, the later walks from the cache. Bound: bytes, one read and one write.
#ifndef T
#include "prelude.cuh"
#define T float
#define SHARED 0     // a row's elements share a gain: that of row % groups
#define DEVIATION 1  // the third output is sqrt(var + eps), not var
#define TEAM 32
#include "team.cuh"
#endif

typedef computes<T>::type C;
typedef accumulates<T>::type A;

struct norm_args {
  i64 rows, k, inner, groups, parts;
  double eps;
};

FN i64 gain_of(i64 row, i64 j, i64 groups) { return SHARED ? row % groups : j; }
FN C inverse_of(T third, double eps)
{
  return DEVIATION ? 1 / get<C>(third) : (C)(1 / sqrt(get<double>(third) + eps));
}

extern "C" __global__ void norm_rows(T *y, T *mean, T *third, const T *x, const T *gamma,
    const T *beta, const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    i64 at = row_start(row, s.k, s.inner);
    A sum = 0, square = 0;
    EACH_OF_TEAM(j, 0, s.k) sum += get<A>(x[at + j * s.inner]);
    A m = team_sum(sum) / (A)s.k;
    EACH_OF_TEAM(j, 0, s.k)
    {
      A v = get<A>(x[at + j * s.inner]) - m;
      square += v * v;
    }
    A var = team_sum(square) / (A)s.k, deviation = sqrt_of(var + (A)s.eps);
    C inverse = (C)(1 / deviation);
    if (LEADS && mean) set(mean[row], m);
    if (LEADS && third) set(third[row], DEVIATION ? deviation : var);
    if (!y) continue;
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner, g = gain_of(row, j, s.groups);
      C v = (get<C>(x[e]) - (C)m) * inverse;
      set(y[e], v * get<C>(gamma[g]) + get<C>(beta[g]));
    }
  }
}

// dx may be NULL; of a row with one gain: what it adds to the gradients of gamma and beta
extern "C" __global__ void norm_rows_back(T *dx, double *dgamma, double *dbeta, const T *dy,
    const T *x, const T *gamma, const T *mean, const T *third,
    const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    i64 at = row_start(row, s.k, s.inner);
    C m = get<C>(mean[row]), inverse = inverse_of(third[row], s.eps);
    A sum = 0, dot = 0;
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner;
      C g = get<C>(dy[e]) * (SHARED ? 1 : get<C>(gamma[j]));
      sum += g;
      dot += g * ((get<C>(x[e]) - m) * inverse);
    }
    sum = team_sum(sum);
    dot = team_sum(dot);
    if (SHARED && LEADS && dgamma) {
      set(dgamma[row], dot);
      set(dbeta[row], sum);
    }
    if (!dx) continue;
    C all = SHARED ? get<C>(gamma[row % s.groups]) : 1;
    C a = (C)(sum / (A)s.k), b = (C)(dot / (A)s.k);
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner;
      C g = get<C>(dy[e]) * (SHARED ? 1 : get<C>(gamma[j]));
      set(dx[e], all * inverse * (g - a - (get<C>(x[e]) - m) * inverse * b));
    }
  }
}

// Gradients of gains that stand one per element: the rows in parts, each of which gives k sums.
extern "C" __global__ void gain_parts(double *dgamma, double *dbeta, const T *dy, const T *x,
    const T *mean, const T *third, const struct norm_args __grid_constant__ s)
{
  EACH(u, s.k * s.parts)
  {
    i64 j = u % s.k, p = u / s.k, end = (p + 1) * s.rows / s.parts;
    A sum = 0, dot = 0;
    for (i64 row = p * s.rows / s.parts; row < end; row++) {
      i64 e = row_start(row, s.k, s.inner) + j * s.inner;
      C g = get<C>(dy[e]);
      sum += g;
      dot += g * ((get<C>(x[e]) - get<C>(mean[row])) * inverse_of(third[row], s.eps));
    }
    set(dgamma[u], dot);
    set(dbeta[u], sum);
  }
}

// -- L2Normalization --------------------------------------------------------------------------

extern "C" __global__ void l2_rows(
    T *y, T *norm, const T *x, const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    i64 at = row_start(row, s.k, s.inner);
    A square = 0;
    EACH_OF_TEAM(j, 0, s.k)
    {
      A v = get<A>(x[at + j * s.inner]);
      square += v * v;
    }
    C length = (C)sqrt_of(team_sum(square) + (A)s.eps);
    if (LEADS && norm) set(norm[row], length);
    EACH_OF_TEAM(j, 0, s.k) set(y[at + j * s.inner], get<C>(x[at + j * s.inner]) / length);
  }
}

extern "C" __global__ void l2_rows_back(T *dx, const T *dy, const T *y, const T *norm,
    const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    i64 at = row_start(row, s.k, s.inner);
    A sum = 0;
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner;
      sum += get<C>(dy[e]) * get<C>(y[e]);
    }
    C dot = (C)team_sum(sum), length = get<C>(norm[row]);
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner;
      set(dx[e], (get<C>(dy[e]) - get<C>(y[e]) * dot) / length);
    }
  }
}
