/* convert.c - the loops of base/cast.h, compiled once per instruction set with -DISA=name. They are
** plain loops that the compiler vectorises; every set gives the same bits. Conversions to half
** types also have hand-written vectors, with the same bits.
*/
#include "base/cast.h"
#include "base/isa/halves.inc"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
/* in memory: 0 or 1; any other byte counts as 1 when read */
typedef uint8_t boolean;

/* LOOP(name, to, from, expression in x): dst[i] = expression of src[i], for n elements. */
#define LOOP(name, D, S, e) \
  static void name(void *restrict dst, const void *restrict src, int64_t n) \
  { \
    D *restrict y = dst; \
    const S *restrict v = src; \
    for (int64_t i = 0; i < n; i++) { S x = v[i]; y[i] = (D)(e); } \
  }
#define FROM_REAL(S, s) \
  LOOP(s##_f32, float,   S, x)                LOOP(s##_f64, double,  S, x) \
  LOOP(s##_u8,  uint8_t, S, byte_of_##s(x))   LOOP(s##_i8,  int8_t,  S, byte_of_##s(x)) \
  LOOP(s##_i32, int32_t, S, i32_of_##s(x))    LOOP(s##_i64, int64_t, S, i64_of_##s(x)) \
  LOOP(s##_b8,  boolean, S, x != 0)
#define FROM_INTEGER(S, s) \
  LOOP(s##_f32, float,   S, x)                LOOP(s##_f64, double,  S, x) \
  LOOP(s##_u8,  uint8_t, S, x)                LOOP(s##_i8,  int8_t,  S, x) \
  LOOP(s##_i32, int32_t, S, x)                LOOP(s##_i64, int64_t, S, x) \
  LOOP(s##_b8,  boolean, S, x != 0)
#define FROM_BOOL(S, s) \
  LOOP(s##_f32, float,   S, x != 0)           LOOP(s##_f64, double,  S, x != 0) \
  LOOP(s##_u8,  uint8_t, S, x != 0)           LOOP(s##_i8,  int8_t,  S, x != 0) \
  LOOP(s##_i32, int32_t, S, x != 0)           LOOP(s##_i64, int64_t, S, x != 0) \
  LOOP(s##_b8,  boolean, S, x != 0)

FROM_REAL(float, f32)
FROM_REAL(double, f64)
FROM_INTEGER(uint8_t, u8)
FROM_INTEGER(int8_t, i8)
FROM_INTEGER(int32_t, i32)
FROM_INTEGER(int64_t, i64)
FROM_BOOL(boolean, b8)
LOOP(bf16_f32, float, uint16_t, f32_of_bf16(x))
LOOP(plain_f16_f32, float, uint16_t, f32_of_f16(x))
LOOP(plain_f32_f16, uint16_t, float, f16_of_f32(x))
LOOP(plain_f32_bf16, uint16_t, float, bf16_of_f32(x))
#ifdef HALVES
HALF_LOOP(f16_f32, float, uint16_t)
HALF_LOOP(f32_f16, uint16_t, float)
HALF_LOOP(f32_bf16, uint16_t, float)
#else
#define f16_f32 plain_f16_f32
#define f32_f16 plain_f32_f16
#define f32_bf16 plain_f32_bf16
#endif

#define ROW(s) \
  [TY_F32] = s##_f32, [TY_F64] = s##_f64, [TY_U8] = s##_u8, [TY_I32] = s##_i32, [TY_I8] = s##_i8, \
  [TY_I64] = s##_i64, [TY_BOOL] = s##_b8
const struct casts JOIN(casts, ISA) = { {
  [TY_F32]  = { ROW(f32), [TY_F16] = f32_f16, [TY_BF16] = f32_bf16 },
  [TY_F64]  = { ROW(f64) },
  [TY_U8]   = { ROW(u8) },
  [TY_I32]  = { ROW(i32) },
  [TY_I8]   = { ROW(i8) },
  [TY_I64]  = { ROW(i64) },
  [TY_BOOL] = { ROW(b8) },
  [TY_F16]  = { [TY_F32] = f16_f32 },
  [TY_BF16] = { [TY_F32] = bf16_f32 },
} };
