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

const struct conv_tiles JOIN(conv_tiles, ISA) = { multiply_block, pack_positions };
