// finite.cu - whether an array has infinities or NaN: the flag becomes 0 where it has. Method: a
// thread an element. Bound: bytes, one read.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

// Sets the flag, a float, to 0 if x has an infinity or a NaN: the bits of 0.0f are those of 0.
extern "C" __global__ void look_for_infinite(i32 *flag, const T *x, i64 n)
{
  EACH(i, n)
  {
    double v = get<double>(x[i]);
    if (v - v != 0) atomicExch(flag, 0);
  }
}
