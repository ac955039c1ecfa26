/* winograd_inner.h - shared by winograd.c and winograd_weight.c. */
#pragma once
#include "kernel/conv/tuning.h"
#include "kernel/conv/winograd.h"
#include "kernel/conv/winograd_isa.h"

const struct winograd_isa *winograd_isa(void);        /* transforms for this processor */

/* Division of results into tiles of 4 x 4; the last ones of an image may be lower or narrower.
** Tiles of all images are numbered in sequence. If windows are dilated along the rows, a tile has
** every apart-th row: first come the tiles of rows 0, apart, 2 apart ..., then those of rows 1,
** apart + 1 ... */
struct tiles {
  int64_t height, width;                              /* size of an image's results */
  int64_t apart;
  int64_t down;                                       /* tiles of an image along its height */
  int64_t across;                                     /* tiles of an image along its width */
  int64_t all;                                        /* tiles of all images */
};
/* Neighbouring tiles of the same size. */
struct tile_run {
  int64_t image;
  int64_t y, x;                                       /* row and column of the first result */
  int64_t n;                                          /* number of tiles */
  int down, across;                                   /* rows and columns of results of a tile */
};
struct tiles make_tiles(const struct window *w);
/* Returns the run of at most n tiles that begins with tile t. */
struct tile_run tile_run_at(const struct tiles *s, int64_t t, int64_t n);
int64_t      plane_of(int64_t tiles, int64_t channels);
