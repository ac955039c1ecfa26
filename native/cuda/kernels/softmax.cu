// softmax.cu - softmax and its logarithm along an axis, and their gradients. Method: one team per
// row, which it holds in registers, in loads of 16 bytes, if it fits; else three walks over it:
// greatest element, sum of exponentials, results, from the cache after the first one. Sums are
// joined in double, those of a thread are compensated. Bound: bytes, one read and one write.
#ifndef T
#include "prelude.cuh"
#define T float      // data, or the gradient of data
#define TO float     // softmax; also the precision of the arithmetic
#define LENGTH i32   // lengths of rows
#define LOG 0        // 1: the logarithm of the softmax
#define TEAM 32
#define PACK 4       // elements of a load
#define HELD 2       // packs of a thread
#include "team.cuh"
#endif

typedef computes<TO>::type C;
typedef accumulates<TO>::type A;

// Computes softmax. length: how many elements of each row count; the others become 0, as do their
// gradients. NULL: all count.
extern "C" __global__ void softmax(
    TO *y, const T *x, const LENGTH *length, i64 rows, i64 k, i64 inner, C scale)
{
  EACH_ROW(row, rows)
  {
    i64 at = row_start(row, k, inner), n = length ? index_at(length[row], k + 1) : k;
    soft_row<C> s = soft_sums<A>(x + at, n, inner, scale);
    C last = LOG ? log_of(s.total) : 1 / s.total;
    EACH_OF_TEAM(j, 0, k)
    {
      C v = (get<C>(x[at + j * inner]) - s.greatest) * scale;
      set(y[at + j * inner], j >= n ? 0 : LOG ? v - last : exp_of(v) * last);
    }
  }
}

extern "C" __global__ void softmax_back(
    T *dx, const TO *y, const TO *dy, const LENGTH *length, i64 rows, i64 k, i64 inner, C scale)
{
  EACH_ROW(row, rows)
  {
    i64 at = row_start(row, k, inner), n = length ? index_at(length[row], k + 1) : k;
    A sum = 0;
    EACH_OF_TEAM(j, 0, n)
    {
      C g = get<C>(dy[at + j * inner]);
      sum += LOG ? g : g * get<C>(y[at + j * inner]);
    }
    C total = (C)team_sum(sum);
    EACH_OF_TEAM(j, 0, k)
    {
      C p = get<C>(y[at + j * inner]), g = get<C>(dy[at + j * inner]);
      set(dx[at + j * inner],
          j >= n ? 0 : (LOG ? g - exp_of(p) * total : (g - total) * p) * scale);
    }
  }
}

// -- rows in registers ----------------------------------------------------------------------------

typedef lanes<T, PACK> LT;
typedef lanes<TO, PACK> LTO;

extern "C" __global__ void softmax_held(
    TO *y, const T *x, const LENGTH *length, i64 rows, i64 k, C scale)
{
  EACH_ROW(row, rows)
  {
    const i64 at = row * k, n = length ? index_at(length[row], k + 1) : k;
    const C sign = scale < 0 ? -1 : 1;
    C v[HELD][PACK], most = -infinity<C>();
    exact_sum<C> total = {};
    EACH_HELD(h, j, k)
    {
      const LT in = *(const LT *)(x + at + j);
      for (int l = 0; l < PACK; l++) {
        v[h][l] = get<C>(in.at[l]);
        const C signed_v = v[h][l] * sign;
        if (j + l < n) most = signed_v > most ? signed_v : most;
      }
    }
    most = team_max(most) * sign;
    EACH_HELD(h, j, k)
    for (int l = 0; l < PACK; l++) {
      const C below = (v[h][l] - most) * scale, e = exp_of(below);
      if (j + l < n) total.add(e);
      v[h][l] = LOG ? below : e;
    }
    const C all = (C)team_sum(total.value()), last = LOG ? log_of(all) : 1 / all;
    EACH_HELD(h, j, k)
    {
      LTO out;
      for (int l = 0; l < PACK; l++)
        set(out.at[l], j + l >= n ? 0 : LOG ? v[h][l] - last : v[h][l] * last);
      *(LTO *)(y + at + j) = out;
    }
  }
}

extern "C" __global__ void softmax_back_held(
    T *dx, const TO *y, const TO *dy, const LENGTH *length, i64 rows, i64 k, C scale)
{
  EACH_ROW(row, rows)
  {
    const i64 at = row * k, n = length ? index_at(length[row], k + 1) : k;
    LTO soft[HELD], head[HELD];
    exact_sum<C> sum = {};
    EACH_HELD(h, j, k)
    {
      soft[h] = *(const LTO *)(y + at + j);
      head[h] = *(const LTO *)(dy + at + j);
      for (int l = 0; l < PACK; l++) {
        const C g = get<C>(head[h].at[l]);
        if (j + l < n) sum.add(LOG ? g : g * get<C>(soft[h].at[l]));
      }
    }
    const C total = (C)team_sum(sum.value());
    EACH_HELD(h, j, k)
    {
      LT out;
      for (int l = 0; l < PACK; l++) {
        const C p = get<C>(soft[h].at[l]), g = get<C>(head[h].at[l]);
        const C d = LOG ? g - exp_of(p) * total : (g - total) * p;
        set(out.at[l], j + l >= n ? 0 : d * scale);
      }
      *(LT *)(dx + at + j) = out;
    }
  }
}
