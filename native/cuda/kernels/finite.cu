// finite.cu - sets a flag to 0 if an array has an infinity or a NaN. Method: one thread per
// element. Bound: bytes, one read.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

// Sets the flag to 0 if x has an infinity or a NaN. The flag is a float; as an integer, 0 has the
// bits of 0.0f.
extern "C" __global__ void look_for_infinite(i32 *flag, const T *x, i64 n)
{
  EACH(i, n)
  {
    double v = get<double>(x[i]);
    if (v - v != 0) atomicExch(flag, 0);
  }
}
