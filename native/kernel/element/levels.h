/* levels.h - 8-bit and 32-bit integers that represent numbers of a range, shared by C and CUDA. */
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

/* Levels of the number 1 where least .. most become 0 .. 255; 1 where that is no range. */
TY_DEVICE_FN float scale_of_range(double least, double most)
{
  double scale = 255 / (most - least);
  return scale > 0 && scale < 3.4e38 ? (float)scale : 1;
}

/* The level of 0 there. */
TY_DEVICE_FN float shift_of_range(double most, float scale) { return (float)(255 - most * scale); }

/* The level 0 .. 255 of a number; NaN is 0. */
TY_DEVICE_FN double shifted_level(double v, float scale, float shift)
{
  double q = floor(v * scale + shift + 0.5);
  return q > 255 ? 255 : q >= 0 ? q : 0;
}

/* Returns the number that a level represents. */
TY_DEVICE_FN float shifted_number(double level, float scale, float shift)
{
  return (float)((level - shift) / scale);
}

/* A weight as the nearest of 127 levels either way of the largest magnitude of its unit. */
TY_DEVICE_FN float rounded_weight(float w, float most)
{
  return most > 0 ? (float)(nearest_level((double)w * 127 / most, -127, 127) * most / 127) : 0;
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
