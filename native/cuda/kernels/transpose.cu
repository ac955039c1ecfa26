// transpose.cu - moves for which the innermost axes of source and destination differ: transpose,
// channels last and back. Elements are copied as bits of type UNIT. Method: tiles of the two axes
// go through shared memory, so that a warp reads and writes neighbours. A tile has 32 x 32
// elements; with one or two bytes each 128 or 64 per side, PACK per load, where lengths and
// alignment allow it. Bound: bytes, one read and one write.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define PACK 1
#define OUTER 1
#include "team.cuh"
#endif

enum { SIDE = 32 * PACK, WARPS = 8 };
typedef lanes<UNIT, PACK> pack;

// Stores elements of a column as one word, the first at the lowest address.
FN void store_pack(UNIT *to, const UNIT *column, int apart)
{
#if PACK > 1
  u32 word = 0;
  for (int k = 0; k < PACK; k++) word |= (u32)column[k * apart] << (32 / PACK * k);
  *(u32 *)to = word;
#else
  *to = *column;
#endif
}

struct transpose_args {
  i64 tiles;
  i64 to_size, to_from;      // the axis of neighbours in dst, and its stride in src
  i64 from_size, from_to;    // the axis of neighbours in src, and its stride in dst
  i64 outer[OUTER][3];       // other axes: size, stride in dst, stride in src; outermost first
};

extern "C" __global__ void transpose(
    UNIT *dst, const UNIT *src, const struct transpose_args __grid_constant__ s)
{
  __shared__ UNIT tile[SIDE][SIDE + 1];    // + 1: puts elements of a column into different banks
  const int warp = threadIdx.x / 32, at = threadIdx.x % 32 * PACK;
  const INDEX across = ((INDEX)s.from_size + SIDE - 1) / SIDE;
  const INDEX down = ((INDEX)s.to_size + SIDE - 1) / SIDE;
  for (i64 t = blockIdx.x; t < s.tiles; t += gridDim.x) {
    INDEX left = (INDEX)t;
    const i64 column = (i64)(left % across) * SIDE;
    left /= across;
    const i64 row = (i64)(left % down) * SIDE;
    left /= down;
    i64 to = column * s.from_to + row, from = row * s.to_from + column;
    for (int d = OUTER - 1; d >= 0; d--) {
      const i64 j = (i64)(left % (INDEX)s.outer[d][0]);
      left /= (INDEX)s.outer[d][0];
      to += j * s.outer[d][1];
      from += j * s.outer[d][2];
    }
    const i64 rows = s.to_size - row, columns = s.from_size - column;
    for (int i = warp; i < SIDE && i < rows; i += WARPS) {
      if (at >= columns) break;
      const pack v = *(const pack *)&src[from + i * s.to_from + at];
      for (int k = 0; k < PACK; k++) tile[i][at + k] = v.at[k];
    }
    __syncthreads();
    for (int i = warp; i < SIDE && i < columns; i += WARPS) {
      if (at >= rows) break;
      store_pack(&dst[to + i * s.from_to + at], &tile[at][i], SIDE + 1);
    }
    __syncthreads();
  }
}
