/* narrow.c - inner loops of products of bfloat16 and of 8-bit integers (kernel/gemm/isa.h),
** compiled once per instruction set, once more with AVX512-BF16 and AVX512-VNNI
** (-DISA=avx512_narrow), with AMX's tiles besides (-DISA=avx512_tiles -DTY_TILES), with SDOT
** (neon_dot), with SDOT and BFDOT (neon_narrow).
**
** A word holds two bfloat16 or four 8-bit integers that follow each other along k. Words move as
** float32 do, so that narrow_tile.inc reads like tile.inc; it is read once per product of words,
** narrow.inc once per type, after the type's ways to make words and to multiply them. Integers are
** multiplied as uint8 times int8: an int8 of A has 128 added in its word, and 128 times the sum of
** B's column is taken off the sums. NEON multiplies int8 times int8: 128 is taken off a uint8 of A,
** and the sums get it back. Loops over rows of float32 are those of gemm.c.
*/
#include "base/vmath.h"
#include "kernel/gemm/isa.h"
#include "kernel/kernel.h"
#include "kernel/gemm/isa/float.inc"
#include "kernel/gemm/isa/shared.inc"
#include "kernel/gemm/isa/transpose.inc"
#include "kernel/gemm/isa/tiles.inc"

enum { AHEAD = 12,                                    /* rows of B fetched before their turn */
       /* steps of a sum beside which fetching C is little */
       LONG = 64,
       WORDS = RUN_WORDS(KC),                         /* of a run of a sum */
       /* from one row of a strip to the next: no power of two */
       ROW = WORDS + 16 };

typedef int32_t words __attribute__((vector_size(VBYTES), aligned(1), may_alias));
typedef uint16_t halves __attribute__((vector_size(VBYTES / 2), aligned(2), may_alias));
typedef uint8_t bytes __attribute__((vector_size(VBYTES / 4), aligned(1), may_alias));
typedef uint32_t unsigned_words __attribute__((vector_size(VBYTES)));

#if VBYTES == 64
#define ODD(a, b) \
  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif VBYTES == 32
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* What of the left side is fetched ahead: `rows` rows, the first one from `at` on, in bytes. */
struct gemm_fetch { const char *row; int64_t at, bytes, step, rows; };

INLINE VI load_words(const void *p) { return (VI)*(const words *)p; }
INLINE void store_words(void *p, VI x) { *(words *)p = (words)x; }
INLINE VI load_some(const void *p, M mask) { return (VI)LOADM((const float *)p, mask); }
INLINE VI splat(int32_t x) { return x - (VI){ 0 }; }

/* The first n of W x `per` elements of `size` bytes, zeros after them. */
INLINE VI load_elements(const void *p, int64_t n, const int64_t size)
{
  VI x = { 0 };
  if (n * size >= VBYTES) return load_words(p);
  if (n > 0) memcpy(&x, p, (size_t)(n * size));
  return x;
}

/* -- bfloat16 ---------------------------------------------------------------------------------- */

/* the bits of the nearest bfloat16, ties to even, in the upper half of each lane */
INLINE VI rounded(V x)
{
  const unsigned_words bits = (unsigned_words)x,
                       up = bits + 0x7fff + (bits >> 16 & 1),
                       nan = bits | 0x400000;
  const VI is_nan = x != x;
  return (VI)((((unsigned_words)is_nan & nan) | (~(unsigned_words)is_nan & up)) & 0xffff0000);
}
/* words of numbers 2 i and 2 i + 1 from rounded ones */
INLINE VI pairs_of(VI even, VI odd)
{
  return (VI)((unsigned_words)even >> 16) | odd;
}

INLINE VI along_f32(const float *p, int64_t n)
{
  const V lo = n >= W ? LOAD(p) : LOADM(p, MASK(n < 0 ? 0 : n)),
          hi = n >= 2 * W ? LOAD(p + W) : n > W ? LOADM(p + W, MASK(n - W)) : (V){ 0 };
#if defined __AVX512BF16__
  return (VI)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo);
#elif defined TY_NEON && defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  return (VI)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)lo), (float32x4_t)hi);
#else
  return pairs_of(rounded(EVEN(lo, hi)), rounded(ODD(lo, hi)));
#endif
}

