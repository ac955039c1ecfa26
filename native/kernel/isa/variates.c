/* variates.c - standard variates for one instruction set, compiled once per set with -DISA=name.
** LANES elements are computed together in 64-bit lanes: a Philox round multiplies the low halves;
** the high halves are arbitrary and are cut off at the end. The rest is plain loops that the
** compiler vectorises. Multiply and add are not contracted, so every set gives the same bits. */
#include "base/intrinsics.h"
#include "kernel/variates.h"

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
#elif defined TY_NEON
typedef uint64_t wide __attribute__((vector_size(16), may_alias));
#define LOW_PRODUCT(a, b) \
  ((wide)vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b))))
#else
typedef uint64_t wide __attribute__((vector_size(16), may_alias));
#define LOW_PRODUCT(a, b) (((a) & 0xffffffffu) * (b))
#endif

enum { LANES = 16, EACH = sizeof(wide) / 8, WIDES = LANES / EACH };
struct lanes { _Alignas(64) uint64_t w[4][LANES]; };  /* the low 32 bits of each count */

/* Computes Philox4x32-10 of LANES neighbouring elements, as base/philox.h does for one. */
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

/* LOOP(name): z[i] = law_name of the words of element + i */
#define LOOP(name) \
  static inline void name##_lanes(double *restrict z, const struct rng_key *k, uint64_t element) \
  { \
    struct lanes p; \
    philox_lanes(&p, k, element); \
    for (int i = 0; i < LANES; i++) \
      z[i] = law_##name(p.w[0][i], p.w[1][i], p.w[2][i], p.w[3][i]); \
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
