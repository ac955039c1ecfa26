/* cast.h - conversion of one element to another dtype, inline. The loops over many elements are
** compiled for each instruction set (base/isa/convert.c). */
#pragma once
#include "base/dtype.h"

/* Converts n elements. */
typedef void (*cast_fn)(void *restrict dst, const void *restrict src, int64_t n);
/* The loops of one instruction set, [from][to]. NULL: the conversion goes through float32. */
struct casts { cast_fn cast[TY_BF16 + 1][TY_BF16 + 1]; };
#define CASTS(isa) extern const struct casts casts_##isa;
EACH_ISA(CASTS)
#undef CASTS
#ifdef __x86_64__
extern const cast_fn cast_f32_bf16_avx512_narrow;
#endif

/* Returns this processor's loop from one dtype to another; NULL: convert through float32. */
cast_fn cast_between(int from, int to);

/* Returns the bits of a float. */
static inline uint32_t bits_of(float f)
{
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

/* Returns the float with bits u. */
static inline float float_of(uint32_t u)
{
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Returns a float16 as float32, exactly. Exponent and fraction move to their position in a float32;
** multiplying by 2^112 corrects the bias of the exponent and makes subnormals normal. */
static inline float f32_of_f16(uint16_t h)
{
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  float f = float_of(magnitude) * 0x1p112f;
  uint32_t bits = (h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : bits_of(f);
  return float_of(bits | sign);
}

/* Returns a float32 as float16, rounded to nearest, ties to even. For subnormal results, adding 0.5
** rounds to multiples of 2^-24; for others, the low 13 bits are rounded by integer arithmetic. */
static inline uint16_t f16_of_f32(float f)
{
  uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffffu;
  uint32_t small = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
  uint32_t normal = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  uint32_t special = a > 0x7f800000u ? 0x7e00 : 0x7c00;
  uint32_t h = a < 0x38800000u ? small : a >= 0x477ff000u ? special : normal;
  return (uint16_t)(h | sign);
}

/* Returns a bfloat16 as float32, exactly. */
static inline float f32_of_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

/* Returns a float32 as bfloat16, rounded to nearest, ties to even. A NaN becomes a quiet one. */
static inline uint16_t bf16_of_f32(float f)
{
  uint32_t bits = bits_of(f), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16,
           quiet = bits >> 16 | 0x40;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* Return a number truncated to an integer; NaN and numbers out of range give the smallest
** integer. */
static inline int32_t i32_of_f32(float x)
{
  return x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN;
}
static inline int32_t i32_of_f64(double x)
{
  return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN;
}
static inline int64_t i64_of_f32(float x)
{
  return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN;
}
static inline int64_t i64_of_f64(double x)
{
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

/* These return the low byte of i64_of_*. A float32 beyond 32 bits is a multiple of 256, so its low
** byte is 0, as that of INT32_MIN is. */
static inline uint8_t byte_of_f32(float x) { return (uint8_t)i32_of_f32(x); }
static inline uint8_t byte_of_f64(double x) { return (uint8_t)i64_of_f64(x); }
