/* tiles.c - inner loops of a convolution on tiles (kernel/conv/tiles.h), compiled for processors
** with tiles (-DTY_TILES). */
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

enum { WORDS = TILE_CHANNELS / 2 };                   /* words of a row of a tile */

/* -- the left side ----------------------------------------------------------------------------- */

/* Rounds 16 numbers. */
INLINE void round_lanes(const float *from, uint16_t *to)
{
#ifdef __AVX512BF16__
  *(halves *)to = (halves)_mm512_cvtneps_pbh(_mm512_loadu_ps(from));
#else
  const reals x = *(const reals *)from;
  const bits all = (bits)x, up = all + 0x7fff + (all >> 16 & 1), nan = all | 0x400000,
             is_nan = (bits)(x != x);
  *(halves *)to = __builtin_convertvector(((is_nan & nan) | (~is_nan & up)) >> 16, halves);
#endif
}

/* Rounds 16 numbers from low on and 16 from high on; high NULL: zeros. */
INLINE void round_position(const float *low, const float *high, uint16_t *to)
{
#ifdef __AVX512BF16__
  const __m512 a = _mm512_loadu_ps(low), b = high ? _mm512_loadu_ps(high) : _mm512_setzero_ps();
  *(bits *)to = (bits)_mm512_cvtne2ps_pbh(b, a);
#else
  const halves none = { 0 };
  round_lanes(low, to);
  if (high)
    round_lanes(high, to + W);
  else
    *(halves *)(to + W) = none;
#endif
}

static void tiles_pack_positions(
    int64_t n, const float *low, const float *high, int64_t step, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++)
    round_position(low + i * step, high ? high + i * step : NULL, to + i * TILE_CHANNELS);
}

/* -- products ---------------------------------------------------------------------------------- */

/* Scales, adds and activates the sums of the positions of a tile for 16 filters, and writes
** them. */
INLINE void end_sums(const struct tiles_block *b, const float *sums, const int32_t *where,
    const int part)
{
  reals scale = { 0 }, bias = { 0 };
  const reals none = { 0 };
  float *y = b->y + part * b->block;
  if (b->scale) scale = *(const reals *)(b->scale + part * W);
  if (b->bias) bias = *(const reals *)(b->bias + part * W);
  for (int i = 0; i < TILE_ROWS; i++) {
    if (where[i] < 0) continue;
    float *to = y + (int64_t)where[i] * W;
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
        end_sums(b, sums + (2 * i + p) * TILE_ROWS * W, b->where + (t + i) * TILE_ROWS, p);
  }
}

static void tiles_multiply_block(const struct tiles_block *b)
{
  SET_TILES();
  if (b->parts > 1)
    multiply_tiles_of(b, true);
  else
    multiply_tiles_of(b, false);
  END_TILES();
}

/* -- the weight's gradient --------------------------------------------------------------------- */

static void tiles_round_positions(int64_t n, const float *from, int64_t step, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++) round_lanes(from + i * step, to + i * W);
}

/* Combines two rounded positions into words, the first position in the lower halves. */
INLINE void pair_lanes(const uint16_t *from, bits *to)
{
  const bits a = __builtin_convertvector(*(const halves *)from, bits),
             b = __builtin_convertvector(*(const halves *)(from + W), bits);
  *to = a | b << 16;
}

static void tiles_pair_positions(int64_t n, const uint16_t *from, uint16_t *to)
{
  for (int64_t i = 0; i < n; i++) pair_lanes(from + i * 2 * W, (bits *)(to + i * 2 * W));
}

/* Exchanges words between pairs of rows whose indices differ only in bit n: the lower row gets the
** words `first` of both, the upper one the words `second`. Doing so for all four bits transposes
** the 16 rows. */
#define EXCHANGE(n, first, second) \
  UNROLL for (int i = 0; i < W; i++) { \
    if (i & (n)) continue; \
    const bits a = x[i], b = x[i + (n)]; \
    x[i] = __builtin_shufflevector(a, b, first); \
    x[i + (n)] = __builtin_shufflevector(a, b, second); \
  }
#define FIRST_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define SECOND_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define FIRST_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define SECOND_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define FIRST_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define SECOND_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define FIRST_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define SECOND_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31

static void tiles_turn_positions(int64_t n, const uint16_t *from, uint16_t *to)
{
  for (int64_t t = 0; t < n; t++, from += 2 * W * W, to += TILE_NUMBERS) {
    bits x[W];
    UNROLL for (int i = 0; i < W; i++) pair_lanes(from + i * 2 * W, &x[i]);
    EXCHANGE(1, FIRST_1, SECOND_1)
    EXCHANGE(2, FIRST_2, SECOND_2)
    EXCHANGE(4, FIRST_4, SECOND_4)
    EXCHANGE(8, FIRST_8, SECOND_8)
    UNROLL for (int i = 0; i < W; i++) *(bits *)(to + i * 2 * W) = x[i];
  }
}

static void tiles_add_up(const struct tiles_sums *s)
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

const struct conv_tiles JOIN(conv_tiles, ISA) = { tiles_multiply_block, tiles_pack_positions,
  tiles_add_up, tiles_round_positions, tiles_pair_positions, tiles_turn_positions };
