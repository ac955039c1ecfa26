/* winograd.h - 3 x 3 convolutions of stride 1 by Winograd's F(4 x 4, 3 x 3), float32, channels
** in blocks of a vector.
**
** A quarter of the products, over tiles of 4 x 4 results that are carried into 36 planes and
** back. Groups 1, padding at most 2; the leading axis of the window is 1. Forward rows may be
** dilated: each tile then has every `dilate`-th row.
*/
#pragma once
#include "kernel/conv/conv.h"

/* Returns false with TYCHO_WINOGRAD=0. */
bool   winograd_on(void);
/* Returns whether the window is such a one, in blocks as wide as this processor's vectors. back: of
** the gradients, whose rows are not dilated. */
bool   winograd_able(const struct window *w, bool back);
/* Returns why not, or NULL where it is faster than direct products. */
const char *winograd_refuse(const struct window *w, bool back, bool keeps);

/* Returns whether the transformed weight, four times as large, is kept: few tiles do not make
** up for making it anew. */
bool   winograd_keeps(const struct window *w);
/* Computes y. kept: state of the instruction; NULL: nothing is kept, there is scratch for it. */
size_t winograd_forward_scratch(const struct window *w, bool keeps);
int winograd_forward(const struct window *w, const float *x, const struct operand *weight,
    const struct convolve_end *end, float *y, struct gemm_kept *kept, void *tmp);
/* Computes dx (+)= gradient of x. */
size_t winograd_data_scratch(const struct window *w);
void winograd_data(
    const struct window *w, const float *dy, const float *weight, float *dx, bool add, void *tmp);
/* Computes dw (+)= gradient of the weight. */
size_t winograd_weight_scratch(const struct window *w);
void winograd_weight(
    const struct window *w, const float *x, const float *dy, float *dw, bool add, void *tmp);
