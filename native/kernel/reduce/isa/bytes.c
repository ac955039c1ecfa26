/* bytes.c - inner loops of reductions of 8-bit integers (kernel/reduce/bytes.h), compiled once per
** instruction set: -DISA=baseline, avx2, avx512, neon.
**
** They use explicit vectors, which compile faster than loops to be vectorised; uint8 and int8 share
** them. Sums and products use lanes of 32 bits, extremes bytes. Integers wrap and give the same
** result in any order, so every instruction set gives the same results. */
#include "base/base.h"
#include "base/intrinsics.h"
#include "kernel/reduce/bytes.h"

/* bytes of a vector */
#ifdef __AVX512F__
#define WIDTH 64
#elif defined __AVX2__
#define WIDTH 32
#else
#define WIDTH 16
#endif

enum {
  /* 32-bit lanes of a vector */
  LANES = WIDTH / 4,
  /* columns that are summed at a time */
  CHUNK = 4 * LANES,
  /* bytes of a vector for short rows and few columns */
  SHORT = 16,
  /* most squares of differences, up to 255^2 each, whose sum fits in 31 bits */
  MOST = 32768,
  /* rows that a byte can count */
  MOST_ROWS = 256
};
typedef uint32_t words __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef int32_t signed_words __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef int8_t line __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef int8_t short_line __attribute__((vector_size(SHORT), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
/* these loops are all that runs for short rows */
#ifdef __clang__
#define BY_FOURS _Pragma("clang loop unroll_count(4)")
#else
#define BY_FOURS _Pragma("GCC unroll 4")
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

/* -- sums and products ------------------------------------------------------------------------- */
/* A byte v has the value (v ^ sign) - sign, where sign is 0x80 for int8 and 0 for uint8. */

INLINE words fill_words(uint32_t v) { return (words){ 0 } + v; }

/* Returns the values of LANES bytes. */
INLINE words load_words(const uint8_t *x, words sign)
{
#ifdef __AVX512F__
  const words v = (words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x));
#elif defined __AVX2__
  const words v = (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
#elif defined TY_NEON
  uint32_t four;
  memcpy(&four, x, sizeof four);
  const words v = (words)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four))));
#else
  const words v = { x[0], x[1], x[2], x[3] };
#endif
  return (v ^ sign) - sign;
}

INLINE uint32_t load_word(const uint8_t *x, uint32_t sign)
{
  return sign ? (uint32_t)(int8_t)*x : *x;
}

/* Adds elements v to lanes a; c: the centre of each. */
INLINE words step(int kind, words a, words v, words c)
{
  if (kind == R_PROD) return a * v;
  if (kind == R_SQUARE) return a + v * v;
  if (kind == R_DEVIATION) return a + (v - c) * (v - c);
  if (kind == R_ABS) {
    const words negative = (words)((signed_words)v >> 31);
    return a + ((v ^ negative) - negative);
  }
  return a + v;
}

INLINE uint32_t step_one(int kind, uint32_t a, uint32_t v, uint32_t c)
{
  if (kind == R_PROD) return a * v;
  if (kind == R_SQUARE) return a + v * v;
  if (kind == R_DEVIATION) return a + (v - c) * (v - c);
  if (kind == R_ABS) return a + (v >> 31 ? 0 - v : v);
  return a + v;
}

/* Merges a 32-bit lane into an accumulator. */
INLINE void merge_word(int kind, accumulator *acc, uint32_t v)
{
  const uint64_t a = (uint64_t)acc->i, b = (uint64_t)(int64_t)(int32_t)v;
  acc->i = (int64_t)(kind == R_PROD ? a * b : a + b);
}

INLINE void merge_words(int kind, accumulator *acc, words v, int first)
{
  uint32_t part[LANES];
  memcpy(part, &v, sizeof part);
  for (int k = first; k < LANES; k++) merge_word(kind, acc + k, part[k]);
}

