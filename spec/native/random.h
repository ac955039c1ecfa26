/* random.h - the same random numbers at each run. */
#pragma once
#include "tycho.h"
#include "base/base.h"

static uint32_t seed = 1;
static inline int64_t draw_below(int64_t n)
{
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % n;
}

/* Makes n numbers in -1 .. 1; free them with mem_free. */
static inline float *make_floats(int64_t n)
{
  float *p = mem_new((size_t)n * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = (float)(draw_below(2001) - 1000) * 0.001f;
  return p;
}
