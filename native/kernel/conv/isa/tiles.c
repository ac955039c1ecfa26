/* tiles.c - inner loops of a convolution on tiles (kernel/conv/tiles.h), compiled where there are
** tiles (-DTY_TILES).
*/
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#include "base/convert.h"
#include "kernel/epilogue.h"
#include "kernel/conv/tiles.h"

#define JOIN(a, b) JOIN_(a, b)
#define JOIN_(a, b) a##_##b
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))
#define W TILE_LANES
#include "kernel/gemm/isa/tiles.inc"

typedef float reals __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t bits __attribute__((vector_size(64), aligned(4), may_alias));

enum { WORDS = TILE_CHANNELS / 2 };                   /* of a row of a tile */

/* -- the left side ----------------------------------------------------------------------------- */

#ifndef __AVX512BF16__
/* Returns the bits of the nearest bfloat16, ties to even, in the upper half of each lane. */
INLINE bits round_lanes(reals x)
{
  const bits all = (bits)x, up = all + 0x7fff + (all >> 16 & 1), nan = all | 0x400000,
             is_nan = (bits)(x != x);
  return ((is_nan & nan) | (~is_nan & up)) & 0xffff0000;
}
#endif

/* Rounds 16 numbers and the next 16. */
INLINE void round_position(const float *low, const float *high, uint16_t *to)
{
  const reals none = { 0 }, a = *(const reals *)low, b = high ? *(const reals *)high : none;
#ifdef __AVX512BF16__
  *(bits *)to = (bits)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#else
  const bits x = round_lanes(a), y = round_lanes(b);
  UNROLL for (int i = 0; i < W; i++) to[i] = (uint16_t)(x[i] >> 16);
  UNROLL for (int i = 0; i < W; i++) to[W + i] = (uint16_t)(y[i] >> 16);
#endif
}

static void pack_positions(
    int64_t n, const float *low, const float *high, int64_t step, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++)
    round_position(low + i * step, high ? high + i * step : NULL, to + i * TILE_CHANNELS);
}

/* -- products ---------------------------------------------------------------------------------- */

/* Ends the sums of the positions of a tile for 16 filters. */
INLINE void end_sums(const struct tiles_block *b, const float *sums, const int32_t *place,
    const int part)
{
  reals scale = { 0 }, bias = { 0 };
  const reals none = { 0 };
  float *y = b->y + part * b->block;
  if (b->scale) scale = *(const reals *)(b->scale + part * W);
  if (b->bias) bias = *(const reals *)(b->bias + part * W);
  for (int i = 0; i < TILE_ROWS; i++) {
    if (place[i] < 0) continue;
    float *to = y + (int64_t)place[i] * W;
    reals v = *(const reals *)(sums + i * W);
    if (b->scale) v *= scale;
    v += bias;
    if (b->add) v += *(const reals *)to;
    if (b->act == ACT_RELU) v = (reals)((bits)v & ~(bits)(v < none)); /* NaN stays */
    *(reals *)to = v;
    if (b->act > ACT_RELU) b->apply(b->act, W, to);
  }
}

/* Multiplies two tiles of the left side by the tiles of a block of filters. */
INLINE void multiply_pair(const struct tiles_block *b, const uint16_t *x0, const uint16_t *x1,
    float *sums, const bool wide)
{
  const uint16_t *weight = b->weight;
  CLEAR_TILE(0);
  CLEAR_TILE(2);
  if (wide) CLEAR_TILE(1);
  if (wide) CLEAR_TILE(3);
  for (int64_t c = 0; c < b->channels; c++, x0 += b->plane, x1 += b->plane)
    for (int64_t t = 0; t < b->taps; t++, weight += 2 * TILE_NUMBERS) {
      LOAD_TILE(6, (const int32_t *)weight, WORDS);
      LOAD_TILE(4, (const int32_t *)(x0 + b->tap[t]), WORDS);
      DOT_TILES_BF16(0, 4, 6);
      if (wide) LOAD_TILE(7, (const int32_t *)(weight + TILE_NUMBERS), WORDS);
      if (wide) DOT_TILES_BF16(1, 4, 7);
      LOAD_TILE(5, (const int32_t *)(x1 + b->tap[t]), WORDS);
      DOT_TILES_BF16(2, 5, 6);
      if (wide) DOT_TILES_BF16(3, 5, 7);
    }
  STORE_TILE(0, (int32_t *)sums, W);
  if (wide) STORE_TILE(1, (int32_t *)(sums + TILE_ROWS * W), W);
  STORE_TILE(2, (int32_t *)(sums + 2 * TILE_ROWS * W), W);
  if (wide) STORE_TILE(3, (int32_t *)(sums + 3 * TILE_ROWS * W), W);
}

