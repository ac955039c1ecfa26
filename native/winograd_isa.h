/* winograd_isa.h - transforms of Winograd's F(4 x 4, 3 x 3), compiled once per instruction set (isa/winograd_kernel.c).
**
** Images have their channels in blocks of `lanes`, one vector: a block is (h, w, lanes). A plane holds one of the 36
** coefficients of all tiles; the coefficients of one tile and one block of channels lie `plane` elements apart, those of
** the next tile of a run `step` further. The products between the transforms are gemm_isa.h's.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { WINOGRAD_TILE = 4, WINOGRAD_POINTS = 36 };

/* n neighbouring tiles of one row of tiles, one block of channels */
struct winograd_run {
  float  *image; int64_t h, w;                        /* the block's */
  int64_t y, x, n;                                    /* where the first tile begins (outside: zeros); tiles */
  float  *points; int64_t plane, step;
  const float *bias, *scale;                          /* of the block; NULL: none */
  bool    relu, add;                                  /* onto what the image holds; then max(0, result) */
};

/* Windows of `n` channels one after the other, `row` elements apart, each for `lanes` filters, `lane` elements apart. */
struct winograd_filter {
  float  *window; int64_t row, lane, n;
  bool    flip, add;                                  /* turned by 180 degrees; onto what the window holds */
  float  *points; int64_t plane, step;
};

struct winograd_isa {
  int  lanes;
  void (*input)(const struct winograd_run *r);        /* image to points: 6 x 6 of the image for a tile */
  void (*output)(const struct winograd_run *r);       /* points to image: 4 x 4 */
  void (*output_back)(const struct winograd_run *r);  /* the transpose of output: 4 x 4 of the image to points */
  void (*filter)(const struct winograd_filter *f);    /* window to points */
  void (*filter_back)(const struct winograd_filter *f);                        /* the transpose: points to window */
};
