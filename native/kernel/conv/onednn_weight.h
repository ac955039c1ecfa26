/* onednn_weight.h - the gradient of a 1 x 1 convolution's weight out of oneDNN's blocks, by our
** own transposition: a block goes to rows that often lie a power of two apart, which oneDNN's
** reorder writes at some 5 GB/s. */
#pragma once
#include "kernel/onednn.h"

/* b: blocks of b inputs x b outputs; 0: another form, left to oneDNN */
int  weight_turned(onednn_desc inner);
void weight_leave(int b, onednn_desc inner, const float *blocked, float *plain);
