// convert.cu - an array of FROM as one of TO. Method: a thread an element. Bound: bytes.
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
