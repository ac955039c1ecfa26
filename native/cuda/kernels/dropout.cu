// dropout.cu - Dropout. The factor of element i, `scale` or 0 times it, is decided by word i % 4 of
// Philox block i / 4 (base/philox.h), as on the CPU. Method: a thread a block of four.
// Bound: bytes.
#ifndef T
#include "prelude.cuh"
#include "base/philox.h"
#include "draw.cuh"
#define T float
#define FACTOR float
#define AXES 2
#include "team.cuh"
#endif

typedef computes<T>::type C;

// y = x times a factor, which is `scale` where the element's word is below limit, else 0 times it;
// x NULL: ones; mask: the factors, may be NULL
extern "C" __global__ void dropout(T *y, FACTOR *mask, const T *x, i64 n,
    const struct draw_key __grid_constant__ key, u32 limit, C scale)
{
  EACH(block, (n + 3) / 4)
  {
    struct philox p = draw(key, block);
    for (int k = 0; k < 4 && 4 * block + k < n; k++) {
      i64 i = 4 * block + k;
      C factor = p.w[k] < limit ? scale : 0 * scale;
      if (y) set(y[i], (x ? get<C>(x[i]) : 1) * factor);
      if (mask) set(mask[i], factor);
    }
  }
}

// The same for elements first .. first + n - 1 of a larger array; y may be x.
extern "C" __global__ void dropout_part(T *y, const T *x, i64 first, i64 n,
    const struct draw_key __grid_constant__ key, u32 limit, C scale)
{
  EACH(i, n)
  {
    u64 element = (u64)(first + i);
    struct philox p = draw(key, element / 4);
    set(y[i], get<C>(x[i]) * (p.w[element % 4] < limit ? scale : 0 * scale));
  }
}

struct shared_factors { i64 n, axis[AXES][2]; }; // size, stride in the factors

extern "C" __global__ void times_shared(
    T *y, const T *x, const FACTOR *factor, const struct shared_factors __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 left = i, at = 0;
    for (int d = AXES - 1; d >= 0; d--) {
      at += left % s.axis[d][0] * s.axis[d][1];
      left /= s.axis[d][0];
    }
    set(y[i], get<C>(x[i]) * get<C>(factor[at]));
  }
}
