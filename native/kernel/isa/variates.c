/* variates.c - standard variates for one instruction set: compiled once per set with -DISA=name.
** LANES elements go together, each in 64-bit lanes: a Philox round multiplies the low halves and
** leaves what it likes in the high ones, which are cut off at the end. The rest is plain loops
** that the compiler makes vectors of; elements do not meet and nothing is contracted, so every
** set gives the same bits.
*/
#include "kernel/variates.h"
#if defined __SSE2__
#include <immintrin.h>
#endif

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#if defined __AVX512F__
typedef uint64_t wide __attribute__((vector_size(64), may_alias));
#define LOW_PRODUCT(a, b) ((wide)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif defined __AVX2__
typedef uint64_t wide __attribute__((vector_size(32), may_alias));
#define LOW_PRODUCT(a, b) ((wide)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined __SSE2__
typedef uint64_t wide __attribute__((vector_size(16), may_alias));
#define LOW_PRODUCT(a, b) ((wide)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#else
typedef uint64_t wide __attribute__((vector_size(16), may_alias));
#define LOW_PRODUCT(a, b) (((a) & 0xffffffffu) * (b))
#endif

enum { LANES = 16, EACH = sizeof(wide) / 8, WIDES = LANES / EACH };
struct lanes { _Alignas(64) uint64_t w[4][LANES]; };  /* 32 bits in each */

/* Philox4x32-10 of LANES neighbouring elements, as base/philox.h has it for one. */
static inline void philox_lanes(struct lanes *p, const struct rng_key *k, uint64_t element)
{
  uint32_t k0 = (uint32_t)k->seed, k1 = (uint32_t)(k->seed >> 32);
  wide c0[WIDES], c1[WIDES], c2[WIDES], c3[WIDES], zero = { 0 }, lane = { 0 };
  wide m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
  for (int j = 0; j < EACH; j++) lane[j] = (uint64_t)j;
  for (int i = 0; i < WIDES; i++) {
    c0[i] = lane + (element + (uint64_t)(i * EACH));
    c1[i] = c0[i] >> 32;
    c2[i] = zero + (uint32_t)k->counter;
    c3[i] = zero + (k->node ^ (uint32_t)(k->counter >> 32) * 0x85ebca6bu);
  }
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int i = 0; i < WIDES; i++) {
      wide a = LOW_PRODUCT(c0[i], m0), b = LOW_PRODUCT(c2[i], m1);
      c0[i] = b >> 32 ^ c1[i] ^ k0;
      c1[i] = b;
      c2[i] = a >> 32 ^ c3[i] ^ k1;
      c3[i] = a;
    }
  for (int i = 0; i < WIDES; i++) {
    ((wide *)p->w[0])[i] = c0[i] & 0xffffffffu;
    ((wide *)p->w[1])[i] = c1[i] & 0xffffffffu;
    ((wide *)p->w[2])[i] = c2[i] & 0xffffffffu;
    ((wide *)p->w[3])[i] = c3[i] & 0xffffffffu;
  }
}

static inline double double_of(uint64_t bits)
{
  double d;
  memcpy(&d, &bits, 8);
  return d;
}
static inline uint64_t bits_of(double d)
{
  uint64_t b;
  memcpy(&b, &d, 8);
  return b;
}

/* A whole number below 2^52 as a double. */
static inline double whole(uint64_t n) { return double_of(0x4330000000000000u | n) - 0x1p52; }

/* The first 52 bits of two words as a double in [1, 2). */
static inline double one_and(uint64_t a, uint64_t b)
{
  return double_of(0x3ff0000000000000u | a << 20 | b >> 12);
}

/* ln(u) of a normal u: u = m 2^e with m in [0.71, 1.42), ln m = 2 atanh((m - 1) / (m + 1)) as a
** series; error < 2 ulp. */
static inline double ln(double u)
{
  uint64_t bits = bits_of(u) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  double e = whole(bits >> 52) - 1023;
  double m = double_of((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1) / (m + 1), q = s * s;
  double p = 1.0 / 21;
  p = p * q + 1.0 / 19;
  p = p * q + 1.0 / 17;
  p = p * q + 1.0 / 15;
  p = p * q + 1.0 / 13;
  p = p * q + 1.0 / 11;
  p = p * q + 1.0 / 9;
  p = p * q + 1.0 / 7;
  p = p * q + 1.0 / 5;
  p = p * q + 1.0 / 3;
  return e * 0.6931471805599453 + (2 * s + 2 * s * q * p);
}

/* cos(2 pi v) for v in [0, 1): sine of the angle's distance from a quarter turn, at most pi / 2,
** as a series. */
static inline double cos_turn(double v)
{
  double x = (fabs(v - 0.5) - 0.25) * 6.283185307179586, q = x * x;
  double p = 1.0 / 51090942171709440000.0;
  p = p * q - 1.0 / 121645100408832000.0;
  p = p * q + 1.0 / 355687428096000.0;
  p = p * q - 1.0 / 1307674368000.0;
  p = p * q + 1.0 / 6227020800.0;
  p = p * q - 1.0 / 39916800.0;
  p = p * q + 1.0 / 362880.0;
  p = p * q - 1.0 / 5040.0;
  p = p * q + 1.0 / 120.0;
  p = p * q - 1.0 / 6.0;
  return x + x * q * p;
}

static inline double unit24(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return whole(a >> 8) * 0x1p-24;
}

static inline double unit53(
    uint64_t a, uint64_t b, uint64_t c, uint64_t d) /* unit_f64, of two whole parts */
{
  return whole(a >> 5) * 0x1p-27 + whole((a & 31) << 21 | b >> 11) * 0x1p-53;
}

static inline double normal(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return sqrt(-2 * ln(2 - one_and(a, b))) * cos_turn(one_and(c, d) - 1);
}

static inline double exponential(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return 0 - ln(2 - one_and(a, b));
}

/* LOOP(name): z[i] = name of the words of element + i */
#define LOOP(name) \
  static inline void name##_lanes(double *restrict z, const struct rng_key *k, uint64_t element) \
  { \
    struct lanes p; \
    philox_lanes(&p, k, element); \
    for (int i = 0; i < LANES; i++) z[i] = name(p.w[0][i], p.w[1][i], p.w[2][i], p.w[3][i]); \
  } \
  static void name##_all(double *z, const struct rng_key *k, uint64_t element, int64_t n) \
  { \
    double rest[LANES]; \
    int64_t i = 0; \
    for (; i + LANES <= n; i += LANES) name##_lanes(z + i, k, element + (uint64_t)i); \
    if (i == n) return; \
    name##_lanes(rest, k, element + (uint64_t)i); \
    memcpy(z + i, rest, sizeof *z * (size_t)(n - i)); \
  }
LOOP(unit24)
LOOP(unit53)
LOOP(normal)
LOOP(exponential)

#define STORE(name, REAL) \
  static void name(void *out, const double *restrict z, double offset, double scale, double limit, \
      int64_t n) \
  { \
    REAL *restrict y = out; \
    for (int64_t i = 0; i < n; i++) { \
      REAL v = (REAL)(offset + scale * z[i]); \
      y[i] = v > (REAL)limit ? (REAL)limit : v; \
    } \
  }
STORE(store_f32, float)
STORE(store_f64, double)

const struct variates JOIN(variates, ISA) = { unit24_all, unit53_all, normal_all, exponential_all,
                                              store_f32, store_f64 };
