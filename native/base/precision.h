/* precision.h - how exactly products and convolutions of float32 are taken. */
#pragma once

/* PRECISION_*:
** HIGHEST  in float32
** HIGH     operands as sums of two bfloat16 where that is faster than float32; else in float32
** MEDIUM   operands rounded to bfloat16, sums in float32, where the processor multiplies bfloat16;
**          else in float32 */
enum { PRECISION_HIGHEST, PRECISION_HIGH, PRECISION_MEDIUM };

/* Of calls of this thread: what ty_precision set, else TYCHO_PRECISION; unknown words are
** HIGHEST. */
int precision_now(void);
