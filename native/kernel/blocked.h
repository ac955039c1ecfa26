/* blocked.h - the blocked layout of channels: (N, C, space) as (N, C / b, space, b). */
#pragma once
#include "kernel/kernel.h"

/* Returns the b of convolutions on the CPU, the length of a vector of floats; 0 if there is
** none. */
int cpu_channel_block(void);
/* Returns the b with which convolutions of a precision (PRECISION_*) are fastest on the array's
** device; 0: the plain layout. On a GPU it is the number of channels, so that channels are last.
** Back ends register their function. */
int channel_block(const ty_desc *d, int precision);
void channel_block_register(int kind, int (*block)(const ty_desc *d, int precision));
/* Convert n float32 images of an array from the plain layout to blocks of cpu_channel_block()
** channels, and back; parallel. */
void block_enter(const ty_desc *d, int64_t n, const float *plain, float *blocks);
void block_leave(const ty_desc *d, int64_t n, const float *blocks, float *plain);
/* Convert n positions of one block on the calling thread. Channels of the plain array are `plane`
** elements apart. channels: how many channels of the block exist; the others are not written. */
void block_enter_span(
    int64_t channels, int64_t n, const float *plain, int64_t plane, float *blocks);
void block_leave_span(int64_t n, const float *blocks, int64_t plane, float *plain);
