// norm_rows.cu - normalisation of rows by their own statistics: LayerNorm, RMSNorm, InstanceNorm,
// GroupNorm; and L2Normalization, which divides rows by their length. A row has k elements, inner
// apart, with one gain per element, or one for the whole row. Method: one team per row, which it
// holds in registers, in loads of 16 bytes, if it fits: mean, then variance about it, then results.
// Backward also sums up the gradients of the gains, of which each team leaves a part. Longer rows
// are walked repeatedly, from the cache after the first time. Sums are joined in double, those of a
// thread are compensated. Bound: bytes, one read and one write.
#ifndef T
#include "prelude.cuh"
#define T float
#define SHARED 0     // 1: the elements of a row share the gain of row % groups
#define DEVIATION 1  // the third output is sqrt(var + eps), not var
#define CENTERED 1   // 0: RMSNorm, whose mean is 0 and which has no beta
#define TEAM 32
#define PACK 4       // elements of a load
#define HELD 2       // packs of a thread
#include "team.cuh"
#endif

typedef computes<T>::type C;
typedef accumulates<T>::type A;

struct norm_args {
  i64 rows, k, inner, groups, parts;
  double eps;
};

FN C mean_of(const T *mean, i64 row) { return CENTERED ? get<C>(mean[row]) : 0; }
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
    if (CENTERED) EACH_OF_TEAM(j, 0, s.k) sum += get<A>(x[at + j * s.inner]);
    A m = CENTERED ? team_sum(sum) / (A)s.k : 0;
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
      set(y[e], v * get<C>(gamma[g]) + (CENTERED ? get<C>(beta[g]) : 0));
    }
  }
}

// Stores v, rounded, then adds *more unless it is NULL.
FN void set_sum(T *to, C v, const T *more)
{
  set(*to, v);
  if (more) set(*to, get<C>(*to) + get<C>(*more));
}

// Computes dx, which may be NULL, and for rows with one gain (SHARED) what each row adds to the
// gradients of gamma and beta. more: added to dx; may be NULL.
extern "C" __global__ void norm_rows_back(T *dx, double *dgamma, double *dbeta, const T *dy,
    const T *x, const T *gamma, const T *mean, const T *third, const T *more,
    const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    i64 at = row_start(row, s.k, s.inner);
    C m = mean_of(mean, row), inverse = inverse_of(third[row], s.eps);
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
    C a = CENTERED ? (C)(sum / (A)s.k) : 0, b = (C)(dot / (A)s.k);
    EACH_OF_TEAM(j, 0, s.k)
    {
      i64 e = at + j * s.inner;
      C g = get<C>(dy[e]) * (SHARED ? 1 : get<C>(gamma[j]));
      set_sum(&dx[e], all * inverse * (g - a - (get<C>(x[e]) - m) * inverse * b),
          more ? more + e : NULL);
    }
  }
}

// Computes parts of the gradients of gains, one gain per element: for each part of the rows, k sums
// for gamma, then k sums for beta.
extern "C" __global__ void gain_parts(C *part, const T *dy, const T *x, const T *mean,
    const T *third, const struct norm_args __grid_constant__ s)
{
  EACH(u, s.k * s.parts)
  {
    i64 j = u % s.k, p = u / s.k, end = (p + 1) * s.rows / s.parts;
    A sum = 0, dot = 0;
    for (i64 row = p * s.rows / s.parts; row < end; row++) {
      i64 e = row_start(row, s.k, s.inner) + j * s.inner;
      C g = get<C>(dy[e]);
      sum += g;
      dot += g * ((get<C>(x[e]) - mean_of(mean, row)) * inverse_of(third[row], s.eps));
    }
    part[2 * p * s.k + j] = (C)dot;
    part[(2 * p + 1) * s.k + j] = (C)sum;
  }
}

// Adds up the parts, 32 columns per block. dgamma and dbeta may be NULL.
extern "C" __global__ void gain_sums(
    T *dgamma, T *dbeta, const C *part, const struct norm_args __grid_constant__ s)
{
  for (i64 first = (i64)blockIdx.x * 32; first < s.k; first += (i64)gridDim.x * 32) {
    const i64 j = first + threadIdx.x % 32;
    double dot = 0, sum = 0;
    for (i64 p = threadIdx.x / 32; p < s.parts && j < s.k; p += 8) {
      dot += part[2 * p * s.k + j];
      sum += part[(2 * p + 1) * s.k + j];
    }
    dot = join_block(dot, 32);
    sum = join_block(sum, 32);
    if (threadIdx.x >= 32 || j >= s.k) continue;
    if (dgamma) set(dgamma[j], dot);
    if (dbeta) set(dbeta[j], sum);
  }
}

// -- rows in registers ----------------------------------------------------------------------------

