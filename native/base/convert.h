/* convert.h - arrays of elements from one dtype to another. */
#pragma once
#include <stdint.h>

/* Converts n elements between dtypes as C casts do (NaN or overflow -> INT_MIN for int32; float
** -> uint8 wraps); src and dst are dense and do not overlap. Runs in the calling thread,
** parallel where large. */
void    dtype_convert(void *dst, int dst_type, const void *src, int src_type, int64_t n);
float   half_to_float(uint16_t h);
uint16_t float_to_half(float f);                      /* round to nearest even */
float   bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);
