/* isa_1x1.h - the inner loop of 1 x 1 convolutions over channels in blocks, compiled once per
** instruction set (kernel/conv/isa/conv_1x1.c). Positions of an image lie one vector apart, its
** blocks of channels `far` elements.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* y = scale sum + bias (+ y), then max(0, result): rows positions x one or two vectors of
** filters */
struct point_tile {
  const float *x; int64_t blocks;                     /* the first position; blocks of channels */
  /* a panel: a row of filters for each channel */
  const float *weight;
  float *y;
  int64_t far;
  int rows, vectors;                                  /* rows: at most `most` */
  /* what is fetched meanwhile: a line per channel, and from block to block */
  const float *soon; int64_t soon_step, soon_far;
  const float *bias, *scale;                          /* per filter; NULL: zeros, ones */
  bool add, relu;
};
struct point_isa { int lanes, most; void (*tile)(const struct point_tile *t); };