INLINE void multiply_tiles_of(const struct tiles_block *b, const bool wide)
{
  float sums[4 * TILE_ROWS * W] __attribute__((aligned(64)));
  for (int64_t t = 0; t < b->tiles; t += 2) {
    const bool both = t + 1 < b->tiles;
    multiply_pair(b, b->x + (int64_t)b->first[t] * TILE_CHANNELS,
        b->x + (int64_t)b->first[t + both] * TILE_CHANNELS, sums, wide);
    for (int i = 0; i < 1 + both; i++)
      for (int p = 0; p < 1 + wide; p++)
        end_sums(b, sums + (2 * i + p) * TILE_ROWS * W, b->place + (t + i) * TILE_ROWS, p);
  }
}

static void multiply_block(const struct tiles_block *b)
{
  SET_TILES();
  if (b->parts > 1)
    multiply_tiles_of(b, true);
  else
    multiply_tiles_of(b, false);
  END_TILES();
}

/* -- the weight's gradient --------------------------------------------------------------------- */

static void round_positions(int64_t n, const float *from, int64_t step, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++, from += step, to += W) {
#ifdef __AVX512BF16__
    const __m256i x = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from));
    memcpy(to, &x, sizeof x);
#else
    const bits x = round_lanes(*(const reals *)from);
    UNROLL for (int k = 0; k < W; k++) to[k] = (uint16_t)(x[k] >> 16);
#endif
  }
}

/* Returns words of two rounded positions. */
INLINE bits pair_of(const uint16_t *from)
{
  const bits a = __builtin_convertvector(*(const halves *)from, bits),
             b = __builtin_convertvector(*(const halves *)(from + W), bits);
  return a | b << 16;
}

static void pair_positions(int64_t n, const uint16_t *from, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++) *(bits *)(to + i * 2 * W) = pair_of(from + i * 2 * W);
}

/* Exchanges the words of a square of 2 n rows, n apart, whose numbers differ in the bit n. */
#define TURN(n, from_a, from_b) \
  for (int i = 0; i < W; i++) { \
    if (i & (n)) continue; \
    const bits a = x[i], b = x[i + (n)]; \
    x[i] = __builtin_shuffle(a, b, from_a); \
    x[i + (n)] = __builtin_shuffle(a, b, from_b); \
  }

static void turn_positions(int64_t n, const uint16_t *from, uint16_t *to)
{
  bits low[4], high[4];
  for (int s = 0; s < 4; s++)
    for (uint32_t k = 0; k < W; k++) {
      const uint32_t far = 1u << s;
      low[s][k] = k & far ? W + k - far : k;
      high[s][k] = k & far ? W + k : k + far;
    }
  for (int64_t t = 0; t < n; t++, from += 2 * W * W, to += TILE_NUMBERS) {
    bits x[W];
    UNROLL for (int i = 0; i < W; i++) x[i] = pair_of(from + i * 2 * W);
    UNROLL TURN(1, low[0], high[0])
    UNROLL TURN(2, low[1], high[1])
    UNROLL TURN(4, low[2], high[2])
    UNROLL TURN(8, low[3], high[3])
    UNROLL for (int i = 0; i < W; i++) *(bits *)(to + i * 2 * W) = x[i];
  }
}

static void add_up(const struct tiles_sums *s)
{
  const uint16_t *left = s->left, *right = s->right;
  int32_t *sums = (int32_t *)s->sums;
  SET_TILES();
  if (s->add) {
    LOAD_TILE(0, sums, W);
    LOAD_TILE(1, sums + W * W, W);
    LOAD_TILE(2, sums + 2 * W * W, W);
    LOAD_TILE(3, sums + 3 * W * W, W);
  }
  else {
    CLEAR_TILE(0);
    CLEAR_TILE(1);
    CLEAR_TILE(2);
    CLEAR_TILE(3);
  }
  for (int64_t i = 0; i < s->steps; i++, left += TILE_NUMBERS, right += TILE_NUMBERS) {
    LOAD_TILE(4, (const int32_t *)left, WORDS);
    LOAD_TILE(6, (const int32_t *)right, WORDS);
    DOT_TILES_BF16(0, 4, 6);
    LOAD_TILE(7, (const int32_t *)(right + s->right_next), WORDS);
    DOT_TILES_BF16(1, 4, 7);
    LOAD_TILE(5, (const int32_t *)(left + s->left_next), WORDS);
    DOT_TILES_BF16(2, 5, 6);
    DOT_TILES_BF16(3, 5, 7);
  }
  STORE_TILE(0, sums, W);
  STORE_TILE(1, sums + W * W, W);
  STORE_TILE(2, sums + 2 * W * W, W);
  STORE_TILE(3, sums + 3 * W * W, W);
  END_TILES();
}

const struct conv_tiles JOIN(conv_tiles, ISA) = { multiply_block, pack_positions, add_up,
  round_positions, pair_positions, turn_positions };
