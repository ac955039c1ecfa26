/* isa.h - the part of the matrix product that is compiled once per instruction set
** (kernel/gemm/isa/gemm.c).
**
** A block is a product done by one thread: C (m x n) = act(alpha A B + C? + bias). B is in
** panels of `nr` columns (the last may be narrower: a multiple of `w`, padded with zeros), one
** row of a panel after the other. A is read in place through two strides, or packed in strips of
** `gemm_height` rows (ars 1, acs = height, strip = distance). The sum runs `outer` times over k
** steps, each A element acs further, A moving by `jump` between runs and B going on without a
** gap: that lets an image be read in place, row by row.
**
** Narrow types (bfloat16, 8-bit integers) are multiplied in words of 32 bits: `per` elements along
** k, padded with zeros after the last one. Panels, strips and sums are then laid out as those of
** float32 with fewer steps; k, kc and `from` count elements, ars and acs too.
*/
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernel/gemm/attend.h"
#include "kernel/gemm/levels.h"

struct gemm_block {
  int64_t m;                                          /* rows of C */
  int64_t n;                                          /* columns of C */
  int64_t k;                                          /* steps of a run of the sum */
  int64_t outer;                                      /* runs */
  int64_t jump;                                       /* elements of A skipped between runs */
  int64_t from;                                       /* the first of the k steps, in A and in B */
  const void *a;
  int64_t ars;                                        /* elements from one row of A to the next */
  int64_t acs;                                        /* from one column to the next */
  int64_t strip;                                      /* from one strip of rows to the next */
  int rows;                                           /* of a packed strip; 0: gemm_height */
  const void *b;
  int64_t ldb;                                        /* from one row of a panel to the next */
  int64_t panel;                                      /* from one panel to the next */
  void *c;
  int64_t ldc;                                        /* from one row of C to the next */
  const void *bias;                                   /* per column; NULL: none */
  const void *row_bias;                               /* per row; NULL: none */
  const void *row_scale;                              /* per row, multiplies A B; NULL: ones */
  double alpha;
  bool add;                                           /* to the old C */
  bool copy;                                          /* copy A strip by strip (outer 1, k <= kc) */
  bool full;                                          /* B is not padded: read only n columns */
  int act;                                            /* ACT_* */
  /* Of 8-bit integers. unit NULL: C gets the sums, in int32. Else C gets float32:
  ** (A B - zero_term) * unit * scale + bias (levels.h). */
  const float *unit;                                  /* per row */
  const float *scale;                                 /* per column */
  const int32_t *zero_term;                           /* per column */
};

/* A part of an output row. */
struct gemm_piece {
  int64_t from;                                       /* offset in a channel of the image */
  int32_t at;                                         /* column of the panel */
  int32_t n;                                          /* elements */
};

/* Where the columns of a panel are in an image. A window has taps, offsets of the elements that it
** covers; row (c, t) of the panel is channel c, moved by tap t. `fill` copies an image to panel
** rows of `width` elements; `scatter_panel` adds such rows to an image. */
struct gemm_image {
  /* number of channels of the image */
  int64_t channels;
  /* elements from one channel to the next */
  int64_t channel;
  /* from one column to the next, in the image */
  int64_t step;
  /* elements of a panel row */
  int64_t width;
  /* elements from the end of a panel row to the next row */
  int64_t skip;
  /* number of taps of the window */
  int taps;
  /* their offsets in a channel */
  const int64_t *tap;
  /* number of pieces */
  int n;
  const struct gemm_piece *piece;
  /* the pieces leave gaps, which get zeros */
  bool clear;
};

/* Panel rows of whole output rows, first .. first + rows - 1, of a window that moves by one: row
** (c, t) is channel c, moved by tap t. `fold` adds them to the channels: each vector of a channel's
** row gets the elements of all taps while it is in a register. */
struct gemm_fold {
  /* number of channels of the image */
  int64_t channels;
  /* elements from one channel to the next */
  int64_t channel;
  /* elements from one row of the panel to the next */
  int64_t width;
  /* elements of a channel down and across */
  int64_t in[2];
  /* taps of the window down and across */
  int64_t kernel[2];
  /* elements around the image down and across */
  int64_t pad[2];
  /* the first output row */
  int64_t first;
  /* number of output rows */
  int64_t rows;
  /* elements of an output row */
  int64_t across;
};

/* Output rows of one channel, for a window that moves by one row of the image. */
struct gemm_map {
  /* number of rows of the map */
  int64_t rows;
  /* number of its columns */
  int64_t n;
  /* taps of the window down */
  int down;
  /* and across */
  int across;
  /* offsets of the taps of the window's first row, for column 0 */
  const int64_t *tap;
  /* elements from one row of the image to the next */
  int64_t line;
  /* elements from one row of the map to the next */
  int64_t to;
  /* down * across weights, row by row */
  const void *weight;
  /* first term of each sum */
  double start;
  /* to the old map */
  bool add;
};

