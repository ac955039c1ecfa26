/* precision.h - how exactly products and convolutions of float32 are computed. */
#pragma once

/* On a GPU both HIGH and MEDIUM allow TF32, whose operands have a fraction of 10 bits. */
enum {
  PRECISION_HIGHEST, /* float32 */
  PRECISION_HIGH,    /* operands as sums of two bfloat16 if that is faster, else float32 */
  PRECISION_MEDIUM   /* operands as bfloat16 if the processor multiplies them, else float32 */
};
/* Returns whether a GPU may multiply float32 by TF32. */
static inline bool precision_allows_tf32(int precision) { return precision != PRECISION_HIGHEST; }

/* Returns the precision of this thread's calls: the one set by ty_precision, else that of
** TYCHO_PRECISION; HIGHEST for unknown words. */
int precision_now(void);
/* Returns the precision in an executor's flags (TY_HIGHEST, TY_HIGH, TY_MEDIUM); HIGHEST without
** one. */
int precision_of_flags(int flags);
