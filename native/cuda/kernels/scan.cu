// scan.cu - running sums along rows of k elements that are `inner` apart, in the result's own
// precision, from the front or the back. Method: a thread a row, so that sums are made in order.
// Bound: bytes where rows are many, else the latency of one row.
#ifndef T
#include "prelude.cuh"
#define T float
#define TO float
#include "team.cuh"
#endif

typedef own_precision<TO>::type S;
typedef accumulates<T>::type A;

extern "C" __global__ void running_sums(TO *y, const T *x, i64 rows, i64 k, i64 inner, i32 back)
{
  EACH_ROW(row, rows)
  {
    i64 at = row / inner * k * inner + row % inner, step = inner;
    S sum = 0;
    if (back) at += (k - 1) * inner, step = -inner;
    for (i64 j = 0; j < k; j++, at += step) {
      TO v;
      set(v, get<A>(x[at]));
      sum += get<S>(v);
      set(y[at], sum);
    }
  }
}
