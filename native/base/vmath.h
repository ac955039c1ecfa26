/* vmath.h - the real functions of pointwise programs for float32 and float64, as t_NAME(x) on
** either type.
**
** Those that training spends its time in are branch-free polynomials, which the compiler turns
** into vector code inside a loop: exp, log, sigmoid, tanh in both types; softrelu, expm1, log1p,
** log2, log10, sin and cos of float32 compute in float64. All stay within two units in the last
** place, but sigmoid of float32 within 2.4 and normcdf within 5.5, where that is a normal number;
** zeros, infinities and NaN come out as in C.
** Multiplications and additions are never contracted: every instruction set gives the same bits.
** Coefficients: interpolation at Chebyshev nodes, computed with 50 digits. r, k: x = k ln 2 + r
** with |r| <= ln 2 / 2.
*/
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

union f32 { float f; uint32_t u; };
union f64 { double f; uint64_t u; };
static inline float bits_f32(uint32_t u)
{
  union f32 v = { .u = u };
  return v.f;
}
static inline double bits_f64(uint64_t u)
{
  union f64 v = { .u = u };
  return v.f;
}
static inline uint32_t of_f32(float f)
{
  union f32 v = { f };
  return v.u;
}
static inline uint64_t of_f64(double f)
{
  union f64 v = { f };
  return v.u;
}

/* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
#define ROUND_F32 12582912.0f
#define ROUND_F64 6755399441055744.0                  /* 1.5 * 2^52 */
#define LN2 0.693147180559945309417
#define LOG2E 1.44269504088896340736

/* -- exp --------------------------------------------------------------------------------------- */

