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

enum {
  AHEAD = 12,                                         /* rows of B between prefetch and use */
  LONG = 64,                                          /* words of a sum; then C is prefetched */
  WORDS = RUN_WORDS(KC),                              /* words of a run of a sum */
  ROW = WORDS + 16,                                   /* words between rows of a strip */
};
_Static_assert(ROW & (ROW - 1), "rows a power of two apart would share sets of the first cache");

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

/* The part of the left side that is still to be prefetched. */
struct gemm_fetch {
  const char *row;                                    /* the first row */
  int64_t at;                                         /* bytes of it that were fetched */
  int64_t bytes;                                      /* of a row */
  int64_t step;                                       /* bytes from one row to the next */
  int64_t rows;
};

INLINE VI load_words(const void *p) { return (VI)*(const words *)p; }
INLINE void store_words(void *p, VI x) { *(words *)p = (words)x; }
INLINE VI load_some(const void *p, M mask) { return (VI)LOADM((const float *)p, mask); }
INLINE VI splat(int32_t x) { return x - (VI){ 0 }; }

/* Loads a vector of elements of `size` bytes: the first n, and zeros after them. */
INLINE VI load_elements(const void *p, int64_t n, const int64_t size)
{
  VI x = { 0 };
  if (n * size >= VBYTES) return load_words(p);
  if (n > 0) memcpy(&x, p, (size_t)(n * size));
  return x;
}

/* -- bfloat16 ---------------------------------------------------------------------------------- */

/* Returns the bits of the nearest bfloat16, ties to even, in the upper half of each lane. */
INLINE VI round_bf16(V x)
{
  const unsigned_words bits = (unsigned_words)x,
                       up = bits + 0x7fff + (bits >> 16 & 1),
                       nan = bits | 0x400000;
  const VI is_nan = x != x;
  return (VI)((((unsigned_words)is_nan & nan) | (~(unsigned_words)is_nan & up)) & 0xffff0000);
}
/* Returns words of two bfloat16, which are in the upper halves of even and odd. */
INLINE VI join_pairs(VI even, VI odd)
{
  return (VI)((unsigned_words)even >> 16) | odd;
}

/* Returns words of neighbours among the first n floats, rounded. */
INLINE VI along_f32(const float *p, int64_t n)
{
  const V lo = n >= W ? LOAD(p) : LOADM(p, MASK(n < 0 ? 0 : n)),
          hi = n >= 2 * W ? LOAD(p + W) : n > W ? LOADM(p + W, MASK(n - W)) : (V){ 0 };
#if defined __AVX512BF16__
  return (VI)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo);
#elif defined TY_NEON && defined __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  return (VI)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)lo), (float32x4_t)hi);
#else
  return join_pairs(round_bf16(EVEN(lo, hi)), round_bf16(ODD(lo, hi)));
#endif
}

/* Returns words whose halves are elements of two rows, ld apart, rounded; zero where rows is 1. */
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
  return join_pairs(round_bf16(even), round_bf16(odd));
#endif
}

INLINE VI along_bf16(const uint16_t *p, int64_t n) { return load_elements(p, n, 2); }

/* Loads `lanes` numbers of 16 bits into words. */
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

/* Adds to each lane the two products of its words. */
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
/* products of few rows wait for memory, so those of float32 are not rounded */
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

enum { SHIFT = (int32_t)0x80808080 };                 /* inverts the top bit of each byte: +- 128 */

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
/* Adds to each lane the four products of its words of int8. */
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
/* Returns in each lane the sum of two products of 16-bit integers. */
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

/* Adds to each lane the four products of its words, uint8 of a times int8 of b. */
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
/* rows of a tile with SHIFTED, where two registers hold sums of columns */
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

/* 1.5 x 2^23, where floats are 1 apart: added to |x| < 2^22 it rounds x to the nearest whole
** number, ties to even, and leaves that in the low bits. */
#define ROUNDER 12582912.0f

INLINE float round_even(float x) { return x + ROUNDER - ROUNDER; }
/* Returns x within least .. most; NaN becomes the least. */
INLINE float clamp_level(float x, float least, float most)
{
  x = x > least ? x : least;
  return x < most ? x : most;
}

/* elements of a row that are finished before the next: their floats stay in the first cache */
enum { LEVELS_AT_ONCE = 256 };

/* Does levels_finish for elements at .. at + n - 1. */
static void narrow_finish_part(const struct level_row *r, int64_t at, int64_t n)
{
  float y[LEVELS_AT_ONCE];
  const int32_t *sum = r->sum + at;
  const float unit = r->unit, addend_scale = r->addend_scale, addend_zero = r->addend_zero;
  const int64_t step = r->per_column;
  const int32_t none[1] = { 0 }, *zero_term = r->zero_term ? r->zero_term + at * step : none;
  const float zero[1] = { 0 }, *bias = r->bias ? r->bias + at * step : zero,
              *scale = r->scale + at * step;
  if (r->per_column && r->zero_term)
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum[i] - zero_term[i]) * (unit * scale[i]);
  else if (r->per_column)
    for (int64_t i = 0; i < n; i++) y[i] = (float)sum[i] * (unit * scale[i]);
  else
    for (int64_t i = 0; i < n; i++) y[i] = (float)(sum[i] - zero_term[0]) * (unit * scale[0]);
  if (r->per_column && r->bias)
    for (int64_t i = 0; i < n; i++) y[i] += bias[i];
  else if (r->bias)
    for (int64_t i = 0; i < n; i++) y[i] += bias[0];
  if (r->addend && r->addend_type == TY_F32)
    for (int64_t i = 0; i < n; i++) y[i] += ((const float *)r->addend)[at + i];
  else if (r->addend && r->addend_type == TY_I8)
    for (int64_t i = 0; i < n; i++)
      y[i] += ((float)((const int8_t *)r->addend)[at + i] - addend_zero) * addend_scale;
  else if (r->addend)
    for (int64_t i = 0; i < n; i++)
      y[i] += ((float)((const uint8_t *)r->addend)[at + i] - addend_zero) * addend_scale;
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
    level[i] = (int32_t)round_even(clamp_level(y[i] * inverse, least, most)) + origin;
  for (int64_t i = 0; i < n; i++) out[i] = (uint8_t)level[i];
}

