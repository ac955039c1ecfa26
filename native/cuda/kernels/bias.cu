// bias.cu - a bias per channel, added in place to (outer, k, inner). Method: a thread an element.
// Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define INDEX u32
#endif

extern "C" __global__ void add_bias(T *y, const T *bias, i64 n, i64 k, i64 inner)
{
  typedef computes<T>::type C;
  EACH(i, n) set(y[i], get<C>(y[i]) + get<C>(bias[(INDEX)i / (INDEX)inner % (INDEX)k]));
}
