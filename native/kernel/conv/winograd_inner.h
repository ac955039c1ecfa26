/* winograd_inner.h - what winograd.c and winograd_weight.c share. */
#pragma once
#include "kernel/conv/tuning.h"
#include "kernel/conv/winograd.h"
#include "kernel/conv/winograd_isa.h"

const struct winograd_isa *winograd_isa(void);        /* of this processor */

/* The results of an image cut into tiles of 4 x 4, the last ones lower or narrower; those of all
** images are in one row. Where windows are dilated along the rows, a tile has every `apart`-th row:
** first come the tiles of rows 0, apart, 2 apart ..., then those of rows 1, apart + 1 ... */
struct tiles {
  int64_t height, width;                              /* results of an image */
  int64_t apart;
  int64_t down, across, all;                          /* tiles of an image, of all images */
};
/* neighbouring tiles with equally many results: where in the result, how many, their results */
struct tile_run { int64_t image, y, x, n; int down, across; };
struct tiles make_tiles(const struct window *w);
/* Returns the run of tile t and at most n - 1 after it. */
struct tile_run tile_run_at(const struct tiles *s, int64_t t, int64_t n);
int64_t      plane_of(int64_t tiles, int64_t channels);
