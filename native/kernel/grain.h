/* grain.h - how much work one chunk of a parallel loop has.
**
** Work below some 20 us is not worth the start of a team (base/parallel.h). Chunks are counted in
** elements that a unit reads and writes, or in multiply-adds, never in time: how a loop is cut may
** depend on shapes alone, since some kernels add up by chunks and equal settings give equal bits.
** So a change of a number here can change the last bits of results.
**
** Chosen with the kernels, 2026-11-21 to 2026-11-25. The costs were measured on 2026-11-27, float32
** arrays of 64 KiB, one core of a busy machine: L2Normalization, cumsum, take; where; quantize_v2;
** random.gamma.
*/
#pragma once
#include <stdint.h>
#include "base/base.h"

enum {
  /* elements that go through vector arithmetic: 0.3 to 0.8 ns each */
  GRAIN_ELEMENTS = 16384,
  /* elements that are only moved or chosen: 0.2 ns each */
  GRAIN_MOVES = 32768,
  /* elements that are found by an index each */
  GRAIN_PICKS = 8192,
  /* elements that cost a call, a conversion or a random number each: 4 ns each */
  GRAIN_CALLS = 4096,
  /* elements that cost several logarithms, exponentials or random numbers: up to 80 ns each */
  GRAIN_FUNCTIONS = 1024,
  /* bytes that are copied */
  GRAIN_BYTES = 65536,
};

/* multiply-adds of a product: 10 to 20 us on one core (2026-11-21) */
#define GRAIN_PRODUCTS 1000000.0

/* Returns how many units of `cost` each make a chunk of `size`, at least one; both are in the same
** unit (elements, multiply-adds, bytes). */
static inline int64_t grain_for(int64_t size, int64_t cost)
{
  return MAX(1, size / MAX(cost, 1));
}

/* Returns how many units that read and write `cost` elements each make a chunk. */
static inline int64_t grain_of(int64_t cost) { return grain_for(GRAIN_ELEMENTS, cost); }