struct gemm_type {
  /* most rows of a tile */
  int mr;
  /* columns of a panel */
  int nr;
  /* lanes of a vector */
  int w;
  /* steps after which a sum goes through memory */
  int kc;
  /* bytes of an element of A and B */
  int element;
  /* bytes of a word of a panel, of a sum and of an element of C */
  int word;
  /* elements along k that a word holds */
  int per;
  /* words are made of A's elements strip by strip, so blocks must have `copy` set */
  bool copies;
  /* computes a block */
  void (*block)(const struct gemm_block *b);
  /* packs B (k x cols) into a panel, padded to whole vectors */
  void (*panel)(int64_t k, int64_t cols, const void *b, int64_t ldb, void *out);
  /* packs the transpose of b (cols x k) into a panel */
  void (*panel_t)(int64_t k, int64_t cols, const void *b, int64_t ldb, void *out);
  /* packs rows of A into a strip of `height` rows; the last ones are not written if there are
  ** fewer */
  void (*strip)(int64_t rows, int64_t k, const void *a, int64_t ars, int64_t acs, int height,
      void *out);
  /* computes C = alpha A B^T for few rows, reading both along k */
  void (*dots)(int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b,
      int64_t ldb, void *c, int64_t ldc, double alpha, bool add);
  /* From here on a function is NULL where the type does not have it. */
  /* applies an activation (ACT_*) in place */
  void (*act)(int act, int64_t n, void *x);
  /* out = g times the slope of gelu at x */
  void (*gelu_back)(int64_t n, const void *x, const void *g, void *out);
  /* adds alpha x[i * step] to y[i] */
  void (*axpy)(int64_t n, double alpha, const void *x, int64_t step, void *y);
  /* adds k rows of B, ldb elements apart, each times its element of a, to y, in their order */
  void (*add_rows)(int64_t n, int64_t k, const void *a, int64_t step, const void *b, int64_t ldb,
      void *y);
  /* adds x[i] to y[i * step] */
  void (*scatter)(int64_t n, const void *x, void *y, int64_t step);
  /* returns the sum of x[i * step] y[i] */
  double (*dot)(int64_t n, const void *x, int64_t step, const void *y);
  /* returns the sum of x */
  double (*sum)(int64_t n, const void *x);
  /* copies an image to panel rows */
  void (*fill)(const struct gemm_image *f, const void *image, void *panel);
  /* y[i] (+)= start + the sum over taps of weight[t] x[tap[t] + i], for i < n; reads up to w - 1
  ** elements of x after those */
  void (*window_row)(int64_t n, int taps, const int64_t *tap, const void *weight, double start,
      bool add, const void *x, void *y);
  /* computes what window_row does for each row of a map, with equal bits */
  void (*window_map)(const struct gemm_map *m, const void *x, void *y);
  /* adds panel rows to an image */
  void (*scatter_panel)(const struct gemm_image *f, const void *panel, void *image);
  /* adds panel rows of whole output rows to an image; NULL for narrow vectors, where scatter_panel
  ** is as fast */
  void (*fold)(const struct gemm_fold *f, const void *panel, void *image);
  /* gemm_score */
  void (*score)(const struct gemm_attend *g);
  /* gemm_weigh */
  void (*weigh)(const struct gemm_attend *g);
  /* gemm_weights */
  double (*weights)(float *s, int64_t n, float shift);
};
struct gemm_isa { struct gemm_type type[2]; };        /* TY_F32, TY_F64 */
/* types whose words hold several elements (isa/narrow.c); GEMM_NARROW + i is type[i] */
enum { NARROW_TYPES = 4 };
struct gemm_narrow {
  struct gemm_type type[NARROW_TYPES];
  /* levels_finish */
  void (*finish)(const struct level_row *r);
  /* rounds x * inverse to -127 .. 127, plus shift, in a byte */
  void (*levels)(int64_t n, const float *x, float inverse, int shift, void *out);
  /* returns the largest magnitude; NaN does not count */
  float (*magnitude)(int64_t n, const float *x);
  /* makes n words; byte r of a word is of row r of up to four rows of x, which are ld apart. Bits
  ** of `flip` are inverted. */
  void (*words)(int64_t n, int64_t rows, const uint8_t *x, int64_t ld, uint32_t flip, void *out);
};

/* Returns the table of TY_F32, TY_F64 or GEMM_* for this processor. */
const struct gemm_type *gemm_type(int type);
/* Returns the tables of narrow types for this processor. */
const struct gemm_narrow *gemm_narrow(void);
/* Returns this thread's buffer for strips of A, kept between calls. NULL: no memory. */
void *gemm_strip_scratch(size_t bytes);
/* Returns the words that k elements take. */
static inline int64_t gemm_words(const struct gemm_type *t, int64_t k)
{
  return (k + t->per - 1) / t->per;
}

/* Returns the rows of a strip when m rows are cut into strips of nearly equal height. */
static inline int gemm_height(int64_t m, int mr)
{
  int64_t strips = (m + mr - 1) / mr;
  return strips ? (int)((m + strips - 1) / strips) : 1;
}