INLINE void sum_rows(int kind, uint32_t sign, accumulator *acc, const uint8_t *x,
    const uint8_t *centre, int64_t count, int64_t stride, int64_t n)
{
  const words signs = fill_words(sign);
  for (int64_t i = 0; i < count; i++, x += stride) {
    const uint32_t c = centre ? load_word(centre + i, sign) : 0;
    for (int64_t j = 0; j < n;) {
      const int64_t end = j + MIN(n - j, MOST);
      uint32_t sum = kind == R_PROD;
      if (end - j >= 2 * LANES) {
        words a = fill_words(sum), b = a;
        uint32_t part[LANES];
        for (; j + 2 * LANES <= end; j += 2 * LANES) {
          a = step(kind, a, load_words(x + j, signs), fill_words(c));
          b = step(kind, b, load_words(x + j + LANES, signs), fill_words(c));
        }
        a = kind == R_PROD ? a * b : a + b;
        memcpy(part, &a, sizeof part);
        for (int k = 0; k < LANES; k++) sum = kind == R_PROD ? sum * part[k] : sum + part[k];
      }
      BY_FOURS for (; j < end; j++) sum = step_one(kind, sum, load_word(x + j, sign), c);
      merge_word(kind, acc + i, sum);
    }
  }
}

/* Reduces LANES columns of at most MOST rows; drops the results of columns before `first`. */
INLINE void sum_lanes(int kind, uint32_t sign, accumulator *acc, const uint8_t *x,
    const uint8_t *centre, int64_t count, int64_t stride, int first)
{
  const words signs = fill_words(sign), c = centre ? load_words(centre, signs) : signs;
  words a = fill_words(kind == R_PROD);
  for (int64_t i = 0; i < count; i++, x += stride) a = step(kind, a, load_words(x, signs), c);
  merge_words(kind, acc, a, first);
}

INLINE void sum_chunk(int kind, uint32_t sign, accumulator *acc, const uint8_t *x,
    const uint8_t *centre, int64_t count, int64_t stride)
{
  const words none = fill_words(kind == R_PROD), signs = fill_words(sign);
  words a0 = none, a1 = none, a2 = none, a3 = none, c0 = none, c1 = none, c2 = none, c3 = none;
  if (centre) {
    c0 = load_words(centre, signs), c1 = load_words(centre + LANES, signs);
    c2 = load_words(centre + 2 * LANES, signs), c3 = load_words(centre + 3 * LANES, signs);
  }
  for (int64_t i = 0; i < count; i++, x += stride) {
    a0 = step(kind, a0, load_words(x, signs), c0);
    a1 = step(kind, a1, load_words(x + LANES, signs), c1);
    a2 = step(kind, a2, load_words(x + 2 * LANES, signs), c2);
    a3 = step(kind, a3, load_words(x + 3 * LANES, signs), c3);
  }
  merge_words(kind, acc, a0, 0);
  merge_words(kind, acc + LANES, a1, 0);
  merge_words(kind, acc + 2 * LANES, a2, 0);
  merge_words(kind, acc + 3 * LANES, a3, 0);
}

/* Reduces at most MOST groups of LANES adjacent rows of n < CHUNK columns. A group is n vectors,
** after which the columns repeat. */
INLINE void sum_narrow(int kind, uint32_t sign, accumulator *acc, const uint8_t *x,
    const uint8_t *centre, int64_t groups, int64_t n)
{
  const words signs = fill_words(sign);
  words part[CHUNK], middle[CHUNK];
  for (int64_t t = 0; t < n; t++) part[t] = middle[t] = fill_words(kind == R_PROD);
  if (centre)
    for (int64_t e = 0; e < n * LANES; e++)
      middle[e / LANES][e % LANES] = load_word(centre + e % n, sign);
  for (; groups > 0; groups--, x += n * LANES)
    for (int64_t t = 0; t < n; t++)
      part[t] = step(kind, part[t], load_words(x + t * LANES, signs), middle[t]);
  for (int64_t r = 0, e = 0; r < LANES; r++)
    for (int64_t j = 0; j < n; j++, e++)
      merge_word(kind, acc + j, part[e / LANES][e % LANES]);
}

INLINE void sum_cols(int kind, uint32_t sign, accumulator *acc, const uint8_t *x,
    const uint8_t *centre, int64_t count, int64_t stride, int64_t n)
{
  if (stride == n && n < CHUNK && count >= 2 * LANES) {
    for (int64_t left = count / LANES; left > 0;) {
      const int64_t groups = MIN(left, MOST);
      sum_narrow(kind, sign, acc, x, centre, groups, n);
      x += groups * LANES * n, left -= groups;
    }
    count %= LANES;
  }
  for (; count > 0; count -= MIN(count, MOST), x += MOST * stride) {
    const int64_t rows = MIN(count, MOST);
    int64_t j = 0;
    for (; j + CHUNK <= n; j += CHUNK)
      sum_chunk(kind, sign, acc + j, x + j, centre ? centre + j : NULL, rows, stride);
    for (; j < n && n >= LANES; j += LANES) {
      const int64_t at = MIN(j, n - LANES);
      sum_lanes(kind, sign, acc + at, x + at, centre ? centre + at : NULL, rows, stride,
          (int)(j - at));
    }
    for (; j < n; j++) {
      const uint32_t c = centre ? load_word(centre + j, sign) : 0;
      uint32_t sum = kind == R_PROD;
      for (int64_t i = 0; i < rows; i++)
        sum = step_one(kind, sum, load_word(x + i * stride + j, sign), c);
      merge_word(kind, acc + j, sum);
    }
  }
}

