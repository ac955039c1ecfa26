/* sampler.h - loops over images: grids, samples between pixels, repeated pixels. See vec.h. */
#pragma once
#include "kernel/vec/vec.h"

/* Images (c, h, w) that are sampled at n positions. */
struct image { int64_t c, h, w, n; };

struct vec_sampler {
  /* -- images; a grid has h w positions: x in -1 .. 1 (left to right), then y (top to bottom) -- */

  /* Computes theta (2, 3) times (x, y, 1) of a regular grid. */
  void   (*grid)(void *grid, const void *theta, int64_t h, int64_t w);
  /* Computes the gradient of theta. */
  void   (*grid_back)(void *dtheta, const void *dgrid, int64_t h, int64_t w);
  /* Computes bilinear samples y (c, n) of x; pixels outside of x count as 0. */
  void   (*sample)(void *y, const void *x, const void *grid, const struct image *s);
  /* Adds the gradient of x to dx and writes that of the grid to dgrid. Either may be NULL. */
  void   (*sample_back)(void *dx, void *dgrid, const void *dy, const void *x, const void *grid,
      const struct image *s);
  /* Writes each x `scale` times. */
  void   (*repeat)(void *y, const void *x, int64_t scale, int64_t n);
  /* Adds sums of `scale` neighbours of x to y. */
  void   (*collect)(void *y, const void *x, int64_t scale, int64_t n);
};
