/* blocked.h - the blocked layout of channels: (N, C, space) as (N, C / b, space, b). */
#pragma once
#include "kernel/kernel.h"

/* the b that convolutions of a device compute in, a vector of floats; 0: none */
int channel_block(int device);
