/* file_encodings.c - decodes elements in files of other engines: integers and floats that have no
** dtype here, and the blocks of GGUF.
**
** A block of GGUF has a scale, in some formats a minimum too, and a few bits per element. A "k"
** block has 256 elements in groups, each with a scale in units of the block's.
*/
#include <inttypes.h>
#include "tensor/file_encodings.h"

enum { BLOCK_ELEMENTS = 32, SUPER_BLOCK_ELEMENTS = 256 };

static uint16_t read_u16(const uint8_t *p)
{
  return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(const uint8_t *p)
{
  return read_u16(p) | (uint32_t)read_u16(p + 2) << 16;
}

static uint64_t read_u64(const uint8_t *p)
{
  return read_u32(p) | (uint64_t)read_u32(p + 4) << 32;
}

static float read_half(const uint8_t *p)
{
  return half_to_float(read_u16(p));
}

/* -- integers ---------------------------------------------------------------------------------- */

static int decode_i16(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) ((int32_t *)to)[i] = (int16_t)read_u16(from + 2 * i);
  return TY_OK;
}

static int decode_u16(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) ((int32_t *)to)[i] = read_u16(from + 2 * i);
  return TY_OK;
}

static int decode_i32(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = (int32_t)read_u32(from + 4 * i);
  return TY_OK;
}

static int decode_u32(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = read_u32(from + 4 * i);
  return TY_OK;
}

static int decode_u64(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint64_t x = read_u64(from + 8 * i);
    NEED(x <= INT64_MAX, TY_EVALUE, "the element %" PRIu64 " is larger than int64 holds", x);
    ((int64_t *)to)[i] = (int64_t)x;
  }
  return TY_OK;
}

/* -- 8-bit floats ------------------------------------------------------------------------------ */

/* Decodes numbers of 4 exponent and 3 mantissa bits, with one NaN and no infinity. As bits of a
** half the exponent is too small by 8, for which a factor makes up, also for subnormal numbers. */
static int decode_e4m3(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint16_t half = (uint16_t)((from[i] & 0x80) << 8 | (from[i] & 0x7f) << 7);
    bool nan = (from[i] & 0x7f) == 0x7f;
    ((float *)to)[i] = half_to_float(nan ? 0x7e00 : half) * (nan ? 1.0f : 256.0f);
  }
  return TY_OK;
}

/* Decodes bytes that are the upper halves of float16 numbers. */
static int decode_e5m2(void *to, const uint8_t *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) ((float *)to)[i] = half_to_float((uint16_t)(from[i] << 8));
  return TY_OK;
}

/* -- blocks of 32 ------------------------------------------------------------------------------ */

enum {
  Q4_0_BYTES = 18, Q4_1_BYTES = 20, Q5_0_BYTES = 22, Q5_1_BYTES = 24, Q8_0_BYTES = 34
};

/* Decodes 16 bytes that hold elements 0 to 15 in their low, 16 to 31 in their high halves; bit k of
** `fifth` is the fifth bit of element k. */
static void decode_nibbles(float *to, const uint8_t *nibbles, uint32_t fifth, float scale,
    float least)
{
  for (int k = 0; k < BLOCK_ELEMENTS; k++) {
    int low = k < BLOCK_ELEMENTS / 2 ? nibbles[k] & 15 : nibbles[k - BLOCK_ELEMENTS / 2] >> 4;
    to[k] = scale * (float)(low | (int)(fifth >> k & 1) << 4) + least;
  }
}

static int decode_q4_0(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q4_0_BYTES, x += BLOCK_ELEMENTS) {
    float scale = read_half(from);
    decode_nibbles(x, from + 2, 0, scale, -8 * scale);
  }
  return TY_OK;
}

static int decode_q4_1(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q4_1_BYTES, x += BLOCK_ELEMENTS)
    decode_nibbles(x, from + 4, 0, read_half(from), read_half(from + 2));
  return TY_OK;
}

static int decode_q5_0(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q5_0_BYTES, x += BLOCK_ELEMENTS) {
    float scale = read_half(from);
    decode_nibbles(x, from + 6, read_u32(from + 2), scale, -16 * scale);
  }
  return TY_OK;
}

static int decode_q5_1(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q5_1_BYTES, x += BLOCK_ELEMENTS)
    decode_nibbles(x, from + 8, read_u32(from + 4), read_half(from), read_half(from + 2));
  return TY_OK;
}

static int decode_q8_0(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q8_0_BYTES, x += BLOCK_ELEMENTS) {
    float scale = read_half(from);
    for (int k = 0; k < BLOCK_ELEMENTS; k++) x[k] = scale * (float)(int8_t)from[2 + k];
  }
  return TY_OK;
}

/* -- blocks of 256 ----------------------------------------------------------------------------- */

enum { GROUPS = SUPER_BLOCK_ELEMENTS / BLOCK_ELEMENTS };
enum { Q4_K_BYTES = 144, Q5_K_BYTES = 176, Q6_K_BYTES = 210 };
enum { K_SCALES = 4, K_BITS = 16 };                   /* bytes before the scales, before the bits */

/* Reads the 8 scales and 8 minima, 6 bits each: the first four of each in the low 6 bits of bytes 0
** to 3 and 4 to 7, whose high bits belong to the last four. */
static void read_scales(const uint8_t *p, int group, int *scale, int *least)
{
  if (group < 4) {
    *scale = p[group] & 63;
    *least = p[group + 4] & 63;
  }
  else {
    *scale = (p[group + 4] & 15) | (p[group - 4] >> 6) << 4;
    *least = p[group + 4] >> 4 | (p[group] >> 6) << 4;
  }
}

