/* levels.h - 8-bit and 32-bit integers that stand for numbers of a range, shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include "base/philox.h"
#endif

/* A range counts by its larger magnitude alone. */
TY_DEVICE_FN double range_size(double least, double most)
{
  double a = fabs(least), b = fabs(most);
  return fmax(a, b);
}

/* The nearest level of `least` .. `most`, halves away from zero; NaN is 0. */
TY_DEVICE_FN double nearest_level(double v, double least, double most)
{
  double q = round(v);
  return q > most ? most : q >= least ? q : q < least ? least : 0;
}

/* A bias of unit `own` as a level of the products that it is added to. */
TY_DEVICE_FN double bias_level(double bias, double own, double unit)
{
  return round(bias * (unit > 0 ? own / unit : 0));
}

/* A number less the mean of its channel, over its deviation, times gamma, plus beta. */
TY_DEVICE_FN double normalized(
    double x, double gamma, double beta, double mean, double variance, double eps)
{
  return (x - mean) * (gamma / sqrt(variance + eps)) + beta;
}