/* word i: element i of `rows` rows, ld apart */
INLINE VI across_f32(const float *p, int64_t ld, int64_t rows, int64_t lanes)
{
  const M mask = MASK(lanes < W ? lanes : W);
  const V even = LOADM(p, mask), odd = rows > 1 ? LOADM(p + ld, mask) : (V){ 0 };
#ifdef __AVX512BF16__
  static const uint16_t turns[2 * W] = { 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8,
    24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };
  return (VI)_mm512_permutexvar_epi16((__m512i)load_words(turns),
      (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
#else
  return pairs_of(rounded(even), rounded(odd));
#endif
}

INLINE VI along_bf16(const uint16_t *p, int64_t n) { return load_elements(p, n, 2); }

INLINE VI widen_halves(const uint16_t *p, int64_t lanes)
{
  halves x = { 0 };
  if (lanes >= W)
    x = *(const halves *)p;
  else
    memcpy(&x, p, (size_t)lanes * sizeof *p);
  return __builtin_convertvector(x, VI);
}

INLINE VI across_bf16(const uint16_t *p, int64_t ld, int64_t rows, int64_t lanes)
{
  const VI even = widen_halves(p, lanes), odd = rows > 1 ? widen_halves(p + ld, lanes) : (VI){ 0 };
  return even | odd << 16;
}

INLINE V dot_bf16(V sum, VI a, VI b)
{
#if defined __AVX512BF16__
  return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#elif defined TY_NEON && defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  return (V)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
#else
  const VI high = splat((int32_t)0xffff0000);
  sum = FMA((V)(a << 16), (V)(b << 16), sum);
  return FMA((V)(a & high), (V)(b & high), sum);
#endif
}

#define P_(name) JOIN(name, pairs)
#define N_(name) JOIN(name, rounded)
#define ELEMENT float
#define PER 2
#define ROWS STRIP_ROWS(MR)
#define SUM V
#define ALONG along_f32
#define ALONG_A along_f32
#define ACROSS across_f32
#define ACROSS_A across_f32
#define DOT dot_bf16
#define DOT_TILES DOT_TILES_BF16
#define FINISH_REAL 1
#include "kernel/gemm/isa/narrow_tile.inc"
/* few rows of float32 cost their way through memory, rounded or not */
#define DOTS_ELSEWHERE
#include "kernel/gemm/isa/narrow.inc"
#define dots_rounded SHARED_NAME(dots_f32)

#undef DOTS_ELSEWHERE
#undef N_
#undef ELEMENT
#undef ALONG
#undef ALONG_A
#undef ACROSS
#undef ACROSS_A
#define N_(name) JOIN(name, bf16)
#define ELEMENT uint16_t
#define ALONG along_bf16
#define ALONG_A along_bf16
#define ACROSS across_bf16
#define ACROSS_A across_bf16
#include "kernel/gemm/isa/narrow.inc"

/* -- 8-bit integers ---------------------------------------------------------------------------- */

enum { SHIFT = (int32_t)0x80808080 };                 /* 128 in each byte */

INLINE VI along_8(const uint8_t *p, int64_t n) { return load_elements(p, n, 1); }

INLINE VI widen_bytes(const uint8_t *p, int64_t lanes)
{
  bytes x = { 0 };
  if (lanes >= W)
    x = *(const bytes *)p;
  else
    memcpy(&x, p, (size_t)lanes);
  return __builtin_convertvector(x, VI);
}

INLINE VI across_8(const uint8_t *p, int64_t ld, int64_t rows, int64_t lanes)
{
  VI x = widen_bytes(p, lanes);
  UNROLL for (int i = 1; i < 4; i++)
    if (i < rows) x |= widen_bytes(p + i * ld, lanes) << 8 * i;
  return x;
}

INLINE VI along_shifted(const uint8_t *p, int64_t n) { return along_8(p, n) ^ splat(SHIFT); }
INLINE VI across_shifted(const uint8_t *p, int64_t ld, int64_t rows, int64_t lanes)
{
  return across_8(p, ld, rows, lanes) ^ splat(SHIFT);
}

#ifdef TY_NEON
/* a, b: int8 */
INLINE VI dot_8(VI sum, VI a, VI b)
{
#ifdef __ARM_FEATURE_DOTPROD
  return (VI)vdotq_s32((int32x4_t)sum, (int8x16_t)a, (int8x16_t)b);
#else
  const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)a), vget_low_s8((int8x16_t)b)),
                  high = vmull_high_s8((int8x16_t)a, (int8x16_t)b);
  return sum + (VI)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#endif
}
#else
#ifndef __AVX512VNNI__
/* sums of neighbouring products of 16-bit integers */
INLINE VI dot_16(VI a, VI b)
{
#if VBYTES == 64
  return (VI)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif VBYTES == 32
  return (VI)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
#endif

/* a: uint8, b: int8 */
INLINE VI dot_8(VI sum, VI a, VI b)
{
#if defined __AVX512VNNI__
  return (VI)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#else
  typedef int16_t shorts __attribute__((vector_size(VBYTES)));
  const VI low = splat(0x00ff00ff);
  return sum + dot_16(a & low, (VI)((shorts)b << 8 >> 8)) +
      dot_16((VI)((unsigned_words)a >> 8) & low, (VI)((shorts)b >> 8));
#endif
}
#endif

#undef P_
#undef N_
#undef ELEMENT
#undef PER
#undef ROWS
#undef SUM
#undef ALONG
#undef ALONG_A
#undef ACROSS
#undef ACROSS_A
#undef DOT
#undef DOT_TILES
#undef FINISH_REAL
#define P_(name) JOIN(name, fours)
#define N_(name) JOIN(name, u8)
#define ELEMENT uint8_t
#define PER 4
#define SUM VI
#define ALONG along_8
#define ACROSS across_8
#define DOT dot_8
#define DOT_TILES DOT_TILES_U8
#define FINISH_REAL 0
/* with SHIFTED two registers are for the columns' sums */
#define ROWS_SHIFTED (MR == 14 ? 12 : MR)
#ifdef TY_NEON
#define ROWS ROWS_SHIFTED
#define ALONG_A along_shifted
#define ACROSS_A across_shifted
#define SHIFTED
#else
#define ROWS STRIP_ROWS(MR)
#define ALONG_A along_8
#define ACROSS_A across_8
#endif
#include "kernel/gemm/isa/narrow_tile.inc"
#include "kernel/gemm/isa/narrow.inc"
enum { ROWS_U8 = ROWS };

#undef P_
#undef N_
#undef ROWS
#undef ALONG_A
#undef ACROSS_A
#define P_(name) JOIN(name, signed_fours)
#define N_(name) JOIN(name, s8)
#ifdef TY_NEON
#define ROWS MR
#undef SHIFTED
#define ALONG_A along_8
#define ACROSS_A across_8
#else
#define ROWS STRIP_ROWS(ROWS_SHIFTED)
#define ALONG_A along_shifted
#define ACROSS_A across_shifted
#define SHIFTED
#undef DOT_TILES
#define DOT_TILES DOT_TILES_S8
#endif
#include "kernel/gemm/isa/narrow_tile.inc"
#include "kernel/gemm/isa/narrow.inc"
enum { ROWS_S8 = ROWS };

/* -- levels ------------------------------------------------------------------------------------ */

/* the nearest whole number, ties to even, of |x| < 2^22 */
INLINE float nearest(float x) { return x + 12582912.0f - 12582912.0f; }
INLINE float within(float x, float least, float most)
{
  x = x > least ? x : least; /* NaN: the least */
  return x < most ? x : most;
}

enum { LEVELS_AT_ONCE = 256 };

static void finish_part(const struct level_row *r, int64_t at, int64_t n)
{
  float y[LEVELS_AT_ONCE];
  const int32_t *sum = r->sum + at;
  const float unit = r->unit, more_scale = r->more_scale, more_zero = r->more_zero;
  const int64_t step = r->each;
  const int32_t none[1] = { 0 }, *less = r->less ? r->less + at * step : none;
  const float zero[1] = { 0 }, *bias = r->bias ? r->bias + at * step : zero,
              *scale = r->scale + at * step;
  if (r->each && r->less)
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum[i] - less[i]) * (unit * scale[i]);
  else if (r->each)
    for (int64_t i = 0; i < n; i++) y[i] = (float)sum[i] * (unit * scale[i]);
  else
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum[i] - less[0]) * (unit * scale[0]);
  if (r->each && r->bias)
    for (int64_t i = 0; i < n; i++) y[i] += bias[i];
  else if (r->bias)
    for (int64_t i = 0; i < n; i++) y[i] += bias[0];
  if (r->more && r->more_type == TY_F32)
    for (int64_t i = 0; i < n; i++) y[i] += ((const float *)r->more)[at + i];
  else if (r->more && r->more_type == TY_I8)
    for (int64_t i = 0; i < n; i++)
      y[i] += ((float)((const int8_t *)r->more)[at + i] - more_zero) * more_scale;
  else if (r->more)
    for (int64_t i = 0; i < n; i++)
      y[i] += ((float)((const uint8_t *)r->more)[at + i] - more_zero) * more_scale;
  if (r->relu)
    for (int64_t i = 0; i < n; i++) y[i] = y[i] < 0 ? 0 : y[i];
  const float inverse = r->inverse, least = (r->out_type == TY_I8 ? -128 : 0) - r->zero,
              most = (r->out_type == TY_I8 ? 127 : 255) - r->zero;
  const int32_t origin = (int32_t)r->zero;
  if (r->out_type == TY_F32) {
    memcpy((float *)r->out + at, y, (size_t)n * sizeof *y);
    return;
  }
  int32_t level[LEVELS_AT_ONCE];
  uint8_t *restrict out = (uint8_t *)r->out + at;
  for (int64_t i = 0; i < n; i++)
    level[i] = (int32_t)nearest(within(y[i] * inverse, least, most)) + origin;
  for (int64_t i = 0; i < n; i++) out[i] = (uint8_t)level[i];
}

