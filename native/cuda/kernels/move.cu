// move.cu - copies elements between two nests of strides, or one element to all positions of a
// nest, for transpose, concat, split, slice, tile, pad and others. Elements are copied as bits of
// type UNIT. Method: one thread per element, neighbours along the innermost axis of the
// destination. Bound: bytes if that axis is also the innermost one of the source or one of the two
// is short; transpose.cu makes other moves.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define AXES 3
#include "team.cuh"
#endif

struct move_args {
  i64 n;
  i64 axis[AXES][3]; // size, stride in dst, stride in src (may be negative); outermost first
};

// The offsets of an element in dst and in src.
struct move_offsets { i64 to, from; };
FN move_offsets offsets_of(const struct move_args &s, i64 i)
{
  INDEX left = (INDEX)i;
  move_offsets at = { 0, 0 };
  for (int d = AXES - 1; d >= 0; d--) {
    INDEX size = (INDEX)s.axis[d][0];
    i64 j = (i64)(left % size);
    left /= size;
    at.to += j * s.axis[d][1];
    at.from += j * s.axis[d][2];
  }
  return at;
}

extern "C" __global__ void move(
    UNIT *dst, const UNIT *src, const struct move_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    move_offsets at = offsets_of(s, i);
    dst[at.to] = src[at.from];
  }
}

extern "C" __global__ void fill_strided(
    UNIT *dst, u64 value, const struct move_args __grid_constant__ s)
{
  EACH(i, s.n) dst[offsets_of(s, i).to] = (UNIT)value;
}
