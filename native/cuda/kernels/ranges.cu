// ranges.cu - arrays whose elements follow from their indices: ranges, the identity matrix,
// coordinates. Numbers are computed in double. Method: one thread per element. Bound: bytes
// written.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

// Writes start + (i / repeat) step, with i / repeat rounded down.
extern "C" __global__ void range(T *y, i64 n, double start, double step, i64 repeat)
{
  EACH(i, n) set(y[i], start + (double)(i / repeat) * step);
}

extern "C" __global__ void identity(T *y, i64 n, i64 columns, i64 diagonal)
{
  EACH(i, n) set(y[i], (double)(i % columns == i / columns + diagonal));
}

// The axes whose coordinates are listed. n: `width` coordinates times the elements.
struct coordinate_args { i64 n, width, axis[8][2]; }; // size, stride
extern "C" __global__ void coordinates(
    i64 *y, const struct coordinate_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 k = i % s.width;
    y[i] = i / s.width / s.axis[k][1] % s.axis[k][0];
  }
}
