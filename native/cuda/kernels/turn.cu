// turn.cu - transposes each slice (rows, columns) of many arrays in one launch, to another array or
// in place: weights of convolutions to channels last, and gradients back. Elements are copied as
// bits of type UNIT. Method: one block per slice, which goes through shared memory as a whole.
// Bound: bytes, one read and one write.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#endif

enum { MOST = 96 };  // most arrays of a launch, see native/cuda/turn.c

struct turned_array {
  UNIT *to;
  const UNIT *from;
  i32 first, rows, columns; // first: index of its first block; it has one block per slice
};
struct turn_args {
  struct turned_array of[MOST];
  i32 n;
};

extern "C" __global__ void turn_slices(const struct turn_args __grid_constant__ s)
{
  extern __shared__ __align__(16) UNIT slice[];
  int k = s.n - 1;
  while (s.of[k].first > (i32)blockIdx.x) k--;
  const struct turned_array a = s.of[k];
  const i32 size = a.rows * a.columns, across = a.columns | 1; // odd: uses all banks
  const i64 base = (i64)((i32)blockIdx.x - a.first) * size;
  for (i32 i = threadIdx.x; i < size; i += 256)
    slice[i / a.columns * across + i % a.columns] = a.from[base + i];
  __syncthreads();
  for (i32 i = threadIdx.x; i < size; i += 256)
    a.to[base + i] = slice[i % a.rows * across + i / a.rows];
}