typedef lanes<T, PACK> L;
FN L load(const T *x, i64 at) { return *(const L *)(x + at); }

extern "C" __global__ void norm_rows_held(T *y, T *mean, T *third, const T *x, const T *gamma,
    const T *beta, const struct norm_args __grid_constant__ s)
{
  EACH_ROW(row, s.rows)
  {
    const i64 at = row * s.k;
    L in[HELD];
    exact_sum<C> sum = {}, square = {};
    EACH_HELD(h, j, s.k)
    {
      in[h] = load(x, at + j);
      for (int l = 0; CENTERED && l < PACK; l++) sum.add(get<C>(in[h].at[l]));
    }
    const double centre = CENTERED ? team_sum(sum.value()) / (double)s.k : 0;
    const C m = (C)centre;
    EACH_HELD(h, j, s.k)
    for (int l = 0; l < PACK; l++) {
      const C d = get<C>(in[h].at[l]) - m;
      square.add(d * d);
    }
    const double off = centre - (double)m, all = team_sum(square.value()) / (double)s.k - off * off;
    const double var = all < 0 ? 0 : all, deviation = sqrt(var + s.eps); // NaN stays
    const C inverse = (C)(1 / deviation);
    if (LEADS && mean) set(mean[row], centre);
    if (LEADS && third) set(third[row], DEVIATION ? deviation : var);
    if (!y) continue;
    EACH_HELD(h, j, s.k)
    {
      L out;
      for (int l = 0; l < PACK; l++) {
        const i64 g = gain_of(row, j + l, s.groups);
        const C v = (get<C>(in[h].at[l]) - m) * inverse;
        set(out.at[l], v * get<C>(gamma[g]) + (CENTERED ? get<C>(beta[g]) : 0));
      }
      *(L *)(y + at + j) = out;
    }
  }
}

// Computes dx, which may be NULL, from rows in registers. part: (s.parts, 2, k), receives what the
// rows of each team add to the gradients of gamma and beta, one gain per element; may be NULL.
// dgamma, dbeta: NULL, or in a grid of one block, which then adds up the parts itself. more: added
// to dx; may be NULL.
extern "C" __global__ void norm_rows_back_held(T *dx, C *part, T *dgamma, T *dbeta, const T *dy,
    const T *x, const T *gamma, const T *mean, const T *third, const T *more,
    const struct norm_args __grid_constant__ s)
{
  EACH_ROW(p, s.parts)
  {
    C dots[HELD][PACK] = {}, sums[HELD][PACK] = {};
    for (i64 row = p * s.rows / s.parts; row < (p + 1) * s.rows / s.parts; row++) {
      const i64 at = row * s.k;
      const C m = mean_of(mean, row), inverse = inverse_of(third[row], s.eps);
      L head[HELD], in[HELD];
      exact_sum<C> sum = {}, dot = {};
      EACH_HELD(h, j, s.k)
      {
        const L gain = load(gamma, j);
        head[h] = load(dy, at + j);
        in[h] = load(x, at + j);
        for (int l = 0; l < PACK; l++) {
          const C d = get<C>(head[h].at[l]), v = (get<C>(in[h].at[l]) - m) * inverse;
          const C g = d * get<C>(gain.at[l]);
          dots[h][l] += d * v;
          sums[h][l] += d;
          sum.add(g);
          dot.add(g * v);
        }
      }
      if (!dx) continue;
      const C a = CENTERED ? (C)(team_sum(sum.value()) / (double)s.k) : 0;
      const C b = (C)(team_sum(dot.value()) / (double)s.k);
      EACH_HELD(h, j, s.k)
      {
        const L gain = load(gamma, j);
        L out, other;
        if (more) other = load(more, at + j);
        for (int l = 0; l < PACK; l++) {
          const C g = get<C>(head[h].at[l]) * get<C>(gain.at[l]);
          const C v = (get<C>(in[h].at[l]) - m) * inverse;
          set_sum(&out.at[l], inverse * (g - a - v * b), more ? &other.at[l] : NULL);
        }
        *(L *)(dx + at + j) = out;
      }
    }
    if (!part) continue;
    EACH_HELD(h, j, s.k)
    for (int l = 0; l < PACK; l++) {
      part[2 * p * s.k + j + l] = dots[h][l];
      part[(2 * p + 1) * s.k + j + l] = sums[h][l];
    }
  }
  if (!dgamma && !dbeta) return;
  __syncthreads();
  for (i64 j = threadIdx.x; j < s.k; j += blockDim.x) {
    double dot = 0, sum = 0;
    for (i64 p = 0; p < s.parts; p++) {
      dot += part[2 * p * s.k + j];
      sum += part[(2 * p + 1) * s.k + j];
    }
    if (dgamma) set(dgamma[j], dot);
    if (dbeta) set(dbeta[j], sum);
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
    if (!y) continue;
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