static inline float exp_rest(float t, uint32_t *k) /* e^r - 1 */
{
  float shifted = t * (float)LOG2E + ROUND_F32, whole = shifted - ROUND_F32;
  float r = (t - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float q = 1.393365000e-3f + r * 1.989099082e-4f;
  q = 4.166646493e-2f + r * (8.333310925e-3f + r * q);
  q = 0.5f + r * (0.1666666668f + r * q);
  *k = of_f32(shifted) - of_f32(ROUND_F32);
  return r + r * r * q;
}

static inline float exp_within(float t) /* t in [-104, 89] */
{
  uint32_t k;
  float p = 1.0f + exp_rest(t, &k);
  uint32_t n = k + 256u, half = n >> 1; /* two factors: the smallest results round once */
  return p * bits_f32((half - 128u + 127u) << 23) * bits_f32((n - half - 128u + 127u) << 23);
}

static inline float exp_f32(float x)
{
  float t = x > 89.0f ? 89.0f : x; /* beyond: infinity and zero all the same; NaN stays */
  return exp_within(t < -104.0f ? -104.0f : t);
}

/* Returns e^x of x <= 0, as in a softmax: one factor, a shorter polynomial (1e-8), and 0 for
** results that would be denormal. */
static inline float exp_down_f32(float x)
{
  const float round = ROUND_F32 + 127.0f; /* leaves the result's exponent in the low bits */
  float t = x < -86.0f ? -86.0f : x;
  float shifted = t * (float)LOG2E + round, k = shifted - round;
  float r = (t - k * 0.693359375f) + k * 2.12194440e-4f;
  float q = 8.363173075e-3f + r * 1.392617612e-3f;
  q = 0.1666657703f + r * (4.166655466e-2f + r * q);
  q = 0.5f + r * q;
  float p = 1.0f + (r + r * r * q), y = p * bits_f32(of_f32(shifted) << 23);
  return x < -86.0f ? 0.0f : y;
}

/* Returns e^r - 1 to 1e-11, and 2^k: for float32 results. |x| <= 700. */
static inline double exp_parts(double x, double *scale)
{
  double shifted = x * LOG2E + ROUND_F64, k = shifted - ROUND_F64, r = x - k * LN2;
  double q = 1.3888854035666709684e-3 +
      r * (1.9899285575896282316e-4 + r * 2.4859589834589054433e-5);
  q = 0.5 +
      r *
          (0.16666666719028934892 +
              r * (4.1666666719012259465e-2 + r * (8.3332984698005894156e-3 + r * q)));
  *scale = bits_f64((of_f64(shifted) - of_f64(ROUND_F64) + 1023u) << 52);
  return r + r * r * q;
}

static inline double exp_half(double x) /* e^x to 1e-11 */
{
  double s, p = exp_parts(x, &s);
  return s + s * p;
}

static inline double clamp_real(double x, double lo, double hi)
{
  x = x > hi ? hi : x;
  return x < lo ? lo : x;
}
static inline float keep_nan(float x, float y) { return x != x ? x : y; }

static inline float expm1_f32(float x)
{
  double s, p = exp_parts(clamp_real((double)x, -50.0, 100.0), &s);
  float y = (float)(s * p + (s - 1.0));
  return x == 0 ? x : keep_nan(x, y);
}

/* Returns e^r - 1 - r to 2^-59 of e^r. */
static inline double exp_tail(double r)
{
  double q = 2.755725540020642443e-6 +
      r *
          (2.7557273641310295328e-7 +
              r * (2.5105217004720745164e-8 + r * 2.0914686968086877233e-9));
  q = 1.3888888888883748305e-3 +
      r * (1.9841269874820625271e-4 + r * (2.4801587325547741216e-5 + r * q));
  q = 0.16666666666666670991 +
      r * (4.1666666666666669755e-2 + r * (8.3333333333261351258e-3 + r * q));
  return r * r * (0.5 + r * q);
}

/* Returns r, as high + low; *n: k + 4096. */
static inline double exp_reduce(double t, double *low, uint64_t *n)
{
  double shifted = t * LOG2E + ROUND_F64, k = shifted - ROUND_F64;
  double high = t - k * 6.93147180369123816490e-1; /* 32 bits of ln 2: exact */
  *low = k * 1.90821492927058770002e-10;
  *n = of_f64(shifted) - of_f64(ROUND_F64) + 4096u;
  return high;
}

/* Computes e^x = *p + *lost, times 2^*n (less 4096); lost: what rounding p has dropped. */
static inline double exp_wide(double x, double *lost, uint64_t *n)
{
  double low, high = exp_reduce(clamp_real(x, -746.0, 710.0), &low, n),
              w = high + (exp_tail(high - low) - low), p = 1.0 + w;
  *lost = w - (p - 1.0);
  return p;
}

static inline double scale_by(
    double p, uint64_t n) /* p 2^(n - 4096) in two factors: denormals round once */
{
  uint64_t half = n >> 1;
  return p * bits_f64((half - 2048u + 1023u) << 52) * bits_f64((n - half - 2048u + 1023u) << 52);
}

static inline double exp_f64(double x)
{
  uint64_t n;
  double lost, p = exp_wide(x, &lost, &n);
  return scale_by(p, n);
}

static inline double exp_down_f64(double x) { return exp_f64(x); }

static inline double expm1_wide(double x, double *lost) /* x in [-80, 709.9] */
{
  uint64_t n;
  double low, high = exp_reduce(x, &low, &n), w = exp_tail(high - low) - low, p = high + w;
  double s = bits_f64((n - 4096u + 1022u) << 52); /* 2^(k - 1): 2^1024 would be infinite */
  double base = s - 0.5, sum = base + s * p;
  *lost = 2 * (s * (w - (p - high)) + (s * p - (sum - base)));
  return 2 * sum;
}

static inline double expm1_f64(double x)
{
  double lost, y = expm1_wide(clamp_real(x, -80.0, 709.9), &lost);
  return x == 0 ? x : x > 709.9 ? (double)INFINITY : x != x ? x : y;
}

/* -- log --------------------------------------------------------------------------------------- */

static inline float log_f32(float x)
{
  float big = x < 1.17549435e-38f ? x * 33554432.0f : x; /* denormals: times 2^25 */
  uint32_t u = of_f32(big),
           e = u - 0x3f3504f3u; /* the exponent so that the mantissa is in [sqrt 1/2, sqrt 2) */
  float m = bits_f32(u - (e & 0xff800000u)), f = m - 1.0f;
  float k = (float)((int32_t)((e >> 23) ^ 0x100u) - 0x100) - (x < 1.17549435e-38f ? 25.0f : 0.0f);
  float q = 0.1168541992f + f * (-0.1147973385f + f * 0.06971611471f);
  q = -0.1666780232f + f * (0.1424905765f + f * (-0.1242568733f + f * q));
  q = 0.3333333118f + f * (-0.2499999696f + f * (0.2000071575f + f * q));
  float y = k * -2.12194440e-4f + f * f * f * q;
  y = (f - (0.5f * f * f - y)) + k * 0.693359375f;
  y = x == 0 ? -INFINITY : x < 0 ? NAN : y;
  return x == INFINITY || x != x ? x : y;
}

/* Returns ln x to 1e-11 for normal x > 0. */
static inline double log_half(double x)
{
  uint64_t u = of_f64(x), e = (u - 0x3fe6a09e00000000u) & 0xfff0000000000000u;
  double m = bits_f64(u - e);
  double k = bits_f64((((e >> 52) + 1024u) & 0xfffu) | 0x4330000000000000u) -
      (4503599627370496.0 + 1024.0);
  double s = (m - 1.0) / (m + 1.0), z = s * s;
  double q = 0.28571755535032942409 + z * (0.2219133742806578374 + z * 0.19363884986633199356);
  q = 0.66666666667378685659 + z * (0.39999998792441688583 + z * q);
  return k * LN2 + s * (2.0 + z * q);
}

/* Returns ln x times a factor: log2 and log10 of float32. */
static inline float log_by(float x, double by)
{
  float y = (float)(log_half((double)(x > 0 ? x : 1.0f)) * by);
  y = x == 0 ? -INFINITY : x < 0 ? NAN : y;
  return x == INFINITY || x != x ? x : y;
}
static inline float log2_f32(float x)  { return log_by(x, LOG2E); }
static inline float log10_f32(float x) { return log_by(x, 0.434294481903251827651); }

static inline double log1p_half(double x) /* x > -1 */
{
  double u = 1.0 + x;
  return log_half(u) + (x - (u - 1.0)) / u; /* what rounding u has dropped */
}

static inline float log1p_f32(float x)
{
  float y = (float)log1p_half(x > -1.0f && x < INFINITY ? (double)x : 1.0);
  y = x == 0 ? x : x == -1.0f ? -INFINITY : x < -1.0f ? NAN : y;
  return x == INFINITY || x != x ? x : y;
}

static inline double log_f64(double x)
{
  double big = x < 2.2250738585072014e-308 ? x * 18014398509481984.0
                                           : x; /* denormals: times 2^54 */
  uint64_t u = of_f64(big), e = (u - 0x3fe6a09e667f3bcdu) & 0xfff0000000000000u;
  double f = bits_f64(u - e) - 1.0, less = x < 2.2250738585072014e-308 ? 54.0 : 0.0;
  double k = bits_f64((((e >> 52) + 1024u) & 0xfffu) | 0x4330000000000000u) -
      (4503599627370496.0 + 1024.0) - less;
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double q = 0.15386244737621666606 + z * (0.13268638369266823879 + z * 0.1308803485092755383);
  q = 0.28571428570799785031 + z * (0.22222222392581045097 + z * (0.18181795547521136235 + z * q));
  q = z * (0.66666666666666666463 + z * (0.40000000000000883236 + z * q));
  double y = k * 6.93147180369123816490e-1 -
      ((h - (s * (h + q) + k * 1.90821492927058770002e-10)) - f);
  y = x == 0 ? -(double)INFINITY : x < 0 ? (double)NAN : y;
  return x == (double)INFINITY || x != x ? x : y;
}

/* -- sigmoid, tanh, softrelu ------------------------------------------------------------------- */

static inline float sigmoid_f32(float x)
{
  float t = x < 0 ? x : -x, e = exp_within(t < -104.0f ? -104.0f : t);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

static inline double sigmoid_f64(double x)
{
  uint64_t n;
  double lost, p = exp_wide(x < 0 ? x : -x, &lost, &n), e = scale_by(p, n);
  double y = (x < 0 ? e : 1.0) / (1.0 + e),
         rest = lost * (2.0 - p); /* relative to y: 1 / p is nearly 2 - p */
  return x < 0 ? y + y * (rest / (1.0 + e)) : y;
}

static inline float tanh_f32(float x) /* (e^2a - 1) / (e^2a + 1); of small a a polynomial */
{
  uint32_t k;
  float a = x < 0 ? -x : x, t = a + a, rest = exp_rest(t > 20.0f ? 20.0f : t, &k);
  float power = bits_f32((k + 127u) << 23), e = power * rest + (power - 1.0f), z = x * x;
  float p = -5.392003542e-2f + z * 2.071490296e-2f;
  p = -0.333333332f + z * (0.1333326844f + z * p);
  float y = a < 0.26f ? a + a * (z * p) : e / (e + 2.0f);
  return bits_f32((of_f32(y) & 0x7fffffffu) | (of_f32(x) & 0x80000000u));
}

static inline double tanh_f64(double x)
{
  double a = x < 0 ? -x : x, lost, t = expm1_wide(clamp_real(a + a, 0.0, 44.0), &lost);
  double y = t / (t + 2.0), rest = 1.0 - y;
  y += 0.5 * rest * rest * lost;
  return x != x ? x : x == 0 ? x : x < 0 ? -y : y;
}

static inline float softrelu_f32(float x) /* ln(1 + e^x) */
{
  double a = x < 0 ? (double)x : -(double)x, e = exp_half(clamp_real(a, -110.0, 0.0));
  double y = log1p_half(e) + (x > 0 ? (double)x : 0.0);
  return keep_nan(x, (float)y);
}
static inline double softrelu_f64(double x)
{
  return (x > 0 ? x : 0.0) + log1p(exp(x > 0 ? -x : x));
}

/* -- sin, cos, erf ----------------------------------------------------------------------------- */

/* largest |x| that two parts of pi / 2 reduce exactly enough for float32 */
enum { TURN_LIMIT = 100000 };

/* Returns the sine of x plus `quarter` quarter turns: 0 is the sine of x, 1 its cosine.
** |x| <= TURN_LIMIT. */
static inline double sin_quarter(double x, uint64_t quarter)
{
  double shifted = x * 0.636619772367581343076 + ROUND_F64, k = shifted - ROUND_F64;
  double r = (x - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11, z = r * r;
  uint64_t n = of_f64(shifted) - of_f64(ROUND_F64) + quarter;
  double s = 8.3333333310611600736e-3 +
      z *
          (-1.9841266899437398592e-4 +
              z * (2.7555985625200862126e-6 + z * -2.4805145406747431788e-8));
  double c = 4.1666666637161582968e-2 +
      z *
          (-1.3888885068618751797e-3 +
              z * (2.4799855304504666675e-5 + z * -2.7236503270855152555e-7));
  s = r + r * (z * (-0.16666666666663858042 + z * s));
  c = 1.0 + z * (-0.49999999999963529207 + z * c);
  double y = n & 1 ? c : s;
  return n & 2 ? -y : y;
}
static inline float sin_small(float x) { return x == 0 ? x : (float)sin_quarter((double)x, 0); }
static inline float cos_small(float x) { return (float)sin_quarter((double)x, 1); }

/* Returns erf x. Below 1: x + x P(x^2); from 1 on: 1 - e^Q(x), where an error of Q counts little,
** since e^Q is small beside 1. Polynomials of the least largest error, 1.2e-9 and 2e-11. Within 1.6
** units in the last place (1.501 is the worst of a third of all float32). */
static inline float erf_f32(float x)
{
  float a = x < 0 ? -x : x, z = a * a;
  a = a > 4.0f ? 4.0f : a;
  float p = 5.18953545e-3f + z * (-8.02084227e-4f + z * 7.88912283e-5f);
  p = 0.128379166f + z * (-0.376126271f + z * (0.112836002f + z * (-2.68544446e-2f + z * p)));
  float q = -4.20455627e-3f + a * (4.41335302e-4f + a * -2.16867633e-5f);
  q = -0.633219919f + a * (-0.108418551f + a * (2.52082408e-2f + a * q));
  q = 1.88037054e-4f + a * (-1.12957841f + a * q);
  float y = a < 1.0f ? a + a * p : 1.0f - exp_down_f32(q);
  return keep_nan(x, x < 0 ? -y : y);
}

/* Returns the distribution function of the normal law. With a = |x| and s = 1 / (a + 3), its tail
** is s e^(-a^2 / 2) times a polynomial in (a - 3) s, to 3.5e-8 of itself; a^2 is taken in two
** parts, which are exact enough for e^. Within 5.5 units in the last place of float32 below 0
** (measured: 5.06, near -0.675), 3 above. From 12.949952, where the tail is less than the
** least normal number, it is 0: products with denormal numbers are slow (a convolution of such data
** took 1,158 us, of normal numbers 167; AVX-512, 2026-11-28). */
static inline float normcdf_f32(float x)
{
  float a = bits_f32(of_f32(x) & 0x7fffffffu);
  float is_normal = a < 12.949952f ? 1.0f : 0.0f;
  a = a < 12.949952f ? a : 12.949952f;
  float s = 1.0f / (a + 3.0f), t = (a - 3.0f) * s;
  float p = 1.03679337e-3f + t * (-9.364600172e-4f + t * (-2.243728605e-4f + t * 3.704060067e-5f));
  p = -4.725811783e-2f + t * (-1.046852512e-2f + t * (6.93562193e-3f + t * p));
  p = 0.7290836817f + t * (-0.5093321681f + t * (0.2300183257f + t * p));
  p *= s * is_normal;
  const float round = ROUND_F32 + 254.0f;         /* leaves k + 254 in the low bits */
  float near = bits_f32(of_f32(a) & 0xfffff000u); /* 12 bits: its square is exact */
  float high = near * near, low = (a - near) * (a + near);
  float shifted = (high + low) * (float)(-0.5 * LOG2E) + round, k = shifted - round;
  float r = -0.5f * (((high + k * 1.38671875f) + low) - k * 4.24388880e-4f); /* -a^2 / 2 - k ln 2 */
  float q = 8.363173075e-3f + r * 1.392617612e-3f;
  q = 0.1666657703f + r * (4.166655466e-2f + r * q);
  float rest = r + r * r * (0.5f + r * q); /* e^r - 1 */
  uint32_t n = of_f32(shifted) - of_f32(ROUND_F32), half = n >> 1;
  float tail = (p + p * rest) * bits_f32(half << 23) * bits_f32((n - half) << 23);
  return keep_nan(x, x < 0 ? tail : 1.0f - tail);
}

/* -- through the C library, one element at a time ---------------------------------------------- */

/* float32 is computed in float64. float64 is computed in long double where the library's float64 is
** off by more than two units in the last place. */

static inline float sqrt_f32(float x) { return sqrtf(x); }
#define VIA_DOUBLE(f, call) static inline float f##_f32(float x) { return (float)call((double)x); }
#define VIA_LONG(f, call) \
  VIA_DOUBLE(f, call) \
  static inline double f##_f64(double x) { return (double)call##l((long double)x); }
#define AS_IT_IS(f, call) \
  VIA_DOUBLE(f, call) \
  static inline double f##_f64(double x) { return call(x); }
AS_IT_IS(tan, tan) AS_IT_IS(asin, asin) AS_IT_IS(acos, acos) AS_IT_IS(atan, atan)
VIA_LONG(cbrt, cbrt) VIA_LONG(sinh, sinh) VIA_LONG(cosh, cosh) VIA_LONG(asinh, asinh)
VIA_LONG(acosh, acosh) VIA_LONG(atanh, atanh)
VIA_LONG(gamma, tgamma)
static inline double sqrt_f64(double x) { return sqrt(x); }
static inline double log1p_f64(double x) { return log1p(x); }
static inline double log2_f64(double x) { return log2(x); }
static inline double log10_f64(double x) { return log10(x); }
static inline double sin_f64(double x) { return sin(x); }
static inline double cos_f64(double x) { return cos(x); }
static inline double erf_f64(double x) { return erf(x); }
/* Returns half of erfc(-x / sqrt 2). What rounding drops of its argument s changes it by 2 s of
** itself. */
static inline double normcdf_f64(double x)
{
  const double high = -0.70710678118654757, low = 4.8336466567264565e-17;
  double s = x * high, lost = fma(x, high, -s) + x * low, y = 0.5 * erfc(s);
  return s > 1 && s < 27 ? y - y * ((2 * s + 1 / s) * lost) : y;
}
static inline float  sin_f32(float x) { return sinf(x); }
static inline float  cos_f32(float x) { return cosf(x); }
static inline float gammaln_f32(float x)
{
  int sign;
  return (float)lgamma_r((double)x, &sign);
}
static inline double gammaln_f64(double x)
{
  int sign;
  return (double)lgammal_r((long double)x, &sign);
}
static inline float  pow_f32(float a, float b) { return powf(a, b); }
static inline double pow_f64(double a, double b) { return pow(a, b); }
static inline float  hypot_f32(float a, float b) { return hypotf(a, b); }
static inline double hypot_f64(double a, double b) { return hypot(a, b); }

/* Returns psi(x): reflected to x > 0, moved up to 12 where the asymptotic series has settled. Poles
** (0, -1, ...) are NaN, as are -Inf and NaN. */
static inline long double digamma_long(long double x)
{
  long double sum = 0;
  if (x != x || x == -(long double)INFINITY || (x <= 0 && x == floorl(x))) return (long double)NAN;
  if (x < 0) {
    /* the tangent's argument without its turns; x itself where it is near 0 */
    long double part = x - roundl(x);
    sum = -3.14159265358979323846264338327950288L /
        tanl(3.14159265358979323846264338327950288L * part);
    x = 1 - x;
  }
  while (x < 12) sum -= 1 / x, x += 1;
  long double z = 1 / (x * x);
  long double tail = z *
      (1 / 12.0L -
          z *
              (1 / 120.0L -
                  z *
                      (1 / 252.0L -
                          z *
                              (1 / 240.0L -
                                  z *
                                      (1 / 132.0L -
                                          z *
                                              (691 / 32760.0L -
                                                  z * (1 / 12.0L - z * (3617 / 8160.0L))))))));
  return sum + logl(x) - 0.5L / x - tail;
}
static inline float  digamma_f32(float x)  { return (float)digamma_long(x); }
static inline double digamma_f64(double x) { return (double)digamma_long(x); }

/* Returns the inverse of erf: a start that is right to 2e-3 (Winitzki 2008), then steps of third
** order on erfc, which keeps its digits near 1. */
static inline long double erfinv_long(long double x)
{
  long double a = x < 0 ? -x : x;
  if (!(a < 1)) return a == 1 ? x * (long double)INFINITY : (long double)NAN;
  if (a == 0) return x;
  long double l = log1pl(-a * a), k = 4.330746750799873L + l / 2;
  long double y = sqrtl(sqrtl(k * k - l / 0.147L) - k);
  for (int i = 0; i < 3; i++) {
    long double wrong = a < 0.5L ? erfl(y) - a : (1 - a) - erfcl(y);
    long double step = wrong / (1.128379167095512573896158903121545172L * expl(-y * y));
    y -= step / (1 + y * step);
  }
  return x < 0 ? -y : y;
}
static inline float  erfinv_f32(float x)  { return (float)erfinv_long(x); }
static inline double erfinv_f64(double x) { return (double)erfinv_long(x); }

/* -- rounding and remainders ------------------------------------------------------------------- */

static inline float  abs_f32(float x)  { return bits_f32(of_f32(x) & 0x7fffffffu); }
static inline double abs_f64(double x) { return bits_f64(of_f64(x) & 0x7fffffffffffffffu); }
static inline float  floor_f32(float x)  { return floorf(x); }
static inline double floor_f64(double x) { return floor(x); }
static inline float  ceil_f32(float x)  { return ceilf(x); }
static inline double ceil_f64(double x) { return ceil(x); }
static inline float  trunc_f32(float x)  { return truncf(x); }
static inline double trunc_f64(double x) { return trunc(x); }
/* Halves away from zero: the largest number below one half cannot carry an odd integer up. */
static inline float  round_f32(float x)  { return truncf(x + copysignf(0x1.fffffep-2f, x)); }
static inline double round_f64(double x) { return trunc(x + copysign(0x1.fffffffffffffp-2, x)); }
/* Returns the nearest integer, halves down. */
static inline float rint_f32(float x)
{
  float f = floorf(x);
  return x - f > 0.5f ? f + 1.0f : f;
}
static inline double rint_f64(double x)
{
  double f = floor(x);
  return x - f > 0.5 ? f + 1.0 : f;
}
static inline float  fmod_f32(float a, float b) { return fmodf(a, b); }
static inline double fmod_f64(double a, double b) { return fmod(a, b); }
/* Returns the remainder with the sign of b; 0 where b is 0. */
static inline float mod_f32(float a, float b)
{
  float r = fmodf(a, b);
  return b == 0 ? 0.0f : r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline double mod_f64(double a, double b)
{
  double r = fmod(a, b);
  return b == 0 ? 0.0 : r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* t_NAME(x): by the type of x. */
#define EITHER(f, x, ...) _Generic((x), float: f##_f32, default: f##_f64)(x, ##__VA_ARGS__)
#define EITHER2(f, x, y) _Generic((x), float: f##_f32, default: f##_f64)(x, y)
#define t_abs(x) EITHER(abs, x)
#define t_floor(x) EITHER(floor, x)
#define t_ceil(x) EITHER(ceil, x)
#define t_trunc(x) EITHER(trunc, x)
#define t_round(x) EITHER(round, x)
#define t_rint(x) EITHER(rint, x)
#define t_mod(x, y) EITHER2(mod, x, y)
#define t_fmod(x, y) EITHER2(fmod, x, y)
#define t_pow(x, y) EITHER2(pow, x, y)
#define t_hypot(x, y) EITHER2(hypot, x, y)
#define t_sqrt(x) EITHER(sqrt, x)
#define t_exp(x) EITHER(exp, x)
#define t_log(x) EITHER(log, x)
#define t_sigmoid(x) EITHER(sigmoid, x)
#define t_tanh(x) EITHER(tanh, x)
#define t_softrelu(x) EITHER(softrelu, x)
#define t_expm1(x) EITHER(expm1, x)
#define t_log1p(x) EITHER(log1p, x)
#define t_log2(x) EITHER(log2, x)
#define t_log10(x) EITHER(log10, x)
#define t_sin(x) EITHER(sin, x)
#define t_cos(x) EITHER(cos, x)
#define t_erf(x) EITHER(erf, x)
#define t_normcdf(x) EITHER(normcdf, x)
#define t_cbrt(x) EITHER(cbrt, x)
#define t_tan(x) EITHER(tan, x)
#define t_asin(x) EITHER(asin, x)
#define t_acos(x) EITHER(acos, x)
#define t_atan(x) EITHER(atan, x)
#define t_sinh(x) EITHER(sinh, x)
#define t_cosh(x) EITHER(cosh, x)
#define t_asinh(x) EITHER(asinh, x)
#define t_acosh(x) EITHER(acosh, x)
#define t_atanh(x) EITHER(atanh, x)
#define t_erfinv(x) EITHER(erfinv, x)
#define t_gamma(x) EITHER(gamma, x)
#define t_gammaln(x) EITHER(gammaln, x)
#define t_digamma(x) EITHER(digamma, x)
