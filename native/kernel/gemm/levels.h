/* levels.h - 8-bit levels around products: how numbers become levels, and 32-bit sums numbers.
**
** A level q of an array represents the number (q - zero) scale. The sum over k of (q - zero) w is
** the sum of q w, which the product makes, less zero times the sum of w: the zero term of a column.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* A part of a row of C. A sum becomes the real number (sum - zero_term) unit scale + bias, to which
** an addend is added and relu applied; that is stored as it is, or as a level of `out`. */
struct level_row {
  int64_t n;                                          /* sums */
  const int32_t *sum;
  /* zero_term, scale and bias have n elements, else one that serves all sums */
  bool per_column;
  const int32_t *zero_term;                           /* NULL: 0 */
  const float *scale;                                 /* numbers of a level of the weight */
  const float *bias;                                  /* NULL: 0 */
  float unit;                                         /* number of a level of the data */
  const void *addend;                                 /* n elements; NULL: nothing is added */
  int addend_type;                                    /* TY_F32, TY_I8, TY_U8 */
  float addend_scale;                                 /* of TY_I8 and TY_U8 */
  float addend_zero;
  bool relu;
  void *out;
  int out_type;                                       /* TY_F32, TY_I8, TY_U8 */
  float inverse;                                      /* 1 / scale of out, of TY_I8 and TY_U8 */
  float zero;
};
/* Terms of a sum that are certain to fit 32 bits: 2^31 / (255 x 128). */
enum { LEVELS_TERMS = 65792 };

/* Makes numbers or levels of the sums of a row. */
void  levels_finish(const struct level_row *r);
/* Computes x * inverse, rounded, within -127 .. 127, plus `shift`: int8 with 0, uint8 with 128. */
void  levels_make(int64_t n, const float *x, float inverse, int shift, void *out);
/* Returns the largest magnitude; NaN does not count. */
float levels_magnitude(int64_t n, const float *x);