/* -- extremes ---------------------------------------------------------------------------------- */
/* Bytes are compared as int8 after an exclusive or with `flip`: 0x80 for uint8, 0 for int8. */

#define LINES(line) \
INLINE line load_##line(const uint8_t *x, int flip) { return *(const line *)x ^ (int8_t)flip; } \
INLINE line better_##line(bool least, line a, line b) \
{ \
  const line first = (line)(least ? a < b : a > b); \
  return (a & first) | (b & ~first); \
}
LINES(line)
LINES(short_line)
#undef LINES

INLINE int load_one(const uint8_t *x, int flip) { return (int8_t)(*x ^ flip); }
INLINE int better_one(bool least, int a, int b) { return least ? MIN(a, b) : MAX(a, b); }

/* Merges a byte of a line into an accumulator. */
INLINE void merge_extreme(bool least, accumulator *acc, int v, int flip)
{
  v += flip;
  if (least ? v < acc->i : v > acc->i) acc->i = v;
}

/* Shuffles that move bytes n .. 15 of a short line to its start. */
#define FROM_8(v) \
  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0)
#define FROM_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define FROM_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define FROM_1(v) __builtin_shufflevector(v, v, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

/* Returns the extreme of n >= 1 elements. Vectors may overlap. */
INLINE int extreme_of_row(bool least, const uint8_t *x, int64_t n, int flip)
{
  if (n < SHORT) {
    int best = load_one(x, flip);
    BY_FOURS for (int64_t j = 1; j < n; j++) best = better_one(least, best, load_one(x + j, flip));
    return best;
  }
  short_line best = load_short_line(x + n - SHORT, flip);
  int64_t j = 0;
  if (n >= 2 * WIDTH) {
    line a = load_line(x, flip), b = load_line(x + WIDTH, flip);
    for (j = 2 * WIDTH; j + 2 * WIDTH <= n; j += 2 * WIDTH) {
      a = better_line(least, a, load_line(x + j, flip));
      b = better_line(least, b, load_line(x + j + WIDTH, flip));
    }
    a = better_line(least, a, b);
    for (int k = 0; k < WIDTH; k += SHORT)
      best = better_short_line(least, best, load_short_line((const uint8_t *)&a + k, 0));
  }
  for (; j + SHORT <= n; j += SHORT)
    best = better_short_line(least, best, load_short_line(x + j, flip));
  best = better_short_line(least, best, FROM_8(best));
  best = better_short_line(least, best, FROM_4(best));
  best = better_short_line(least, best, FROM_2(best));
  best = better_short_line(least, best, FROM_1(best));
  return best[0];
}

INLINE void extreme_rows(bool least, int flip, accumulator *acc, const uint8_t *x, int64_t count,
    int64_t stride, int64_t n)
{
  if (n <= 0) return;
  for (int64_t i = 0; i < count; i++, x += stride)
    merge_extreme(least, acc + i, extreme_of_row(least, x, n, flip), flip);
}

/* Reduces groups of WIDTH adjacent rows of n < WIDTH columns, as sum_narrow does. */
INLINE void extreme_narrow(
    bool least, int flip, accumulator *acc, const uint8_t *x, int64_t groups, int64_t n)
{
  line part[WIDTH];
  const int8_t *p = (const int8_t *)part;
  for (int64_t t = 0; t < n; t++) part[t] = load_line(x + t * WIDTH, flip);
  for (; groups > 1; groups--) {
    x += n * WIDTH;
    for (int64_t t = 0; t < n; t++)
      part[t] = better_line(least, part[t], load_line(x + t * WIDTH, flip));
  }
  for (int64_t r = 0; r < WIDTH; r++, p += n)
    for (int64_t j = 0; j < n; j++) merge_extreme(least, acc + j, p[j], flip);
}

