// finite.cu - whether an array has infinities or NaN: the flag becomes 0 where it has. Method: a
// thread an element. Bound: bytes, one read.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

// flag: a float, of which 0 has no bits
extern "C" __global__ void look_for_infinite(i32 *flag, const T *x, i64 n)
{
  EACH(i, n)
  {
    double v = get<double>(x[i]);
    if (v - v != 0) atomicExch(flag, 0);
  }
}
