/* random.h - the same random numbers at each run. */
#pragma once
#include "tycho.h"
#include "base/base.h"

static uint32_t seed = 1;
static inline int64_t below(int64_t n)
{
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % n;
}

/* n in -1 .. 1; to be freed with mem_free */
static inline float *numbers_of(int64_t n)
{
  float *p = mem_new((size_t)n * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = (float)(below(2001) - 1000) * 0.001f;
  return p;
}
