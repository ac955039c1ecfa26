/* rows_kernel.c - the tables of rows.h for one instruction set: compiled once per set with -DISA=name.
**
** Each rows_*.inc is a family of loops in REAL; it is included for float and for double. Vectors are always 64 bytes
** wide in the source, so that sums have the same order, and the same bits, under every instruction set.
*/
#include "rows.h"
#include "random.h"

enum { BLOCK = 4096 };                                /* elements summed in their own type */
#ifdef __clang__
#define ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")              /* no iteration reads what another one writes */
#else
#define ANY_ORDER _Pragma("GCC ivdep")
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* e^x to one unit in the last place: 2^k e^r with |r| <= ln 2 / 2 and the series of e^r; 0 and infinity at the ends, NaN stays. */
static inline float exp_f32(float x)
{
  const float rounder = 12582912.0f;                  /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  float t = x * 1.44269504f + rounder, k = t - rounder;
  float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1 + r * (1 + r * (1 / 2.f + r * (1 / 6.f + r * (1 / 24.f + r * (1 / 120.f + r * (1 / 720.f + r * (1 / 5040.f)))))));
  union { float f; uint32_t u; } bits = { t }, low, high;
  int32_t n = (int32_t)(bits.u - 0x4B400000u), half = n >> 1;
  low.u = ((uint32_t)half + 127u) << 23;              /* two factors, so that the smallest results are right too */
  high.u = ((uint32_t)n - (uint32_t)half + 127u) << 23;
  return p * low.f * high.f;
}

static inline float tanh_f32(float x)
{
  float a = x < 0 ? -x : x, e = exp_f32(-2 * a), z = x * x;
  float big = (1 - e) / (1 + e);
  float small = a * (1 + z * (-1 / 3.f + z * (2 / 15.f + z * (-17 / 315.f + z * (62 / 2835.f + z * (-1382 / 155925.f))))));
  float y = a < 0.3f ? small : big;
  return x < 0 ? -y : y;
}
static inline float sigmoid_f32(float x) { return 1 / (1 + exp_f32(-x)); }
#define most_f32 3.402823466e38f
#define most_f64 1.7976931348623157e308
static inline double exp_f64(double x) { return exp(x); }
static inline double tanh_f64(double x) { return tanh(x); }
static inline double sigmoid_f64(double x) { return 1 / (1 + exp(-x)); }

#define REAL float
#define LANE int32_t
#define DTYPE TY_F32
#define NAME(f) f##_f32
#define ROWS JOIN(rows_f32, ISA)
#include "rows_sum.inc"
#include "rows_soft.inc"
#include "rows_norm.inc"
#include "rows_pool.inc"
#include "rows_cell.inc"
#include "rows_table.inc"
#undef REAL
#undef LANE
#undef DTYPE
#undef NAME
#undef ROWS

#define REAL double
#define LANE int64_t
#define DTYPE TY_F64
#define NAME(f) f##_f64
#define ROWS JOIN(rows_f64, ISA)
#include "rows_sum.inc"
#include "rows_soft.inc"
#include "rows_norm.inc"
#include "rows_pool.inc"
#include "rows_cell.inc"
#include "rows_table.inc"
