/* bytes.h - reductions of uint8 (also bools) and int8, for one instruction set (isa/bytes.c);
** types.c selects them. */
#pragma once
#include "kernel/reduce/reduce.h"

/* rows, cols: as in struct reducer, into int64, of uint8 [0] and int8 [1]; of products only the
** lower 32 bits are correct. best_rows: indices of the first extremes of `count` rows of n >= 1
** elements. best_cols: the same for n columns of count >= 1 rows, `stride` apart. equal: gradients
** of B_EQUAL. */
struct byte_reducer {
  reduce_fn rows[2][R_KINDS], cols[2][R_KINDS];
  void (*best_rows)(int64_t *index, const void *x, bool is_signed, bool least, int64_t count,
      int64_t n);
  void (*best_cols)(int64_t *index, const void *x, bool is_signed, bool least, int64_t count,
      int64_t stride, int64_t n);
  void (*equal_rows)(uint8_t *dx, const uint8_t *x, const uint8_t *y, const uint8_t *g,
      int64_t count, int64_t n);
  void (*equal_cols)(uint8_t *dx, const uint8_t *x, const uint8_t *y, const uint8_t *g,
      int64_t count, int64_t n);
};
