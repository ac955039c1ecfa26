/* taps.h - taps of resampling along one axis: which source pixels a result reads, and their
** weights; shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* Rules of resampling. WIDE is what AREA becomes if an axis grows: AREA itself is for images that
** shrink on both axes. */
enum { NEAREST, LINEAR, CUBIC, AREA, LANCZOS, RESAMPLINGS, WIDE = RESAMPLINGS };
enum { WEIGHT_BITS = 11, WEIGHT_ONE = 1 << WEIGHT_BITS, MOST_TAPS = 8 };

/* Returns the number of taps of a rule other than AREA, for which it varies. */
TY_DEVICE_FN int taps_of(int how)
{
  return how == LINEAR || how == WIDE ? 2 : how == CUBIC ? 4 : MOST_TAPS;
}

/* Returns a weight in fixed point, for bytes. */
TY_DEVICE_FN int32_t fixed_weight(float w) { return (int32_t)lrintf(w * WEIGHT_ONE); }

TY_DEVICE_FN double tap_scale(int64_t from, int64_t to)
{
  return 1 / ((double)to / (double)from);
}

TY_DEVICE_FN int64_t nearest_tap(int64_t i, int64_t from, double scale)
{
  int64_t at = (int64_t)floor((double)i * scale);
  return at < from - 1 ? at : from - 1;
}

TY_DEVICE_FN void cubic_weights(float x, float *w)
{
  const float a = -0.75f;
  w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
  w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
  w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = 1 - w[0] - w[1] - w[2];
}

/* Computes normalised weights sinc(t) sinc(t / 4) at t = x + 3 - i. The sine of the first factor
** only alternates in sign from tap to tap; its common size cancels out. */
TY_DEVICE_FN void lanczos_weights(float x, float *w)
{
  double sum = 0, v[MOST_TAPS];
  for (int i = 0; i < MOST_TAPS; i++) w[i] = i == 3;
  if (x < 1e-7f) return;
  for (int i = 0; i < MOST_TAPS; i++) {
    double t = x + 3 - i;
    v[i] = (i % 2 ? -1 : 1) * sin(t * 0.7853981633974483) / (t * t);
    sum += v[i];
  }
  for (int i = 0; i < MOST_TAPS; i++) w[i] = (float)(v[i] / sum);
}

/* Returns the source pixel before position i of the result; *beyond: the distance from it, 0 to
** 1. */
TY_DEVICE_FN int64_t tap_source(int how, int64_t i, double scale, float *beyond)
{
  if (how == WIDE) {
    int64_t s = (int64_t)floor((double)i * scale);
    float f = (float)((double)(i + 1) - (double)(s + 1) / scale);
    *beyond = f <= 0 ? 0 : f - floorf(f);
    return s;
  }
  float f = (float)(((double)i + 0.5) * scale - 0.5);
  int64_t s = (int64_t)floorf(f);
  *beyond = f - (float)s;
  return s;
}

TY_DEVICE_FN int weigh_taps(int how, int64_t i, int64_t from, double scale, bool inside,
    int32_t *index, float *weight)
{
  float beyond;
  int n = taps_of(how);
  int64_t s = tap_source(how, i, scale, &beyond);
  if (n == 2 && inside && s < 0) s = 0, beyond = 0;
  if (n == 2 && inside && s >= from - 1) s = from - 1, beyond = 0;
  if (n == 2)
    weight[0] = 1 - beyond, weight[1] = beyond;
  else if (n == 4)
    cubic_weights(beyond, weight);
  else
    lanczos_weights(beyond, weight);
  for (int k = 0; k < n; k++) {
    int64_t at = s - n / 2 + 1 + k;
    index[k] = (int32_t)(at < 0 ? 0 : at >= from ? from - 1 : at);
  }
  return n;
}

TY_DEVICE_FN double lesser_of(double a, double b) { return a < b ? a : b; }

TY_DEVICE_FN int weigh_area(int64_t i, int64_t from, double scale, int32_t *index, float *weight)
{
  double begin = (double)i * scale, end = begin + scale;
  double size = lesser_of(scale, (double)from - begin);
  int64_t last = (int64_t)floor(end), first = (int64_t)ceil(begin);
  int n = 0;
  if (last > from - 1) last = from - 1;
  if (first > last) first = last;
  if ((double)first - begin > 1e-3) {
    index[n] = (int32_t)first - 1;
    weight[n++] = (float)(((double)first - begin) / size);
  }
  for (int64_t s = first; s < last; s++) {
    index[n] = (int32_t)s;
    weight[n++] = (float)(1 / size);
  }
  if (end - (double)last > 1e-3) {
    index[n] = (int32_t)last;
    weight[n++] = (float)(lesser_of(lesser_of(end - (double)last, 1), size) / size);
  }
  return n;
}

/* Lists the source pixels that position i of the result reads, and their weights; returns how many.
** inside: a bilinear tap beyond the edge gets weight 0 (x axis, as in OpenCV); else it reads the
** edge's pixel. */
TY_DEVICE_FN int taps_at(int how, int64_t i, int64_t from, double scale, bool inside,
    int32_t *index, float *weight)
{
  if (how == AREA) return weigh_area(i, from, scale, index, weight);
  return weigh_taps(how, i, from, scale, inside, index, weight);
}

/* -- bytes of sums over columns ---------------------------------------------------------------- */

TY_DEVICE_FN unsigned char clamp_byte(int64_t v)
{
  return v < 0 ? 0 : v > 255 ? 255 : (unsigned char)v;
}

/* Returns the byte of two rows' sums with weights of 11 bits, of which 4 bits are dropped first. */
TY_DEVICE_FN unsigned char byte_of_pair(int32_t a, int32_t b, int32_t weight_a, int32_t weight_b)
{
  return (unsigned char)(((weight_a * (a >> 4) >> 16) + (weight_b * (b >> 4) >> 16) + 2) >> 2);
}

/* Returns how many of the first bytes of a row of n the cubic rule computes in float32: OpenCV does
** so in vectors of 8, and in fixed point for the rest of the row. Results differ where a sum is
** near a half. */
TY_DEVICE_FN int64_t bytes_in_vectors(int64_t n) { return n / 8 * 8; }

/* Returns a row's sum times its weight in float32, in units of a byte. */
TY_DEVICE_FN float part_of_byte(int32_t sum, int32_t weight)
{
  return (float)sum * ((float)weight / (1 << 2 * WEIGHT_BITS));
}

/* Returns the byte of a mean. twice: the source has exactly twice the size. */
TY_DEVICE_FN unsigned char byte_of_mean(float sum, bool twice)
{
  return clamp_byte(twice ? (int64_t)(sum + 0.5f) : (int64_t)lrintf(sum));
}
