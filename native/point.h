/* point.h - 1 x 1 convolutions of stride 1, float32, channels in blocks of a vector. */
#pragma once
#include "winograd.h"

const char *point_refuse(const struct window *w, bool trains);                /* NULL: as fast as other ways, or faster */
bool   point_keeps(const struct window *w);                                    /* is the packed weight worth its memory? */
/* kept: state of the instruction; NULL: the weight is packed into scratch at each run */
size_t point_scratch(const struct window *w, bool keeps);
int    point_forward(const struct window *w, const float *x, const struct arr *weight, const struct winograd_end *end, float *y,
                     struct gemm_kept *kept, void *tmp);