#define EXTREME_OF_COLUMNS(line, width) \
INLINE void extreme_of_##line(bool least, int flip, accumulator *acc, const uint8_t *x, \
    int64_t count, int64_t stride) \
{ \
  line best = load_##line(x, flip); \
  for (int64_t i = 1; i < count; i++) \
    best = better_##line(least, best, load_##line(x + i * stride, flip)); \
  for (int k = 0; k < width; k++) merge_extreme(least, acc + k, ((const int8_t *)&best)[k], flip); \
}
EXTREME_OF_COLUMNS(line, WIDTH)
EXTREME_OF_COLUMNS(short_line, SHORT)
#undef EXTREME_OF_COLUMNS

INLINE void extreme_cols(bool least, int flip, accumulator *acc, const uint8_t *x, int64_t count,
    int64_t stride, int64_t n)
{
  if (stride == n && n < WIDTH && count >= 2 * WIDTH) {
    extreme_narrow(least, flip, acc, x, count / WIDTH, n);
    x += count / WIDTH * WIDTH * n;
    count %= WIDTH;
  }
  if (count <= 0) return;
  int64_t j = 0;
  for (; j < n && n >= WIDTH; j += WIDTH) {
    const int64_t at = MIN(j, n - WIDTH);
    extreme_of_line(least, flip, acc + at, x + at, count, stride);
  }
  for (; j < n && n >= SHORT; j += SHORT) {
    const int64_t at = MIN(j, n - SHORT);
    extreme_of_short_line(least, flip, acc + at, x + at, count, stride);
  }
  for (; j < n; j++)
    for (int64_t i = 0; i < count; i++)
      merge_extreme(least, acc + j, load_one(x + i * stride + j, flip), flip);
}

/* -- indices of extremes ----------------------------------------------------------------------- */

INLINE int64_t best_of_row(bool least, int flip, const uint8_t *x, int64_t n)
{
  if (n >= SHORT) {
    const int best = extreme_of_row(least, x, n, flip);
    return (const uint8_t *)memchr(x, (uint8_t)(best ^ flip), (size_t)n) - x;
  }
  int best = load_one(x, flip);
  int64_t at = 0;
  BY_FOURS for (int64_t j = 1; j < n; j++) {
    const int v = load_one(x + j, flip);
    const bool beats = least ? v < best : v > best;
    best = beats ? v : best;
    at = beats ? j : at;
  }
  return at;
}

/* Finds the first extremes of WIDTH columns of at most MOST_ROWS rows. */
INLINE void best_of_part(bool least, int flip, int8_t *extreme, uint8_t *row, const uint8_t *x,
    int64_t count, int64_t stride)
{
  line best = load_line(x, flip), at = { 0 };
  for (int64_t i = 1; i < count; i++) {
    const line v = load_line(x + i * stride, flip), beats = (line)(least ? v < best : v > best);
    best = (v & beats) | (best & ~beats);
    at = (((line){ 0 } + (int8_t)i) & beats) | (at & ~beats);
  }
  memcpy(extreme, &best, WIDTH);
  memcpy(row, &at, WIDTH);
}

INLINE void best_of_lines(bool least, int flip, int64_t *index, const uint8_t *x, int64_t count,
    int64_t stride)
{
  int8_t best[WIDTH], part[WIDTH];
  uint8_t row[WIDTH];
  for (int64_t i = 0; i < count; i += MOST_ROWS) {
    best_of_part(least, flip, part, row, x + i * stride, MIN(count - i, MOST_ROWS), stride);
    for (int k = 0; k < WIDTH; k++)
      if (!i || (least ? part[k] < best[k] : part[k] > best[k]))
        best[k] = part[k], index[k] = i + row[k];
  }
}

INLINE void best_of_cols(bool least, int flip, int64_t *index, const uint8_t *x, int64_t count,
    int64_t stride, int64_t n)
{
  if (n >= WIDTH) {
    for (int64_t j = 0; j < n; j += WIDTH) {
      const int64_t at = MIN(j, n - WIDTH);
      best_of_lines(least, flip, index + at, x + at, count, stride);
    }
    return;
  }
  int best[WIDTH];
  for (int64_t j = 0; j < n; j++) best[j] = load_one(x + j, flip), index[j] = 0;
  for (int64_t i = 1; i < count; i++)
    for (int64_t j = 0; j < n; j++) {
      const int v = load_one(x + i * stride + j, flip);
      const bool beats = least ? v < best[j] : v > best[j];
      best[j] = beats ? v : best[j];
      index[j] = beats ? i : index[j];
    }
}

/* -- gradients --------------------------------------------------------------------------------- */

