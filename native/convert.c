/* convert.c - elements from one dtype to another, as C casts do where those are defined.
**
** float -> int32, int64: truncated; NaN and what does not fit give the smallest integer, as x86 does in hardware.
** float -> uint8, int8: through int64, of which the low byte stays (-1.5 -> 255, 300.7 -> 44). Integers wrap.
** any -> bool: not zero. float16 and bfloat16 go through float32, rounded to nearest even.
** Plain loops that the compiler vectorises; half types in blocks that stay in the first-level cache.
*/
#include "parallel.h"
#include "tensor.h"

/* -- half types -------------------------------------------------------------------------------- */

static uint32_t bits_of(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static float float_of(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }

/* Exponent and fraction move to their place in a float32; a product with 2^112 sets the exponent right and makes
** subnormals normal, exactly. */
float half_to_float(uint16_t h)
{
  uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  float f = float_of(magnitude) * 0x1p112f;
  uint32_t bits = (h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : bits_of(f);
  return float_of(bits | sign);
}

/* Subnormal results: adding 0.5 lets the adder round to multiples of 2^-24. Others: round the low 13 bits by hand. */
uint16_t float_to_half(float f)
{
  uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffffu;
  uint32_t small = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
  uint32_t normal = (a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13;
  uint32_t special = a > 0x7f800000u ? 0x7e00 : 0x7c00;
  uint32_t h = a < 0x38800000u ? small : a >= 0x477ff000u ? special : normal;
  return (uint16_t)(h | sign);
}

float bf16_to_float(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t float_to_bf16(float f)
{
  uint32_t bits = bits_of(f), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* -- casts between C types --------------------------------------------------------------------- */

static inline int32_t i32_of_f32(float x) { return x >= -0x1p31f && x < 0x1p31f ? (int32_t)x : INT32_MIN; }
static inline int32_t i32_of_f64(double x) { return x > -0x1p31 - 1 && x < 0x1p31 ? (int32_t)x : INT32_MIN; }
static inline int64_t i64_of_f32(float x) { return x >= -0x1p63f && x < 0x1p63f ? (int64_t)x : INT64_MIN; }
static inline int64_t i64_of_f64(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }

typedef uint8_t boolean;                              /* in memory: 0 or 1; any other byte counts as 1 when read */

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
  LOOP(s##_u8,  uint8_t, S, i64_of_##s(x))    LOOP(s##_i8,  int8_t,  S, i64_of_##s(x)) \
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
LOOP(f16_f32, float, uint16_t, half_to_float(x))
LOOP(bf16_f32, float, uint16_t, bf16_to_float(x))
LOOP(f32_f16, uint16_t, float, float_to_half(x))
LOOP(f32_bf16, uint16_t, float, float_to_bf16(x))

typedef void (*cast_fn)(void *restrict, const void *restrict, int64_t);
#define ROW(s) \
  [TY_F32] = s##_f32, [TY_F64] = s##_f64, [TY_U8] = s##_u8, [TY_I32] = s##_i32, [TY_I8] = s##_i8, [TY_I64] = s##_i64, \
  [TY_BOOL] = s##_b8
static const cast_fn casts[TY_BF16 + 1][TY_BF16 + 1] = {                       /* [from][to]; NULL: through float32 */
  [TY_F32]  = { ROW(f32), [TY_F16] = f32_f16, [TY_BF16] = f32_bf16 },
  [TY_F64]  = { ROW(f64) },
  [TY_U8]   = { ROW(u8) },
  [TY_I32]  = { ROW(i32) },
  [TY_I8]   = { ROW(i8) },
  [TY_I64]  = { ROW(i64) },
  [TY_BOOL] = { ROW(b8) },
  [TY_F16]  = { [TY_F32] = f16_f32 },
  [TY_BF16] = { [TY_F32] = bf16_f32 },
};

/* -- whole arrays ------------------------------------------------------------------------------ */

enum { BLOCK = 1024, GRAIN = 1 << 15 };

struct job { char *dst; const char *src; cast_fn direct, in, out; size_t dst_size, src_size; };

static void cast_part(int64_t begin, int64_t end, void *context)
{
  const struct job *j = context;
  if (j->direct) {
    j->direct(j->dst + (size_t)begin * j->dst_size, j->src + (size_t)begin * j->src_size, end - begin);
    return;
  }
  float block[BLOCK];
  for (int64_t i = begin; i < end; i += BLOCK) {
    int64_t n = MIN(BLOCK, end - i);
    j->in(block, j->src + (size_t)i * j->src_size, n);
    j->out(j->dst + (size_t)i * j->dst_size, block, n);
  }
}

static void copy_part(int64_t begin, int64_t end, void *context)
{
  const struct job *j = context;
  size_t at = (size_t)begin * j->dst_size;
  memcpy(j->dst + at, j->src + at, (size_t)(end - begin) * j->dst_size);
}

void convert(void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  struct job j = { dst, src, casts[src_type][dst_type], casts[src_type][TY_F32], casts[TY_F32][dst_type],
                   dtype_size(dst_type), dtype_size(src_type) };
  parallel(n, GRAIN, dst_type == src_type ? copy_part : cast_part, &j);
}
