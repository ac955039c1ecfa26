/* blocked.h - the blocked layout of channels: (N, C, space) as (N, C / b, space, b). */
#pragma once
#include "kernel/kernel.h"

/* Returns the b in which convolutions on the CPU compute, the length of a vector of floats; 0:
** none. */
int cpu_channel_block(void);
/* Returns the b with which convolutions of a precision (PRECISION_*) are fastest on the array's
** device: on a GPU all channels, so that they are last; 0: the plain layout. Back ends register
** their answer. */
int channel_block(const ty_desc *d, int precision);
void channel_block_register(int kind, int (*block)(const ty_desc *d, int precision));
/* Convert n float32 images of an array from the plain layout to blocks of cpu_channel_block()
** channels, and back. */
void block_enter(const ty_desc *d, int64_t n, const float *plain, float *blocks);
void block_leave(const ty_desc *d, int64_t n, const float *blocks, float *plain);
/* Convert n positions of one block on this thread; in the plain array channels are `plane` elements
** apart. channels: how many channels of the block exist; the others are not written. */
void block_enter_span(
    int64_t channels, int64_t n, const float *plain, int64_t plane, float *blocks);
void block_leave_span(int64_t n, const float *blocks, int64_t plane, float *plain);
