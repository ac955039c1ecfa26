/* convert.h - converts arrays of elements from one dtype to another. */
#pragma once
#include <stdint.h>

/* Converts n elements as C casts do (int32 of NaN or on overflow is INT_MIN; uint8 of a float
** wraps). src and dst are dense and do not overlap. Returns when all is converted; large arrays use
** the team of the calling thread (parallel.h). */
void    dtype_convert(void *dst, int dst_type, const void *src, int src_type, int64_t n);
/* Convert one number; the half types round to nearest, ties to even. */
float   half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float   bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float f);