static void narrow_finish_levels(const struct level_row *r)
{
  for (int64_t at = 0; at < r->n; at += LEVELS_AT_ONCE)
    narrow_finish_part(r, at, r->n - at < LEVELS_AT_ONCE ? r->n - at : LEVELS_AT_ONCE);
}

/* Returns the smaller of two; b where a is NaN. */
INLINE V select_smaller(V a, V b)
{
#if VBYTES == 64
  return (V)_mm512_min_ps((__m512)a, (__m512)b);
#elif VBYTES == 32
  return (V)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return SELECT(a < b, a, b);
#endif
}

static void narrow_make_levels(int64_t n, const float *x, float inverse, int shift, void *out_)
{
  uint8_t *out = out_;
  const V times = BCAST(inverse), least = BCAST(-127), most = BCAST(127),
          rounder = BCAST(ROUNDER);
  const VI plus = splat(shift);
  int64_t i = 0;
  for (; i + W <= n; i += W) {
    const V y = select_smaller(LARGER(LOAD(x + i) * times, least), most) + rounder;
    *(bytes *)(out + i) = __builtin_convertvector((VI)y + plus, bytes);
  }
  for (; i < n; i++)
    out[i] = (uint8_t)((int32_t)round_even(clamp_level(x[i] * inverse, -127, 127)) + shift);
}

static void narrow_make_words(
    int64_t n, int64_t rows, const uint8_t *x, int64_t ld, uint32_t flip, void *out_)
{
  int32_t *out = out_;
  const VI flipped = splat((int32_t)flip);
  int64_t i = 0;
  for (; i + W <= n; i += W) store_words(out + i, across_8(x + i, ld, rows, W) ^ flipped);
  if (i < n)
    STOREM((float *)out + i, (V)(across_8(x + i, ld, rows, n - i) ^ flipped), MASK(n - i));
}

static float narrow_find_magnitude(int64_t n, const float *x)
{
  enum { CHAINS = 4 };                                /* latency of a maximum */
  const VI magnitude = splat(INT32_MAX);
  V y[CHAINS] = { { 0 } };
  int64_t i = 0;
  for (; i + CHAINS * W <= n; i += CHAINS * W)
    UNROLL for (int j = 0; j < CHAINS; j++)
      y[j] = LARGER((V)((VI)LOAD(x + i + j * W) & magnitude), y[j]);
  for (; i + W <= n; i += W) y[0] = LARGER((V)((VI)LOAD(x + i) & magnitude), y[0]);
  if (i < n) y[1] = LARGER((V)((VI)LOADM(x + i, MASK(n - i)) & magnitude), y[1]);
  y[0] = LARGER(LARGER(y[0], y[1]), LARGER(y[2], y[3]));
  float most = 0;
  for (int j = 0; j < W; j++) most = y[0][j] > most ? y[0][j] : most;
  return most;
}

#define INTEGER_TYPE(t, rows) { \
  .mr = rows, .nr = 2 * W, .w = W, .kc = WORDS * 4, .element = 1, .word = 4, .per = 4, \
  .copies = true, .block = block_##t, .panel = pack_panel_##t, .panel_t = pack_panel_t_##t, \
  .dots = dots_##t }
#define REAL_TYPE(t, bytes, ...) { \
  .mr = STRIP_ROWS(MR), .nr = 2 * W, .w = W, .kc = WORDS * 2, \
  .element = bytes, .word = 4, .per = 2, \
  .copies = true, .block = block_##t, .panel = pack_panel_##t, .panel_t = pack_panel_t_##t, \
  .dots = dots_##t, .act = act_f32, .axpy = axpy_f32, .scatter = scatter_f32, .dot = dot_f32, \
  .sum = sum_f32, __VA_ARGS__ }
#ifdef TY_TILES
#include "kernel/gemm/isa/weights.inc"
#include "kernel/gemm/isa/attend_tiles.inc"
#define ATTENTION .score = score_rows, .weigh = weigh_rows
#else
#define ATTENTION
#endif

#define ISA_NAME_(isa) gemm_narrow_##isa
#define ISA_NAME(isa) ISA_NAME_(isa)
extern const struct gemm_narrow ISA_NAME(ISA);
const struct gemm_narrow ISA_NAME(ISA) = {
  { REAL_TYPE(rounded, 4, ATTENTION), REAL_TYPE(bf16, 2), INTEGER_TYPE(u8, ROWS_U8),
    INTEGER_TYPE(s8, ROWS_S8) },
  narrow_finish_levels, narrow_make_levels, narrow_find_magnitude, narrow_make_words
};
