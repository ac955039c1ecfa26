/* tiles.h - inner loops of convolutions on matrix tiles (AMX), for conv/tiles.c and
** conv/tiles_weight.c.
**
** A tile of the left side is 16 positions of 32 channels, one of the right side 32 channels of 16
** filters. A position is 32 bfloat16 numbers, a cache line. Positions are contiguous, so that a tap
** of the window is an offset. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  TILE_LANES = 16,                                    /* filters, or positions, of a tile */
  TILE_CHANNELS = 32,                                 /* channels of a tile */
  TILE_FILTERS = 2 * TILE_LANES,                      /* filters of a block */
  TILE_NUMBERS = TILE_CHANNELS * TILE_LANES,          /* bfloat16 numbers of a tile */
};

/* The products of a block of filters with the positions of some tiles. */
struct tiles_block {
  const uint16_t *x;                                  /* position 0 of the first 32 channels */
  /* distance of the planes of 32 channels, in elements */
  int64_t plane;
  /* number of such planes */
  int64_t channels;
  /* offsets of the window's taps, in elements */
  const int64_t *tap;
  /* number of taps */
  int64_t taps;
  /* tiles of the right side: for each plane and tap, one for the first and one for the second 16
  ** filters */
  const uint16_t *weight;
  /* number of tiles of the left side */
  int64_t tiles;
  /* per tile: its first position */
  const int32_t *first;
  /* per tile: 16 indices in y, in positions; below 0: not written */
  const int32_t *where;
  /* y of the first 16 filters, 16 elements per position */
  float *y;
  /* elements from there to the second 16 filters */
  int64_t block;
  int parts;                                          /* 1: there are no second 16 filters */
  /* as in struct convolve_end, from the first filter on */
  const float *scale;
  const float *bias;                                  /* as scale */
  bool add;
  int act;
  /* applies an activation in place */
  void (*apply)(int act, int64_t n, void *x);
};

/* A sum of products over positions, for the gradient of the weight: 2 x 2 tiles of 16 filters x 16
** channels, stored one after the other, filters first. */
struct tiles_sums {
  /* contiguous tiles of 16 filters x 32 positions */
  const uint16_t *left;
  /* elements from there to the second 16 filters */
  int64_t left_next;
  /* rows of 16 channels of two positions */
  const uint16_t *right;
  /* elements from there to the second 16 channels */
  int64_t right_next;
  /* number of groups of 32 positions */
  int64_t steps;
  float *sums;
  bool add;                                           /* adds to the contents of `sums` */
};

struct conv_tiles {
  void (*multiply)(const struct tiles_block *b);
  /* Rounds n positions, `step` elements apart, of 16 channels and of the next 16 (NULL: zeros). */
  void (*pack)(int64_t n, const float *low, const float *high, int64_t step, uint16_t *to);
  void (*add_up)(const struct tiles_sums *s);
  /* Rounds n positions, `step` elements apart, of 16 channels. */
  void (*round)(int64_t n, const float *from, int64_t step, uint16_t *to);
  /* Pairs 2 n rounded positions into n rows of tiles_sums.right. */
  void (*pair)(int64_t n, const uint16_t *from, uint16_t *to);
  /* Transposes 32 n rounded positions into n tiles of tiles_sums.left. */
  void (*turn)(int64_t n, const uint16_t *from, uint16_t *to);
};

/* Returns the loops for this processor; NULL if it has no tiles. */
const struct conv_tiles *conv_tiles(void);
/* Replaces the processor's loops, for tests. */
void conv_tiles_give(const struct conv_tiles *t);