/* Decodes the groups of a block. Groups 2i and 2i + 1 are the low and high halves of 32 bytes.
** fifth: 32 bytes whose bits g are the fifth bits of group g, or NULL. */
static void decode_groups(float *to, const uint8_t *block, const uint8_t *fifth,
    const uint8_t *nibbles)
{
  float unit = read_half(block), least_unit = read_half(block + 2);
  for (int g = 0; g < GROUPS; g++) {
    int scale, least;
    read_scales(block + K_SCALES, g, &scale, &least);
    for (int k = 0; k < BLOCK_ELEMENTS; k++) {
      uint8_t byte = nibbles[g / 2 * BLOCK_ELEMENTS + k];
      int q = g % 2 ? byte >> 4 : byte & 15;
      if (fifth) q |= (fifth[k] >> g & 1) << 4;
      to[g * BLOCK_ELEMENTS + k] = unit * (float)scale * (float)q - least_unit * (float)least;
    }
  }
}

static int decode_q4_k(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q4_K_BYTES, x += SUPER_BLOCK_ELEMENTS)
    decode_groups(x, from, NULL, from + K_BITS);
  return TY_OK;
}

static int decode_q5_k(void *to, const uint8_t *from, int64_t n)
{
  for (float *x = to; n > 0; n--, from += Q5_K_BYTES, x += SUPER_BLOCK_ELEMENTS)
    decode_groups(x, from, from + K_BITS, from + K_BITS + BLOCK_ELEMENTS);
  return TY_OK;
}

/* Decodes blocks of 128 bytes with the low 4 bits, 64 bytes with the high 2 bits, 16 scales and the
** scale of these. Each half of a block is 4 rows of 32 elements: rows r and r + 2 share the bytes
** of their low bits, all four rows those of their high bits. */
static int decode_q6_k(void *to, const uint8_t *from, int64_t n)
{
  enum { HIGH = 128, SCALES = 192, UNIT = 208, HALF = SUPER_BLOCK_ELEMENTS / 2 };
  for (float *x = to; n > 0; n--, from += Q6_K_BYTES, x += SUPER_BLOCK_ELEMENTS) {
    float unit = read_half(from + UNIT);
    for (int i = 0; i < SUPER_BLOCK_ELEMENTS; i++) {
      int half = i / HALF, row = i % HALF / BLOCK_ELEMENTS, k = i % BLOCK_ELEMENTS;
      uint8_t low = from[half * 64 + row % 2 * BLOCK_ELEMENTS + k];
      uint8_t high = from[HIGH + half * BLOCK_ELEMENTS + k];
      int q = (row < 2 ? low & 15 : low >> 4) | (high >> 2 * row & 3) << 4;
      x[i] = unit * (float)(int8_t)from[SCALES + i / 16] * (float)(q - 32);
    }
  }
  return TY_OK;
}

/* -- all --------------------------------------------------------------------------------------- */

const struct file_encoding *file_encoding_find(int encoding)
{
  static const struct file_encoding rows[] = {
    [TY_FILE_PLAIN] = { .elements = 1 },
    [TY_FILE_I16]   = { "int16", TY_I32, 2, 1, decode_i16 },
    [TY_FILE_U16]   = { "uint16", TY_I32, 2, 1, decode_u16 },
    [TY_FILE_I32]   = { "int32", TY_I64, 4, 1, decode_i32 },
    [TY_FILE_U32]   = { "uint32", TY_I64, 4, 1, decode_u32 },
    [TY_FILE_U64]   = { "uint64", TY_I64, 8, 1, decode_u64 },
    [TY_FILE_E4M3]  = { "float8 (e4m3)", TY_F32, 1, 1, decode_e4m3 },
    [TY_FILE_E5M2]  = { "float8 (e5m2)", TY_F32, 1, 1, decode_e5m2 },
    [TY_FILE_Q4_0]  = { "Q4_0", TY_F32, Q4_0_BYTES, BLOCK_ELEMENTS, decode_q4_0 },
    [TY_FILE_Q4_1]  = { "Q4_1", TY_F32, Q4_1_BYTES, BLOCK_ELEMENTS, decode_q4_1 },
    [TY_FILE_Q5_0]  = { "Q5_0", TY_F32, Q5_0_BYTES, BLOCK_ELEMENTS, decode_q5_0 },
    [TY_FILE_Q5_1]  = { "Q5_1", TY_F32, Q5_1_BYTES, BLOCK_ELEMENTS, decode_q5_1 },
    [TY_FILE_Q8_0]  = { "Q8_0", TY_F32, Q8_0_BYTES, BLOCK_ELEMENTS, decode_q8_0 },
    [TY_FILE_Q4_K]  = { "Q4_K", TY_F32, Q4_K_BYTES, SUPER_BLOCK_ELEMENTS, decode_q4_k },
    [TY_FILE_Q5_K]  = { "Q5_K", TY_F32, Q5_K_BYTES, SUPER_BLOCK_ELEMENTS, decode_q5_k },
    [TY_FILE_Q6_K]  = { "Q6_K", TY_F32, Q6_K_BYTES, SUPER_BLOCK_ELEMENTS, decode_q6_k },
  };
  return encoding >= 0 && encoding < COUNT(rows) ? &rows[encoding] : NULL;
}
