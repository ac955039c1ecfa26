// sum_to.cu - sums an array over the axes that a smaller one has as 1 or lacks: the way back of
// broadcasting. Method: a block per output; its threads walk the summed index space in strides,
// then add in a fixed order, in double or 64-bit integers: equal bits on each run. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define TO float
#define A double
#define KEEP 2
#define FOLD 2
#define ADD 0
#endif

struct sum_args {
  i64 outputs, folded;
  i64 keep[KEEP][3];   // size, stride in src, stride in dst; elements, outermost first
  i64 fold[FOLD][2];   // size, stride in src
};

extern "C" __global__ void sum_to(TO *dst, const T *src, const struct sum_args __grid_constant__ x)
{
  __shared__ A part[256];
  for (i64 out = blockIdx.x; out < x.outputs; out += gridDim.x) {
    i64 left = out, from = 0, to = 0;
    for (int d = KEEP - 1; d >= 0; d--) {
      i64 at = left % x.keep[d][0];
      left /= x.keep[d][0];
      from += at * x.keep[d][1];
      to += at * x.keep[d][2];
    }
    A sum = 0;
    for (i64 i = threadIdx.x; i < x.folded; i += blockDim.x) {
      i64 rest = i, at = from;
      for (int d = FOLD - 1; d >= 0; d--) {
        at += rest % x.fold[d][0] * x.fold[d][1];
        rest /= x.fold[d][0];
      }
      sum += get<A>(src[at]);
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned n = blockDim.x / 2; n; n /= 2) {
      if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
      __syncthreads();
    }
    if (threadIdx.x == 0) set(dst[to], ADD ? part[0] + get<A>(dst[to]) : part[0]);
    __syncthreads();
  }
}