static void finish_levels(const struct level_row *r)
{
  for (int64_t at = 0; at < r->n; at += LEVELS_AT_ONCE)
    finish_part(r, at, r->n - at < LEVELS_AT_ONCE ? r->n - at : LEVELS_AT_ONCE);
}

/* the larger, the smaller of two; b where a is NaN */
INLINE V larger(V a, V b)
{
#if VBYTES == 64
  return (V)_mm512_max_ps((__m512)a, (__m512)b);
#elif VBYTES == 32
  return (V)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return SELECT(a > b, a, b);
#endif
}
INLINE V smaller(V a, V b)
{
#if VBYTES == 64
  return (V)_mm512_min_ps((__m512)a, (__m512)b);
#elif VBYTES == 32
  return (V)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return SELECT(a < b, a, b);
#endif
}

static void make_levels(int64_t n, const float *x, float inverse, int shift, void *out_)
{
  uint8_t *out = out_;
  const V times = BCAST(inverse), least = BCAST(-127), most = BCAST(127),
          rounder = BCAST(12582912.0f);
  const VI plus = splat(shift);
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    /* the low bits hold the whole number */
    const V y = smaller(larger(LOAD(x + i) * times, least), most) + rounder;
    *(bytes *)(out + i) = __builtin_convertvector((VI)y + plus, bytes);
  }
  for (; i < n; i++)
    out[i] = (uint8_t)((int32_t)nearest(within(x[i] * inverse, -127, 127)) + shift);
}

