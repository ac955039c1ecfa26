/* blocked.h - the blocked layout of channels: (N, C, space) as (N, C / b, space, b). */
#pragma once
#include "kernel/kernel.h"

/* Returns the b that convolutions of a CPU compute in, a vector of floats; 0: none. */
int cpu_channel_block(void);
/* Returns the b of the layout in which convolutions of a precision (PRECISION_*) on an array's
** device are fastest: on a GPU all channels, so that they are last; 0: the plain layout. Back ends
** register their answer. */
int channel_block(const ty_desc *d, int precision);
void channel_block_register(int kind, int (*block)(const ty_desc *d, int precision));
/* Converts n images of an array, float32, from plain to blocks of a vector, and back. */
void block_enter(const ty_desc *d, int64_t n, const float *plain, float *blocks);
void block_leave(const ty_desc *d, int64_t n, const float *blocks, float *plain);
/* Converts n positions of the channels of a block on this thread; in the plain array channels are
** `plane` elements apart. channels: of the block, of which the others stay as they are. */
void block_enter_span(
    int64_t channels, int64_t n, const float *plain, int64_t plane, float *blocks);
void block_leave_span(int64_t n, const float *blocks, int64_t plane, float *plain);
