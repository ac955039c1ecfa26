/* blocked.h - the blocked layout of channels: (N, C, space) as (N, C / b, space, b). */
#pragma once
#include "kernel/kernel.h"

/* the b that convolutions of a device compute in, a vector of floats; 0: none */
int channel_block(int device);
/* n images of an array, float32, from plain to blocks of a vector, and back */
void block_enter(const ty_desc *d, int64_t n, const float *plain, float *blocks);
void block_leave(const ty_desc *d, int64_t n, const float *blocks, float *plain);
