/* entropy.h - the divergence of a histogram from a copy that is cut off on both sides of its middle
** and reduced to a few levels, shared by C and CUDA. */
#pragma once
#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdbool.h>
#include "base/philox.h"
#endif

/* Bins start .. start + n - 1 of a histogram. The counts of other bins are added to the first and
** the last of these. */
struct histogram_cut {
  const double *bin;                                  /* all bins of the histogram */
  int64_t start, n;
  int64_t levels;
  double first, last;                                 /* counts of its first and last bin */
};

/* Returns the cut that keeps `half` bins on both sides of the middle one. */
TY_DEVICE_FN struct histogram_cut cut_at(
    const double *bin, int64_t all, int64_t levels, int64_t half)
{
  int64_t start = all / 2 - half, stop = all / 2 + half + 1;
  if (start < 0) start = 0;
  if (stop > all) stop = all;
  struct histogram_cut h = { bin, start, stop - start, levels, bin[start], 0 };
  for (int64_t i = 0; i < start; i++) h.first += bin[i];
  h.last = h.n > 1 ? bin[stop - 1] : h.first;
  for (int64_t i = stop; i < all; i++) h.last += bin[i];
  if (h.n == 1) h.first = h.last;
  return h;
}

/* A bin of a cut. */
struct cut_bin {
  double p;                                           /* count of the bin */
  double q;                                           /* mean of its level; 0 in an empty bin */
};

/* A level: consecutive bins that have the same value after the reduction. */
struct cut_level {
  int64_t end;                                        /* the first bin after it */
  double mean;                                        /* of the counts of its non-empty bins */
};

/* Returns the count of bin i of a cut. */
TY_DEVICE_FN double cut_count(const struct histogram_cut *h, int64_t i)
{
  return i == h->n - 1 ? h->last : i == 0 ? h->first : h->bin[h->start + i];
}

/* Returns bin i. Call it for bins 0, 1, ... in order, with the same `level`. */
TY_DEVICE_FN struct cut_bin next_bin(
    const struct histogram_cut *h, int64_t i, struct cut_level *level)
{
  struct cut_bin b = { cut_count(h, i), 0 };
  if (i == 0 || i == level->end) {
    int64_t each = h->n / h->levels, filled = 0;
    double sum = 0;
    level->end = i / each + 1 >= h->levels ? h->n : i + each;
    for (int64_t k = i; k < level->end; k++) {
      sum += h->bin[h->start + k];
      filled += cut_count(h, k) != 0;
    }
    level->mean = sum / (double)filled;
  }
  if (b.p != 0) b.q = level->mean;
  return b;
}

/* Returns how much to subtract from each non-zero bin of n so that each of the `zeros` other bins
** can get eps; 1 if that is impossible. */
TY_DEVICE_FN double smoothing(double eps, int64_t zeros, int64_t n)
{
  double less = zeros < n ? eps * (double)zeros / (double)(n - zeros) : 1;
  return less < 1 ? less : 1;
}

/* Returns the Kullback-Leibler divergence of the levels from the bins, both smoothed; infinity if
** it is undefined. */
TY_DEVICE_FN double cut_divergence(const struct histogram_cut *h)
{
  const double eps = 1e-4;
  struct cut_level level = { 0, 0 };
  int64_t zeros_p = 0, zeros_q = 0;
  double sum_p = 0, sum_q = 0, d = 0;
  if (h->n < h->levels) return INFINITY;
  for (int64_t i = 0; i < h->n; i++) {
    struct cut_bin b = next_bin(h, i, &level);
    zeros_p += b.p == 0;
    zeros_q += b.q == 0;
  }
  double less_p = smoothing(eps, zeros_p, h->n), less_q = smoothing(eps, zeros_q, h->n);
  if (less_p == 1 || less_q == 1) return INFINITY;
  for (int64_t i = 0; i < h->n; i++) {
    struct cut_bin b = next_bin(h, i, &level);
    sum_p += b.p + (b.p == 0 ? eps : -less_p);
    sum_q += b.q + (b.q == 0 ? eps : -less_q);
  }
  for (int64_t i = 0; i < h->n; i++) {
    struct cut_bin b = next_bin(h, i, &level);
    double p = b.p + (b.p == 0 ? eps : -less_p), q = b.q + (b.q == 0 ? eps : -less_q);
    d += p / sum_p * log(p / sum_p / (q / sum_q));
  }
  return d;
}