static void equal_rows(uint8_t *dx, const uint8_t *x, const uint8_t *y, const uint8_t *g,
    int64_t count, int64_t n)
{
  for (int64_t i = 0; i < count; i++, dx += n, x += n) {
    const line zero = { 0 }, yi = zero + (int8_t)y[i], gi = zero + (int8_t)g[i];
    int64_t j = 0;
    for (; j + WIDTH <= n; j += WIDTH) *(line *)(dx + j) = (line)(load_line(x + j, 0) == yi) & gi;
    for (; j < n; j++) dx[j] = x[j] == y[i] ? g[i] : 0;
  }
}

static void equal_cols(uint8_t *dx, const uint8_t *x, const uint8_t *y, const uint8_t *g,
    int64_t count, int64_t n)
{
  for (int64_t i = 0; i < count; i++, dx += n, x += n) {
    int64_t j = 0;
    for (; j + WIDTH <= n; j += WIDTH)
      *(line *)(dx + j) =
          (line)(load_line(x + j, 0) == load_line(y + j, 0)) & load_line(g + j, 0);
    for (; j < n; j++) dx[j] = x[j] == y[j] ? g[j] : 0;
  }
}

/* -- the tables -------------------------------------------------------------------------------- */

/* Functions of rows are compiled for each type, which makes short rows faster; functions of columns
** serve both types. */
#define FUNCTION(f, CALL) \
static void f(accumulator *acc, const void *x, const void *centre, int64_t count, int64_t stride, \
    int64_t n) \
{ \
  (void)centre; \
  CALL; \
}
#define COLUMNS(f, CALL) \
static __attribute__((noinline)) void f(int bit, accumulator *acc, const void *x, \
    const void *centre, int64_t count, int64_t stride, int64_t n) \
{ \
  (void)centre; \
  CALL; \
}
#define SUM(name, kind) \
COLUMNS(name##_columns, sum_cols(kind, (uint32_t)bit, acc, x, centre, count, stride, n)) \
FUNCTION(name##_cols_u8, name##_columns(0, acc, x, centre, count, stride, n)) \
FUNCTION(name##_cols_i8, name##_columns(0x80, acc, x, centre, count, stride, n)) \
FUNCTION(name##_rows_u8, sum_rows(kind, 0, acc, x, centre, count, stride, n)) \
FUNCTION(name##_rows_i8, sum_rows(kind, 0x80, acc, x, centre, count, stride, n))
#define EXTREME(name, least) \
COLUMNS(name##_columns, extreme_cols(least, bit, acc, x, count, stride, n)) \
FUNCTION(name##_cols_u8, name##_columns(0x80, acc, x, centre, count, stride, n)) \
FUNCTION(name##_cols_i8, name##_columns(0, acc, x, centre, count, stride, n)) \
FUNCTION(name##_rows_u8, extreme_rows(least, 0x80, acc, x, count, stride, n)) \
FUNCTION(name##_rows_i8, extreme_rows(least, 0, acc, x, count, stride, n))
SUM(sum, R_SUM)
SUM(abs, R_ABS)
SUM(square, R_SQUARE)
SUM(prod, R_PROD)
SUM(deviation, R_DEVIATION)
EXTREME(max, false)
EXTREME(min, true)

static void best_rows(
    int64_t *index, const void *xp, bool is_signed, bool least, int64_t count, int64_t n)
{
  const int flip = is_signed ? 0 : 0x80;
  const uint8_t *x = xp;
  if (least)
    for (int64_t i = 0; i < count; i++) index[i] = best_of_row(true, flip, x + i * n, n);
  else
    for (int64_t i = 0; i < count; i++) index[i] = best_of_row(false, flip, x + i * n, n);
}

static void best_cols(int64_t *index, const void *x, bool is_signed, bool least, int64_t count,
    int64_t stride, int64_t n)
{
  const int flip = is_signed ? 0 : 0x80;
  if (least)
    best_of_cols(true, flip, index, x, count, stride, n);
  else
    best_of_cols(false, flip, index, x, count, stride, n);
}

/* The loops in the order of R_*; integers have no NaN. */
#define ROW(f, type) \
  { sum##f##type, sum##f##type, abs##f##type, square##f##type, prod##f##type, prod##f##type, \
    max##f##type, min##f##type, deviation##f##type }
const struct byte_reducer JOIN(bytes, ISA) = {
  .rows = { ROW(_rows, _u8), ROW(_rows, _i8) }, .cols = { ROW(_cols, _u8), ROW(_cols, _i8) },
  .best_rows = best_rows, .best_cols = best_cols, .equal_rows = equal_rows,
  .equal_cols = equal_cols,
};
