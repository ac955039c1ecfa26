// entropy.cu - finds where to cut off a histogram so that a few levels lose least of it
// (kernel/element/entropy.h). Method: one thread per cut, which walks through the bins in order;
// then one block searches the first of the least losses. Bound: the latency of a walk.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/entropy.h"
#define T float       // edges
#define TEAM 256
#include "team.cuh"
#endif

extern "C" __global__ void cut_losses(
    double *loss, const double *bin, i64 n, i64 levels, i64 cuts)
{
  EACH(k, cuts)
  {
    struct histogram_cut h = cut_at((const double *)bin, n, levels, levels / 2 + k);
    loss[k] = cut_divergence(&h);
  }
}

// Writes the threshold and divergence of the first cut of the least loss; either may be NULL.
extern "C" __global__ void choose_cut(float *threshold, float *divergence, const double *loss,
    const T *edge, i64 n, i64 levels, i64 cuts)
{
  double own = infinity<double>();
  i64 first = cuts;
  EACH_OF_TEAM(k, 0, cuts)
  {
    if (!(loss[k] < own)) continue;
    own = loss[k];
    first = k;
  }
  double least = team_least(own);
  i64 cut = team_least(own == least ? first : cuts), stop = n / 2 + levels / 2 + cut + 1;
  if (!LEADS) return;
  if (threshold) *threshold = (float)get<double>(edge[cut < cuts && stop < n ? stop : n]);
  if (divergence) *divergence = (float)least;
}
