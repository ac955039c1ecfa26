/* laws.h - random numbers of distributions, shared by C and CUDA. Each number is a function of
** (seed, counter, node, element) alone, made from the words of base/philox.h.
**
** Standard variates use only +, -, *, / and square roots of doubles, never contracted, so that all
** machines give equal bits: uniform on [0, 1), normal (mean 0, deviation 1: Box and Muller's
** cosine, from 52 + 52 bits), exponential (mean 1: minus the logarithm of 52 bits). The other laws
** use rejection, and machines agree in distribution only: gamma by Marsaglia and Tsang 2000,
** Poisson by Hoermann 1993 (PTRS); both negative binomial laws are Poisson numbers with a gamma
** distributed mean. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "base/philox.h"
#endif

struct rng_key { uint64_t seed, counter; uint32_t node; };

/* -- standard variates, of an element's first four words --------------------------------------- */

/* Returns the double whose bits are given. */
TY_DEVICE_FN double law_double_of(uint64_t bits)
{
  double d;
  memcpy(&d, &bits, 8);
  return d;
}

/* Returns the bits of a double. */
TY_DEVICE_FN uint64_t law_bits_of(double d)
{
  uint64_t b;
  memcpy(&b, &d, 8);
  return b;
}

/* Returns n, below 2^52, as a double. */
TY_DEVICE_FN double law_whole(uint64_t n)
{
  return law_double_of(0x4330000000000000u | n) - 0x1p52;
}

/* Returns the first 52 bits of two words as a double in [1, 2). */
TY_DEVICE_FN double law_one_and(uint64_t a, uint64_t b)
{
  return law_double_of(0x3ff0000000000000u | a << 20 | b >> 12);
}

