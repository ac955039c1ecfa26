/* attend.h - attention of some queries against a block of keys, in float32 (isa/attend.inc) or on
** tiles (isa/attend_tiles.inc): scores, their exponentials and the sums of values, in one packing
** of keys and values.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  ATTEND_TERMS = 512,                                 /* numbers of a key or of a value, at most */
  ATTEND_PANEL = 32,                                  /* keys of a panel */
  /* numbers added to each row of scores, so that rows do not share the sets of the first cache */
  ATTEND_SKEW = 16,
};

/* Some queries and some keys with their values, out of a block that gemm_pack packed as `type`:
** keys transposed, values not. */
struct gemm_attend {
  int type;                                           /* TY_F32, GEMM_ROUNDED */
  int64_t m;                                          /* queries */
  int64_t n;                                          /* keys */
  int64_t d;                                          /* numbers of a key */
  int64_t dv;                                         /* numbers of a value */
  const float *q;                                     /* m x d: queries times the scale */
  const void *k;                                      /* the first key; the block's panels follow */
  float *s;                                           /* scores: m rows */
  int64_t lds;                                        /* gemm_score_row(n) */
  const void *v;                                      /* the values of the block */
  int64_t keys;                                       /* keys of the block */
  /* which of them is the first key, a multiple of ATTEND_PANEL */
  int64_t from;
  /* m x dv: sums of weighed values so far; rows whose `sum` is 0 are not read */
  float *y;
  int64_t ldy;                                        /* numbers from one row of y to the next */
  double *greatest;                                   /* per row: the greatest score so far */
  double *sum;                                        /* per row: the sum of weights so far */
};

/* Returns how many numbers the rows of scores of n keys are apart: whole panels and the skew. */
static inline int64_t gemm_score_row(int64_t n)
{
  return (n + ATTEND_PANEL - 1) / ATTEND_PANEL * ATTEND_PANEL + ATTEND_SKEW;
}
/* Returns whether this processor has gemm_score and gemm_weigh for products of that type, and keys
** and values are short enough. */
bool gemm_attends(int type, int64_t d, int64_t dv);
/* Returns how many of m queries a call should have, so that their scores stay in the caches. */
int64_t gemm_attend_rows(int type, int64_t m);
/* Writes s = q k^T. What follows the n scores of a row, up to the end of a panel, is undefined. */
void gemm_score(const struct gemm_attend *g);
/* Continues a softmax over keys by the n scores in s: raises `greatest` to the greatest score,
** scales `sum` and y to match, then adds the weights e^(s - greatest) to `sum`, and to y the values
** times the weights, which GEMM_ROUNDED rounds to bfloat16. A score of -infinity has weight 0. s is
** undefined afterwards. */
void gemm_weigh(const struct gemm_attend *g);
/* Replaces n scores, which rounding alone can have put above `shift`, by their weights
** e^(s - shift). Returns the sum of the weights. Only where gemm_attends TY_F32. */
double gemm_weights(float *s, int64_t n, float shift);
