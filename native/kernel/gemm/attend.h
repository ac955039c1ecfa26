/* attend.h - attention of some queries against a block of keys, where tiles multiply
** (isa/attend.inc): scores, their exponentials and the sums of values, in one packing of keys and
** values.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  ATTEND_TERMS = 512,                                 /* of a score or of a row's sums, at most */
  ATTEND_PANEL = 32,                                  /* keys of a panel */
  ATTEND_SKEW = 16,                                   /* keeps rows of scores out of one set */
};

/* Keys and values are right sides of products of GEMM_ROUNDED, packed by gemm_pack. */
struct gemm_attend {
  int64_t m;                                          /* queries */
  int64_t n;                                          /* keys */
  int64_t d;                                          /* numbers of a key */
  int64_t dv;                                         /* numbers of a value */
  const float *q;                                     /* m x d, times the scale */
  const void *k;                                      /* panels of the keys */
  /* Scores: m rows, each of whole panels and ATTEND_SKEW. */
  float *s;
  int64_t lds;
  const void *v;                                      /* panels of all values */
  int64_t keys;                                       /* number of all values */
  /* which of them belongs to the first key; even */
  int64_t from;
  float *y;                                           /* m x dv: sums of weighed values so far */
  int64_t ldy;
  double *greatest;                                   /* per row: the greatest score so far */
  double *sum;                                        /* per row: the sum of weights so far */
};

/* Returns the numbers from one row of scores of n keys to the next. */
static inline int64_t gemm_score_row(int64_t n)
{
  return (n + ATTEND_PANEL - 1) / ATTEND_PANEL * ATTEND_PANEL + ATTEND_SKEW;
}
/* Returns whether this processor has gemm_score and gemm_weigh for products of that type, and keys
** and values are short enough. */
bool gemm_attends(int type, int64_t d, int64_t dv);
/* Writes s = q k^T, and anything after the n scores of a row up to the end of a panel. */
void gemm_score(const struct gemm_attend *g);
/* Continues a softmax over keys by the n scores in s: raises `greatest` to the greatest score,
** scales `sum` and y to match, then adds the weights e^(s - greatest) to `sum`, and to y the values
** times the weights, rounded to bfloat16. A score of -infinity has weight 0. */
void gemm_weigh(const struct gemm_attend *g);
