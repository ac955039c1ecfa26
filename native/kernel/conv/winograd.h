/* winograd.h - 3 x 3 convolutions of stride 1 by Winograd's F(4 x 4, 3 x 3), in float32, with
** channels in blocks of one vector.
**
** It needs a quarter of the products. Tiles of 4 x 4 results are transformed to 36 planes and back.
** Requires a 2-D window, one group, and padding of at most 2. In forward, rows may be dilated: a
** tile then has every dilate-th row. */
#pragma once
#include "kernel/conv/conv.h"

/* Returns false with TYCHO_WINOGRAD=0. */
bool   winograd_on(void);
/* Returns whether the window meets these conditions. back: for the gradients, whose rows must not
** be dilated. */
bool   winograd_able(const struct window *w, bool back);
/* Returns NULL if it is supported and faster than direct products, else the reason. keeps: the
** transformed weight is kept between runs. */
const char *winograd_refuse(const struct window *w, bool back, bool keeps);

/* Returns whether to keep the transformed weight, which is four times as large as the weight. With
** few tiles, transforming it at each run takes too long. */
bool   winograd_keeps(const struct window *w);
/* Computes y. kept: the instruction's state, for the transformed weight; NULL: the weight is
** transformed in scratch. */
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
