/* levels.h - 8-bit and 32-bit integers that represent numbers of a range, shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include "base/philox.h"
#endif

/* Returns the larger magnitude of the ends of a range. */
TY_DEVICE_FN double range_size(double least, double most)
{
  double a = fabs(least), b = fabs(most);
  return fmax(a, b);
}

/* Returns the nearest level of `least` .. `most`, halves away from zero; 0 for NaN. */
TY_DEVICE_FN double nearest_level(double v, double least, double most)
{
  double q = round(v);
  return q > most ? most : q >= least ? q : q < least ? least : 0;
}

/* Returns the levels per unit if least .. most is mapped to 0 .. 255; 1 if the range is empty or
** the scale is not finite in float32. */
TY_DEVICE_FN float scale_of_range(double least, double most)
{
  double scale = 255 / (most - least);
  return scale > 0 && scale < 3.4e38 ? (float)scale : 1;
}

/* Returns the level of 0 in a range that ends in `most`. */
TY_DEVICE_FN float shift_of_range(double most, float scale) { return (float)(255 - most * scale); }

/* Returns the level 0 .. 255 of a number; 0 for NaN. */
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

/* Returns a weight rounded to -127 .. 127 levels. most: the largest magnitude among the weights
** that share a scale. */
TY_DEVICE_FN float rounded_weight(float w, float most)
{
  return most > 0 ? (float)(nearest_level((double)w * 127 / most, -127, 127) * most / 127) : 0;
}

/* Returns the level of a bias in `unit`, the unit of the products to which it is added. bias: its
** level in units of `own`. */
TY_DEVICE_FN double bias_level(double bias, double own, double unit)
{
  return round(bias * (unit > 0 ? own / unit : 0));
}

/* Returns x normalised by its channel's mean and variance, times gamma, plus beta. */
TY_DEVICE_FN double normalized(
    double x, double gamma, double beta, double mean, double variance, double eps)
{
  return (x - mean) * (gamma / sqrt(variance + eps)) + beta;
}
