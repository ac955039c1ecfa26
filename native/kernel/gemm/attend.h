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
  int64_t m, n;                                       /* queries, keys */
  int64_t d, dv;                                      /* numbers of a key and of a value */
  const float *q;                                     /* m x d, times the scale */
  const void *k;                                      /* panels of the keys */
  /* Scores: m rows, each of whole panels and ATTEND_SKEW. */
  float *s;
  int64_t lds;
  /* Panels of `keys` values, of which number `from`, an even one, belongs to the first key. */
  const void *v;
  int64_t keys, from;
  float *y;                                           /* m x dv: sums of weighed values so far */
  int64_t ldy;
  /* Of each row: the greatest score and the sum of weights so far. */
  double *greatest, *sum;
};

/* Returns the numbers from one row of scores of n keys to the next. */
static inline int64_t gemm_score_row(int64_t n)
{
  return (n + ATTEND_PANEL - 1) / ATTEND_PANEL * ATTEND_PANEL + ATTEND_SKEW;
}
/* Returns whether this processor has the two functions for products of that type. */
bool gemm_attends(int type, int64_t d, int64_t dv);
/* Writes s = q k^T, and anything after the n scores of a row up to the end of a panel. */
void gemm_score(const struct gemm_attend *g);
/* Takes weights = e^(s - greatest), where the greatest score may grow, into sum and, rounded to
** bfloat16, y += weights v; scales sum and y as the greatest score grows. A score of -infinity has
** weight 0. */
void gemm_weigh(const struct gemm_attend *g);
