/* window.h - windows over planes (same struct as in kernels/window.cuh). */
#pragma once
#include "cuda/family.h"

/* n: elements of the result. The arrays are depth, height, width. */
struct cuda_window { int64_t n, in[3], out[3], kernel[3], stride[3], dilate[3], pad[3]; };
/* Returns the window of an operator with kernel, stride, dilate and pad, over images (N, C, 1 to 3
** axes). */
struct cuda_window cuda_make_window(const struct call *c, const ty_desc *image, int64_t n);
