/* grain.h - costs of an element of a parallel loop, in nanoseconds on one core.
**
** parallel_for (base/parallel.h) uses them to make chunks of PARALLEL_CHUNK_NS. They are constants,
** so that a loop is cut by its shape alone: some kernels add up per chunk, and results must not
** depend on the machine. Changing a number here can change the last bits of results.
**
** Chosen with the kernels, 2026-11-21 to 2026-11-25, as elements of a chunk; measured on
** 2026-11-27, float32 arrays of 64 KiB, one core of a busy machine: L2Normalization, cumsum, take;
** where; quantize_v2; random.gamma. Measured values are in parentheses. */
#pragma once
#include "base/base.h"
#include "base/parallel.h"

/* an element of vector arithmetic: 0.6 ns (0.3 to 0.8) */
#define NS_ELEMENT (PARALLEL_CHUNK_NS / 16384)
/* an element that is only moved or selected: 0.3 ns (0.2) */
#define NS_MOVE (PARALLEL_CHUNK_NS / 32768)
/* an element that is found by an index: 1.2 ns */
#define NS_PICK (PARALLEL_CHUNK_NS / 8192)
/* an element that needs a call, a conversion or a random number: 2.4 ns (4) */
#define NS_CALL (PARALLEL_CHUNK_NS / 4096)
/* an element that needs several logarithms, exponentials or random numbers: 10 ns (up to 80) */
#define NS_FUNCTION (PARALLEL_CHUNK_NS / 1024)
/* a byte that is copied: 0.15 ns */
#define NS_BYTE (PARALLEL_CHUNK_NS / 65536)
/* a multiply-add of a product: 0.01 ns (0.01 to 0.02, 2026-11-21) */
#define NS_PRODUCT 0.01

/* Returns the nanoseconds of MAX(n, 1) elements of `each` nanoseconds. */
static inline double cost_ns(double each, int64_t n) { return each * (double)MAX(n, 1); }

/* Returns the nanoseconds of n elements of vector arithmetic. */
static inline double elements_ns(int64_t n) { return cost_ns(NS_ELEMENT, n); }
