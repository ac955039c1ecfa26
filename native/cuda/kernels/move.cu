// move.cu - elements from one nest of strides to another: transpose, concat, split, slice, reverse.
// Elements are bits, UNIT bytes wide by type. Method: a thread an element, neighbours along the
// innermost axis of what is written. Bound: bytes; reads of a transpose are not coalesced.
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

extern "C" __global__ void move(
    UNIT *dst, const UNIT *src, const struct move_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    INDEX left = (INDEX)i;
    i64 to = 0, from = 0;
    for (int d = AXES - 1; d >= 0; d--) {
      INDEX size = (INDEX)s.axis[d][0];
      i64 at = (i64)(left % size);
      left /= size;
      to += at * s.axis[d][1];
      from += at * s.axis[d][2];
    }
    dst[to] = src[from];
  }
}
