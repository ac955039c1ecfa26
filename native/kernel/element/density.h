/* density.h - logarithms of densities and their derivatives, shared by C and CUDA. NAME_log(x, a,
** b) returns the logarithm for a law with parameters a and b. NAME_slope sets d to its derivatives
** by x, a and b; d is 0 before, and laws of counts do not set d[0]. Parameters outside their range
** give NaN. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* -- special functions ------------------------------------------------------------------------- */

/* Returns the logarithm of the gamma function. */
TY_DEVICE_FN double ln_gamma(double x)
{
#ifdef TY_LN_GAMMA
  return TY_LN_GAMMA(x);
#else
  int sign; /* lgamma writes a global variable */
  return lgamma_r(x, &sign);
#endif
}

/* Returns the derivative of ln_gamma: by recurrence upwards, then by the asymptotic series
** (Abramowitz and Stegun 6.3.5, 6.3.18). Except at whole numbers up to 10, the logarithm is in
** single precision, as in the reference, also for float64. */
TY_DEVICE_FN double digamma(double x)
{
  if (!(x > 0)) return NAN;
  bool whole = x <= 10 && x == floor(x);
  double sum = 0;
  for (; x < 10; x++) sum -= 1 / x;
  double q = 1 / (x * x), tail = 1.0 / 132 - q * (691.0 / 32760 - q / 12);
  tail = q * (1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * (1.0 / 240 - q * tail))));
  return sum + (whole ? log(x) : (double)logf((float)x)) - 0.5 / x - tail;
}

/* Returns a ln(x); 0 if a is 0. */
TY_DEVICE_FN double times_log(double a, double x) { return a == 0 ? 0 : a * log(x); }

/* -- laws -------------------------------------------------------------------------------------- */

TY_DEVICE_FN double uniform_log(double x, double low, double high) { return -log(high - low); }
TY_DEVICE_FN void uniform_slope(double x, double low, double high, double d[3])
{
  d[1] = 1 / (high - low);
  d[2] = -d[1];
}

TY_DEVICE_FN double normal_log(double x, double mu, double sigma)
{
  double z = (x - mu) / sigma;
  return -0.5 * z * z - log(sigma) - 0.9189385332046727; /* ln sqrt(2 pi) */
}

TY_DEVICE_FN void normal_slope(double x, double mu, double sigma, double d[3])
{
  double z = (x - mu) / sigma;
  d[0] = -z / sigma;
  d[1] = z / sigma;
  d[2] = (z * z - 1) / sigma;
}

TY_DEVICE_FN double gamma_log(double x, double alpha, double beta)
{
  return alpha * log(beta) + times_log(alpha - 1, x) - beta * x - ln_gamma(alpha);
}

TY_DEVICE_FN void gamma_slope(double x, double alpha, double beta, double d[3])
{
  d[0] = (alpha - 1) / x - beta;
  d[1] = log(beta) + log(x) - digamma(alpha);
  d[2] = alpha / beta - x;
}

TY_DEVICE_FN double exponential_log(double x, double lam, double unused)
{
  return log(lam) - lam * x;
}
TY_DEVICE_FN void exponential_slope(double x, double lam, double unused, double d[3])
{
  d[0] = -lam;
  d[1] = 1 / lam - x;
}

TY_DEVICE_FN double poisson_log(double x, double lam, double unused)
{
  return times_log(x, lam) - lam - ln_gamma(x + 1);
}
TY_DEVICE_FN void poisson_slope(double x, double lam, double unused, double d[3])
{
  d[1] = x / lam - 1;
}

TY_DEVICE_FN double negative_binomial_log(double x, double k, double p)
{
  return ln_gamma(x + k) - ln_gamma(x + 1) - ln_gamma(k) + k * log(p) + times_log(x, 1 - p);
}

TY_DEVICE_FN void negative_binomial_slope(double x, double k, double p, double d[3])
{
  d[1] = digamma(x + k) - digamma(k) + log(p);
  d[2] = k / p - (x == 0 ? 0 : x / (1 - p));
}

/* negative_binomial with k = 1 / alpha and p = 1 / (1 + mu alpha). */
TY_DEVICE_FN double generalized_negative_binomial_log(double x, double mu, double alpha)
{
  return negative_binomial_log(x, 1 / alpha, 1 / (1 + mu * alpha));
}

TY_DEVICE_FN void generalized_negative_binomial_slope(
    double x, double mu, double alpha, double d[3])
{
  double p = 1 / (1 + mu * alpha), by[3] = { 0 };
  negative_binomial_slope(x, 1 / alpha, p, by);
  d[1] = -by[2] * alpha * p * p;
  d[2] = -by[2] * mu * p * p - by[1] / (alpha * alpha);
}
