/* precision.h - how exactly products and convolutions of float32 are taken. */
#pragma once

enum {
  PRECISION_HIGHEST, /* float32 */
  PRECISION_HIGH,    /* operands as sums of two bfloat16 if that is faster, else float32 */
  PRECISION_MEDIUM   /* operands as bfloat16 if the processor multiplies them, else float32 */
};

/* Returns the precision of calls of this thread: what ty_precision set, else TYCHO_PRECISION, of
** which unknown words are HIGHEST. */
int precision_now(void);