static void make_words(
    int64_t n, int64_t rows, const uint8_t *x, int64_t ld, uint32_t turn, void *out_)
{
  int32_t *out = out_;
  const VI turned = splat((int32_t)turn);
  int64_t i = 0;
  for (; i + W <= n; i += W) store_words(out + i, across_8(x + i, ld, rows, W) ^ turned);
  if (i < n)
    STOREM((float *)out + i, (V)(across_8(x + i, ld, rows, n - i) ^ turned), MASK(n - i));
}

static float find_largest(int64_t n, const float *x)
{
  enum { CHAINS = 4 };                                /* latency of a maximum */
  const VI magnitude = splat(INT32_MAX);
  V y[CHAINS] = { { 0 } };
  int64_t i = 0;
  for (; i + CHAINS * W <= n; i += CHAINS * W)
    UNROLL for (int j = 0; j < CHAINS; j++)
      y[j] = larger((V)((VI)LOAD(x + i + j * W) & magnitude), y[j]);
  for (; i + W <= n; i += W) y[0] = larger((V)((VI)LOAD(x + i) & magnitude), y[0]);
  if (i < n) y[1] = larger((V)((VI)LOADM(x + i, MASK(n - i)) & magnitude), y[1]);
  y[0] = larger(larger(y[0], y[1]), larger(y[2], y[3]));
  float most = 0;
  for (int j = 0; j < W; j++) most = y[0][j] > most ? y[0][j] : most;
  return most;
}

#define INTEGER_TYPE(t, rows) { \
  .mr = rows, .nr = 2 * W, .w = W, .kc = WORDS * 4, .element = 1, .word = 4, .per = 4, \
  .copies = true, .block = block_##t, .panel = pack_panel_##t, .panel_t = pack_panel_t_##t, \
  .dots = dots_##t }
#define REAL_TYPE(t, bytes) { \
  .mr = STRIP_ROWS(MR), .nr = 2 * W, .w = W, .kc = WORDS * 2, \
  .element = bytes, .word = 4, .per = 2, \
  .copies = true, .block = block_##t, .panel = pack_panel_##t, .panel_t = pack_panel_t_##t, \
  .dots = dots_##t, .act = act_f32, .axpy = axpy_f32, .scatter = scatter_f32, .dot = dot_f32, \
  .sum = sum_f32 }
#ifdef TY_TILES
#include "kernel/gemm/isa/attend.inc"
#define ATTENTION score_rows, weigh_rows
#else
#define ATTENTION NULL, NULL
#endif

#define ISA_NAME_(isa) gemm_narrow_##isa
#define ISA_NAME(isa) ISA_NAME_(isa)
extern const struct gemm_narrow ISA_NAME(ISA);
const struct gemm_narrow ISA_NAME(ISA) = {
  { REAL_TYPE(rounded, 4), REAL_TYPE(bf16, 2), INTEGER_TYPE(u8, ROWS_U8), INTEGER_TYPE(s8, ROWS_S8) },
  finish_levels, make_levels, find_largest, make_words, ATTENTION
};
