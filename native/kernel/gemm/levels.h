/* levels.h - 8-bit levels around products: how numbers become levels, and 32-bit sums numbers. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* n 32-bit sums of products of levels on their way out: real numbers (sum - less) unit scale +
** bias + what is there, limited, then stored as they are or as levels. scale, bias and less are
** arrays over the n (each), or one number. */
struct level_row {
  int64_t n;
  const int32_t *sum;
  const int32_t *less;                                /* NULL: 0 */
  const float *scale;
  const float *bias;                                  /* NULL: 0 */
  bool each;
  float unit;
  /* what is added: of float32, int8 or uint8 (TY_*); NULL: nothing */
  const void *more;
  int more_type;
  float more_scale, more_zero;
  bool relu;
  /* the result: level = result * inverse + zero */
  void *out;
  int out_type;
  float inverse, zero;
};
void  levels_finish(const struct level_row *r);
/* Computes x * inverse, rounded, within -127 .. 127, plus `shift`: int8 with 0, uint8 with 128. */
void  levels_make(int64_t n, const float *x, float inverse, int shift, void *out);
/* Returns the largest magnitude; NaN does not count. */
float levels_most(int64_t n, const float *x);
