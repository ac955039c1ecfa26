// convert.cu - converts an array from FROM to TO, optionally times a factor or divided by an
// integer. Method: one thread per element. Bound: bytes.
#ifndef FROM
#include "prelude.cuh"
#define FROM float
#define TO f16
#define BY float
#endif

extern "C" __global__ void convert(TO *to, const FROM *from, i64 n)
{
  EACH(i, n) set(to[i], get<BY>(from[i]));
}

// Multiplies by a factor; `add` adds to the elements of `to` instead of replacing them.
extern "C" __global__ void times_factor(TO *to, const FROM *from, i64 n, double factor, i32 add)
{
  EACH(i, n)
  {
    BY v = (BY)factor * get<BY>(from[i]);
    set(to[i], add ? get<BY>(to[i]) + v : v);
  }
}

extern "C" __global__ void divide(TO *to, const FROM *from, i64 n, i64 by)
{
  EACH(i, n) set(to[i], (BY)(get<BY>(from[i]) / (BY)by));
}
