/* choice.h - random choices, shared by C and CUDA: a class by the sums of probabilities, a position
** in a permutation, a number without repetition. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* Returns the first class whose sum is above u; if rounding keeps all sums at or below u, the last
** class whose probability is not 0. sums: of the first 1, 2, ... probabilities. */
TY_DEVICE_FN int64_t choose_class(const double *sums, int64_t classes, double u)
{
  int64_t low = 0, high = classes - 1;
  while (low < high) {
    int64_t k = (low + high) / 2;
    if (sums[k] > u || sums[k] >= sums[classes - 1])
      high = k;
    else
      low = k + 1;
  }
  return low;
}

/* Returns the position that step i of an inside-out Fisher-Yates shuffle draws: the entry there
** moves to position i, and entry i takes its position. u: uniform in [0, 1). */
TY_DEVICE_FN int64_t position_of_step(int64_t i, double u)
{
  return (int64_t)(u * (double)(i + 1));
}

/* Returns a whole number in 0 .. max - 1 of the log-uniform law. u: uniform in [0, 1); turns:
** ln(max + 1). */
TY_DEVICE_FN int64_t zipfian_number(double u, double turns, int64_t max)
{
  int64_t v = (int64_t)exp(u * turns) - 1;
  return v < max - 1 ? v : max - 1;
}

/* Adds v to a hash set. Each slot holds 0 or a number plus 1; `slots` is a power of two above the
** number of entries. Returns false if v is in the set already. */
TY_DEVICE_FN bool insert_number(int64_t *slot, int64_t slots, int64_t v)
{
  int64_t i = (int64_t)(((uint64_t)v * 0x9E3779B97F4A7C15u) >> 20) & (slots - 1);
  for (; slot[i]; i = (i + 1) & (slots - 1))
    if (slot[i] == v + 1) return false;
  slot[i] = v + 1;
  return true;
}
