/* winograd_isa.h - transforms of Winograd's F(4 x 4, 3 x 3), compiled once per instruction set
** (kernel/conv/isa/winograd.c).
**
** Images have their channels in blocks of `lanes`, one vector: a block is (h, w, lanes). A plane
** has one coefficient of all tiles; point (i, j) is in plane 6 i + j. The coefficients of a tile
** and block of channels are `plane` elements apart, those of the next tile of a run are `step`
** elements further. The products between the transforms are made by kernel/gemm/isa.h. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  /* results of a tile along an axis */
  WINOGRAD_TILE = 4,
  /* coefficients of a tile */
  WINOGRAD_POINTS = 36
};

/* n neighbouring tiles of one row of tiles, for one block of channels. */
struct winograd_run {
  float  *image;                                      /* image of the block of channels */
  int64_t h, w;
  /* row and column of the start of the first tile; elements outside of the image are zeros */
  int64_t y, x;
  /* rows of the image between two rows of a tile */
  int64_t apart;
  /* number of tiles */
  int64_t n;
  int     down, across;                               /* rows and columns of results of a tile */
  float  *points;
  int64_t plane, step;
  const float *bias, *scale;                          /* of the block of channels; may be NULL */
  /* writes max(0, result) */
  bool    relu;
  /* adds to the elements of the image, before `relu` */
  bool    add;
};

/* Windows of n consecutive channels, `row` elements apart, for `lanes` filters, `lane` elements
** apart. */
struct winograd_filter {
  float  *window;
  int64_t row, lane, n;
  /* reads the window turned by 180 degrees */
  bool    flip;
  /* adds to the elements of the window */
  bool    add;
  float  *points;
  int64_t plane, step;
};

struct winograd_isa {
  int  lanes;
  void (*input)(const struct winograd_run *r);        /* image to points */
  void (*output)(const struct winograd_run *r);       /* points to image */
  /* the transpose of output: results to points */
  void (*output_back)(const struct winograd_run *r);
  void (*filter)(const struct winograd_filter *f);    /* window to points */
  /* the transpose of filter: points to window */
  void (*filter_back)(const struct winograd_filter *f);
};