/* Returns ln(u) of a normal u, with an error below 2 ulp: u = m 2^e with m in [0.71, 1.42), and
** ln m = 2 atanh((m - 1) / (m + 1)) as a series. */
TY_DEVICE_FN double law_ln(double u)
{
  uint64_t bits = law_bits_of(u) + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  double e = law_whole(bits >> 52) - 1023;
  double m = law_double_of((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
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

/* Returns cos(2 pi v) for v in [0, 1): the sine of the angle's distance from a quarter turn, which
** is at most pi / 2, as a series. */
TY_DEVICE_FN double law_cos_turn(double v)
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

/* Returns a uniform number on [0, 1) of 24 bits, which a float represents exactly. */
TY_DEVICE_FN double law_unit24(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return law_whole(a >> 8) * 0x1p-24;
}

/* Returns a uniform number on [0, 1) of 53 bits, which a double represents exactly. */
TY_DEVICE_FN double law_unit53(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return law_whole(a >> 5) * 0x1p-27 + law_whole((a & 31) << 21 | b >> 11) * 0x1p-53;
}

/* Returns a number of the normal law with mean 0 and deviation 1. */
TY_DEVICE_FN double law_normal(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return sqrt(-2 * law_ln(2 - law_one_and(a, b))) * law_cos_turn(law_one_and(c, d) - 1);
}

/* Returns a number of the exponential law with mean 1. */
TY_DEVICE_FN double law_exponential(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
  return 0 - law_ln(2 - law_one_and(a, b));
}

/* -- words of one element ---------------------------------------------------------------------- */

/* An unlimited sequence of random words of one element. */
struct element_stream {
  struct rng_key key;
  uint64_t element;                                   /* 2^40 more in each later block */
  struct philox p;                                    /* the current block of four words */
  int used;                                           /* words of `p` used so far, 0 .. 4 */
};

/* Returns the sequence of an element from its first word on. */
TY_DEVICE_FN struct element_stream stream_of_element(struct rng_key key, uint64_t element)
{
  struct element_stream s = { key, element, { { 0 } }, 4 };
  return s;
}

/* Returns the next word of a sequence. */
TY_DEVICE_FN uint32_t law_word(struct element_stream *s)
{
  if (s->used == 4) {
    s->p = philox(s->key.seed, s->key.counter, s->key.node, s->element);
    s->element += 1ull << 40; /* the next block */
    s->used = 0;
  }
  return s->p.w[s->used++];
}

/* Returns a uniform number on [0, 1) of 53 bits. */
TY_DEVICE_FN double law_unit(struct element_stream *s)
{
  uint32_t a = law_word(s), b = law_word(s);
  return unit_f64(a, b);
}

/* -- laws that reject -------------------------------------------------------------------------- */

/* Returns a number of the normal law with mean 0 and deviation 1 (Box and Muller). */
TY_DEVICE_FN double law_box_muller(struct element_stream *s)
{
  double radius = sqrt(-2 * log1p(-law_unit(s)));
  return radius * cos(6.283185307179586 * law_unit(s));
}

/* Returns a number of the gamma law with shape alpha and scale beta. */
TY_DEVICE_FN double law_gamma(struct element_stream *s, double alpha, double beta)
{
  double boost = 1, d, k;
  if (alpha < 1) boost = pow(1 - law_unit(s), 1 / alpha), alpha += 1;
  d = alpha - 1 / 3.0;
  k = 1 / sqrt(9 * d);
  for (;;) {
    double x = law_box_muller(s), v = 1 + k * x;
    if (v <= 0) continue;
    v = v * v * v;
    double u = 1 - law_unit(s); /* the first test implies the second one, and needs no logarithms */
    if (u < 1 - 0.0331 * x * x * x * x || log(u) < 0.5 * x * x + d - d * v + d * log(v))
      return boost * d * v * beta;
  }
}

/* Returns a Poisson number of small mean lam: counts uniform factors until their product is at most
** e^-lam. */
TY_DEVICE_FN double law_poisson_product(struct element_stream *s, double lam)
{
  double limit = exp(-lam), product = 1 - law_unit(s), n = 0;
  while (product > limit) product *= 1 - law_unit(s), n++;
  return n;
}

/* Returns ln(n!). */
TY_DEVICE_FN double law_ln_factorial(double n)
{
#ifdef TY_LN_GAMMA
  return TY_LN_GAMMA(n + 1);
#else
  int sign; /* lgamma writes a global variable */
  return lgamma_r(n + 1, &sign);
#endif
}

/* Returns a number of the Poisson law with mean lam. */
TY_DEVICE_FN double law_poisson(struct element_stream *s, double lam, double unused)
{
  if (!isfinite(lam)) return lam; /* a gamma number that overflowed */
  if (lam < 12) return law_poisson_product(s, lam);
  double b = 0.931 + 2.53 * sqrt(lam), a = -0.059 + 0.02483 * b;
  double inverse = 1.1239 + 1.1328 / (b - 3.4), level = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    double u = law_unit(s) - 0.5, v = 1 - law_unit(s), us = 0.5 - fabs(u),
           n = floor((2 * a / us + b) * u + lam + 0.43);
    if (us >= 0.07 && v <= level) return n;
    if (n < 0 || (us < 0.013 && v > us)) continue;
    double bound = n * log(lam) - lam - law_ln_factorial(n);
    if (log(v) + log(inverse) - log(a / (us * us) + b) <= bound) return n;
  }
}

/* Returns a number of the negative binomial law: failures before k successes of probability p. */
TY_DEVICE_FN double law_failures(struct element_stream *s, double k, double p)
{
  if (k == 0 || p == 1) return 0;
  return law_poisson(s, law_gamma(s, k, (1 - p) / p), 0);
}

/* Returns a number of the generalized negative binomial law with mean mu and dispersion alpha. */
TY_DEVICE_FN double law_counts(struct element_stream *s, double mu, double alpha)
{
  if (mu == 0) return 0;
  return law_poisson(s, isinf(1 / alpha) ? mu : law_gamma(s, 1 / alpha, alpha) * mu, 0);
}

/* -- whole numbers ----------------------------------------------------------------------------- */

/* Returns a uniform number of 0 .. span - 1: the high half of the product of 64 random bits with
** span. */
TY_DEVICE_FN uint64_t law_below(struct element_stream *s, uint64_t span)
{
  uint64_t a = law_word(s), b = law_word(s), x = span >> 32, y = span & 0xffffffffu;
  uint64_t middle = b * x + (b * y >> 32), low = a * y + (middle & 0xffffffffu);
  return a * x + (middle >> 32) + (low >> 32);
}

/* -- parameters -------------------------------------------------------------------------------- */

/* LAW_valid(a, b) returns whether a law is defined for these parameters and drawing a number ends.
** b is 0 for laws of one parameter. */
TY_DEVICE_FN bool law_uniform_valid(double a, double b) { return a <= b && isfinite(b - a); }
TY_DEVICE_FN bool law_normal_valid(double a, double b) { return b >= 0; }
TY_DEVICE_FN bool law_exponential_valid(double a, double b) { return a > 0; }
TY_DEVICE_FN bool law_gamma_valid(double a, double b)
{
  return a > 0 && b > 0 && isfinite(a) && isfinite(b);
}
TY_DEVICE_FN bool law_poisson_valid(double a, double b) { return a >= 0 && isfinite(a); }
TY_DEVICE_FN bool law_failures_valid(double a, double b)
{
  return a >= 0 && isfinite(a) && b > 0 && b <= 1;
}
TY_DEVICE_FN bool law_counts_valid(double a, double b)
{
  return a >= 0 && isfinite(a) && b >= 0 && isfinite(b);
}

/* A number of a law is offset + scale z of a standard variate z, at most limit. LAW_affine(a, b,
** wide) returns these for parameters a and b. `wide` says that the result is float64. */
struct law_affine { double offset, scale, limit; };

/* The limit is the number before `high`, since rounding could reach `high` itself. */
TY_DEVICE_FN struct law_affine law_uniform_affine(double low, double high, bool wide)
{
  double below = wide ? nextafter(high, low) : (double)nextafterf((float)high, (float)low);
  struct law_affine t = { low, high - low, low < high ? below : high };
  return t;
}
TY_DEVICE_FN struct law_affine law_normal_affine(double mu, double s, bool wide)
{
  struct law_affine t = { mu, s, INFINITY };
  return t;
}
TY_DEVICE_FN struct law_affine law_exponential_affine(double lam, double none, bool wide)
{
  struct law_affine t = { 0, 1 / lam, INFINITY };
  return t;
}
