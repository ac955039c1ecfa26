// softmax.cu - softmax and its logarithm along an axis, and their gradients. Method: a team a row,
// three walks over it: greatest element, sum of exponentials, results; what is read again comes
// from the cache. Bound: bytes, one read and one write.
#ifndef T
#include "prelude.cuh"
#define T float      // data, or the gradient of data
#define TO float     // softmax, whose precision the arithmetic has
#define LENGTH i32   // how many elements of a row count
#define LOG 0        // the logarithm of the softmax
#define TEAM 32
#include "team.cuh"
#endif

typedef computes<TO>::type C;
typedef accumulates<TO>::type A;

// length: how many elements of each row count, or NULL; those after them are 0, their gradients too
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
