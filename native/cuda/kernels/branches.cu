// branches.cu - copies at the entry and the exit of parts that run only if a guard, one byte, is
// not 0. Method: one thread per element; results of skipped parts are not read. Bound: bytes.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define T float
#include "team.cuh"
#endif

// Writes a guard: whether the condition holds (with `negate`, does not hold) and the enclosing
// guard `outer` does. outer may be NULL.
extern "C" __global__ void guard(u8 *y, const T *condition, const u8 *outer, i32 negate)
{
  EACH(i, 1) y[i] = (!outer || *outer) && (get<double>(*condition) != 0) != (negate != 0);
}

extern "C" __global__ void choose(
    UNIT *y, const u8 *guard, const UNIT *first, const UNIT *second, i64 n)
{
  const UNIT *from = *guard ? first : second;
  EACH(i, n) y[i] = from[i];
}

// Copies x to `first` if the guard holds, else to `second`, and zeros to the other one. Either may
// be NULL, and one may share the memory of x. Without `second`, x is not read if the guard does not
// hold, since its memory may be undefined.
extern "C" __global__ void part_ways(
    UNIT *first, UNIT *second, const u8 *guard, const UNIT *x, i64 n)
{
  bool holds = *guard;
  EACH(i, n)
  {
    UNIT v = holds || second ? x[i] : (UNIT)0;
    if (first) first[i] = holds ? v : (UNIT)0;
    if (second) second[i] = holds ? (UNIT)0 : v;
  }
}
