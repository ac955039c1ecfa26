// bias.cu - a bias per channel and relu after a convolution whose library does not include them, in
// place over (outer, k, inner). Method: one thread per element. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define BIASED 1
#define RELU 0
#define INDEX u32
#endif

extern "C" __global__ void finish(T *y, const T *bias, i64 n, i64 k, i64 inner)
{
  typedef computes<T>::type C;
  EACH(i, n)
  {
    C v = get<C>(y[i]);
    if (BIASED) v += get<C>(bias[(INDEX)i / (INDEX)inner % (INDEX)k]);
    set(y[i], RELU && v <= 0 ? 0 : v); // NaN stays
  }
}
