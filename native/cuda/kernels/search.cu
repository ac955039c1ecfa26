// search.cu - the index of the first greatest (or least) element of each row of k elements that are
// `inner` apart; NaN is more extreme than any number. Method: one team per row, which finds the
// extreme and then its index. Bound: bytes, one read; the second read comes from the cache.
#ifndef T
#include "prelude.cuh"
#define T float
#define TO float     // indices
#define LEAST 0
#define TEAM 32
#include "team.cuh"
#endif

typedef accumulates<T>::type A;

struct join_extreme {
  FN_IN_STRUCT A operator()(A a, A b) const
  {
    return (LEAST ? b < a : b > a) || is_nan(b) ? b : a;
  }
};

extern "C" __global__ void index_of_extreme(TO *y, const T *x, i64 rows, i64 k, i64 inner)
{
  EACH_ROW(row, rows)
  {
    const T *from = x + row_start(row, k, inner);
    A best = LEAST ? highest(A()) : lowest(A());
    EACH_OF_TEAM(j, 0, k) best = join_extreme()(best, get<A>(from[j * inner]));
    best = team_reduce(best, join_extreme());
    i64 index = k;
    EACH_OF_TEAM(j, 0, k)
    {
      A v = get<A>(from[j * inner]);
      if (index == k && (v == best || (is_nan(v) && is_nan(best)))) index = j;
    }
    index = team_least(index);
    if (LEADS) set(y[row], index < k ? index : 0);
  }
}
