// channels.cu - the gradient of IdentityAttachKLSparseReg: the head gradient plus one number per
// unit of (outer, k, inner). P is the type of the moving averages. Method: one thread per element,
// or per unit. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define P float
#include "team.cuh"
#endif

typedef computes<T>::type C;

FN INDEX channel_of(i64 i, i64 k, i64 inner) { return (INDEX)i / (INDEX)inner % (INDEX)k; }

// Adds to dy the number d of its unit: dx = dy + d.
extern "C" __global__ void sparse_shift(
    T *dx, const T *dy, const P *d, i64 n, i64 k, i64 inner)
{
  EACH(i, n) set(dx[i], get<C>(dy[i]) + get<C>(d[channel_of(i, k, inner)]));
}

// Updates the moving average of each unit, and writes the slope of the penalty at it to d.
extern "C" __global__ void sparse_slopes(P *d, P *moving, const P *mean, i64 k, double target,
    double penalty, double momentum)
{
  EACH(c, k)
  {
    set(moving[c], momentum * get<double>(moving[c]) + (1 - momentum) * get<double>(mean[c]));
    double average = get<double>(moving[c]);
    set(d[c], penalty * ((1 - target) / (1 - average) - target / average));
  }
}
