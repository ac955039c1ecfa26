/* precision.h - how exactly products and convolutions of float32 are taken. */
#pragma once

/* On a GPU both HIGH and MEDIUM allow TF32, whose operands have 10 bits of a fraction. */
enum {
  PRECISION_HIGHEST, /* float32 */
  PRECISION_HIGH,    /* operands as sums of two bfloat16 if that is faster, else float32 */
  PRECISION_MEDIUM   /* operands as bfloat16 if the processor multiplies them, else float32 */
};
/* Returns whether a GPU may multiply float32 by TF32. */
static inline bool precision_allows_tf32(int precision) { return precision != PRECISION_HIGHEST; }

/* Returns the precision of calls of this thread: what ty_precision set, else TYCHO_PRECISION, of
** which unknown words are HIGHEST. */
int precision_now(void);
/* Returns the precision that an executor's flags say (TY_HIGHEST, TY_HIGH, TY_MEDIUM); none of
** them: HIGHEST. */
int precision_of_flags(int flags);
