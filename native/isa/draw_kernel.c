/* draw_kernel.c - standard variates for one instruction set: compiled once per set with -DISA=name. Plain loops over LANES
** elements that the compiler makes vectors of; no sum crosses elements and nothing is contracted, so every set gives the
** same bits.
*/
#include "draw.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

enum { LANES = 16 };
struct lanes { uint32_t w[4][LANES]; };

/* Philox4x32-10 of LANES neighbouring elements, as random.h has it for one. */
static inline void philox_lanes(struct lanes *p, const struct key *k, uint64_t element)
{
  uint32_t k0 = (uint32_t)k->seed, k1 = (uint32_t)(k->seed >> 32);
  uint32_t c3 = k->node ^ (uint32_t)(k->counter >> 32) * 0x85ebca6bu;
  for (int i = 0; i < LANES; i++) {
    uint64_t e = element + (uint64_t)i;
    p->w[0][i] = (uint32_t)e, p->w[1][i] = (uint32_t)(e >> 32), p->w[2][i] = (uint32_t)k->counter, p->w[3][i] = c3;
  }
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int i = 0; i < LANES; i++) {
      uint64_t a = (uint64_t)0xD2511F53u * p->w[0][i], b = (uint64_t)0xCD9E8D57u * p->w[2][i];
      p->w[0][i] = (uint32_t)(b >> 32) ^ p->w[1][i] ^ k0;
      p->w[2][i] = (uint32_t)(a >> 32) ^ p->w[3][i] ^ k1;
      p->w[1][i] = (uint32_t)b;
      p->w[3][i] = (uint32_t)a;
    }
}

static inline double double_of(uint64_t bits) { double d; memcpy(&d, &bits, 8); return d; }
static inline uint64_t bits_of(double d) { uint64_t b; memcpy(&b, &d, 8); return b; }

/* 52 bits as a double in [1, 2). */
static inline double one_and(uint32_t a, uint32_t b) { return double_of(0x3ff0000000000000u | ((uint64_t)a << 20) | (b >> 12)); }

/* ln(u) of a normal u: u = m 2^e with m in [0.71, 1.42), ln m = 2 atanh((m - 1) / (m + 1)) as a series; error < 2 ulp. */
static inline double ln(double u)
{
  uint64_t bits = bits_of(u) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  double e = double_of(0x4330000000000000u | bits >> 52) - (0x1p52 + 1023);
  double m = double_of((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1) / (m + 1), q = s * s;
  double p = 1.0 / 21;
  p = p * q + 1.0 / 19; p = p * q + 1.0 / 17; p = p * q + 1.0 / 15; p = p * q + 1.0 / 13; p = p * q + 1.0 / 11;
  p = p * q + 1.0 / 9;  p = p * q + 1.0 / 7;  p = p * q + 1.0 / 5;  p = p * q + 1.0 / 3;
  return e * 0.6931471805599453 + (2 * s + 2 * s * q * p);
}

/* cos(2 pi v) for v in [0, 1): sin of the angle's distance from a quarter turn, at most pi / 2, as a series. */
static inline double cos_turn(double v)
{
  double x = (fabs(v - 0.5) - 0.25) * 6.283185307179586, q = x * x;
  double p = 1.0 / 51090942171709440000.0;
  p = p * q - 1.0 / 121645100408832000.0; p = p * q + 1.0 / 355687428096000.0; p = p * q - 1.0 / 1307674368000.0;
  p = p * q + 1.0 / 6227020800.0; p = p * q - 1.0 / 39916800.0; p = p * q + 1.0 / 362880.0; p = p * q - 1.0 / 5040.0;
  p = p * q + 1.0 / 120.0; p = p * q - 1.0 / 6.0;
  return x + x * q * p;
}

static inline double unit24(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return (double)(int32_t)(a >> 8) * 0x1p-24; }

static inline double unit53(uint32_t a, uint32_t b, uint32_t c, uint32_t d)            /* unit_f64, of two whole parts */
{
  return (double)(int32_t)(a >> 5) * 0x1p-27 + (double)(int32_t)((a & 31) << 21 | b >> 11) * 0x1p-53;
}

static inline double normal(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
  return sqrt(-2 * ln(2 - one_and(a, b))) * cos_turn(one_and(c, d) - 1);
}

static inline double exponential(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return 0 - ln(2 - one_and(a, b)); }

/* LOOP(name): z[i] = name of the words of element + i */
#define LOOP(name) \
  static inline void name##_lanes(double *restrict z, const struct key *k, uint64_t element) \
  { \
    struct lanes p; \
    philox_lanes(&p, k, element); \
    for (int i = 0; i < LANES; i++) z[i] = name(p.w[0][i], p.w[1][i], p.w[2][i], p.w[3][i]); \
  } \
  static void name##_all(double *z, const struct key *k, uint64_t element, int64_t n) \
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
  static void name(void *out, const double *restrict z, double offset, double scale, double limit, int64_t n) \
  { \
    REAL *restrict y = out; \
    for (int64_t i = 0; i < n; i++) { \
      REAL v = (REAL)(offset + scale * z[i]); \
      y[i] = v > (REAL)limit ? (REAL)limit : v; \
    } \
  }
STORE(store_f32, float)
STORE(store_f64, double)

const struct draws JOIN(draws, ISA) = { unit24_all, unit53_all, normal_all, exponential_all, store_f32, store_f64 };
