// dropout.cu - Dropout. The factor of element i, `scale` or 0 times `scale`, is decided by word i %
// 4 of Philox block i / 4 (base/philox.h), as on the CPU. Method: one thread per block of four
// elements, or where alignment allows it per load of 16 bytes. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#include "base/philox.h"
#include "draw.cuh"
#define T float
#define FACTOR float
#define AXES 2
#include "team.cuh"
#endif
#ifndef PACK
#define PACK 1       // elements of a load
#endif

typedef computes<T>::type C;
enum { ITEMS = PACK > 4 ? PACK : 4 };    // of a thread; with PACK > 1, n is a multiple of it

// Multiplies x by its factor: `scale` if the element's word is below limit, else 0 times `scale`. x
// NULL: ones. mask: the factors; may be NULL.
extern "C" __global__ void dropout(T *y, FACTOR *mask, const T *x, i64 n,
    const struct draw_key __grid_constant__ key, u32 limit, C scale)
{
  EACH(t, (n + ITEMS - 1) / ITEMS)
  {
    C factor[ITEMS];
    for (int b = 0; b < ITEMS / 4; b++) {
      struct philox p = draw(key, t * (ITEMS / 4) + b);
      for (int k = 0; k < 4; k++) factor[4 * b + k] = p.w[k] < limit ? scale : 0 * scale;
    }
    for (int k = 0; k < ITEMS && t * ITEMS + k < n; k += PACK) {
      const i64 i = t * ITEMS + k;
      lanes<T, PACK> v;
      lanes<FACTOR, PACK> kept;
      if (y && x) v = *(const lanes<T, PACK> *)&x[i];
      for (int j = 0; j < PACK; j++) {
        if (y) set(v.at[j], (x ? get<C>(v.at[j]) : 1) * factor[k + j]);
        if (mask) set(kept.at[j], factor[k + j]);
      }
      if (y) *(lanes<T, PACK> *)&y[i] = v;
      if (mask) *(lanes<FACTOR, PACK> *)&mask[i] = kept;
    }
  }
}

// Does the same for elements first .. first + n - 1 of a larger array. y may be x.
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
