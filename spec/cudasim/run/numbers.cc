/* numbers.cc - conversions of half types, and functions that the C library lacks. */
#include "run.h"

/* -- half types -------------------------------------------------------------------------------- */

extern "C" float cudasim_from_half(uint16_t h)
{
  unsigned e = h >> 10 & 31, m = h & 1023, sign = (unsigned)(h & 0x8000) << 16;
  if (e == 31) return __uint_as_float(sign | 0x7f800000 | m << 13);
  if (e) return __uint_as_float(sign | (e + 112) << 23 | m << 13);
  float f = (float)m * 0x1p-24f;
  return sign ? -f : f;
}

extern "C" uint16_t cudasim_to_half(float f)
{
  unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000) {                               /* subnormal: one addition rounds it */
    float g = __uint_as_float(a) + 0.5f;
    return (uint16_t)(sign | (__float_as_uint(g) - 0x3f000000));
  }
  a += 0xfff + (a >> 13 & 1);
  return (uint16_t)(sign | ((a - 0x38000000) >> 13));
}

extern "C" float cudasim_from_bfloat(uint16_t h) { return __uint_as_float((unsigned)h << 16); }

extern "C" uint16_t cudasim_to_bfloat(float f)
{
  unsigned u = __float_as_uint(f);
  return (uint16_t)(f != f ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* -- inverses of the error function ------------------------------------------------------------ */

/* Returns the inverse of erf. Starts with Winitzki's formula, then takes Newton's steps on erf, on
** erfc near the ends, where erf is close to 1. */
static double inverse(double x, double one_less)      /* 0 <= x < 1, one_less = 1 - x */
{
  double l = log(one_less * (1 + x)), k = 2 / (M_PI * 0.147) + l / 2;
  double y = sqrt(sqrt(k * k - l / 0.147) - k);
  for (int i = 0; i < 4; i++) {
    double error = x < 0.5 ? erf(y) - x : one_less - erfc(y);
    y -= error / (2 / sqrt(M_PI) * exp(-y * y) + error * y);
  }
  return y;
}

extern "C" double cudasim_erfinv(double x)
{
  double a = fabs(x);
  if (!(a < 1)) return a == 1 ? x * INFINITY : NAN;
  return copysign(a == 0 ? 0 : inverse(a, 1 - a), x);
}

extern "C" double cudasim_normcdfinv(double p)
{
  if (p > 0 && p < 0.25) return -sqrt(2.) * inverse(1 - 2 * p, 2 * p);
  return sqrt(2.) * cudasim_erfinv(2 * p - 1);
}
