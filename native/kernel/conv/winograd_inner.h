/* winograd_inner.h - what winograd.c and winograd_weight.c share. */
#pragma once
#include "kernel/conv/winograd.h"
#include "kernel/conv/winograd_isa.h"

const struct winograd_isa *winograd_isa(void);        /* of this processor */

/* The results of an image cut into tiles, and those of all images in one row, sorted by how much
** of a tile there is: whole rows of the last column if that is narrower, whole tiles, those of
** the last row if that is lower, the last corners. Then those that know a given point stand
** together. */
struct tiles {
  /* tiles of an image: whole ones, and one more or none */
  int64_t down[2], across[2];
  int height, width;                                  /* results of that one */
  int64_t count[4], all;
};
/* a run of tiles: where in the result, how many, their results */
struct place { int64_t image, y, x, n; int down, across; };
struct tiles tiles_of(const struct window *w);
/* of tile t and at most n - 1 behind it */
struct place place_of(const struct tiles *s, int64_t t, int64_t n);
int64_t      plane_of(int64_t tiles, int64_t channels);
