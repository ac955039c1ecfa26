/* tuning.h - the constants by which matrix products are cut.
**
** The order of the additions in a sum depends on them, so a change can change the last bits of
** results. Source: measured by `scripts/dev/bench/bench.lua` (layers and operators) with AVX2 and
** AVX-512, on the dates given; where none is given, on 2026-11-21.
*/
#pragma once
#include "kernel/grain.h"

/* multiply-adds of a chunk */
#define GEMM_WORK (PARALLEL_CHUNK_NS / NS_PRODUCT)
/* multiply-adds up to which a product is one chunk, run by the calling thread */
#define GEMM_SERIAL_WORK (2 * GEMM_WORK)
/* factor of GEMM_SERIAL_WORK where tiles multiply; packing takes a part of the time (2026-11-28) */
#define GEMM_TILES_SPEED 6
/* multiply-adds of one product of a batch above which each product is divided, not the batch */
#define GEMM_LARGE_WORK (32 * GEMM_WORK)
/* multiply-adds of a chunk of dot products, which wait for memory: about 5 us (2026-11-28) */
#define GEMM_DOT_WORK 32768.0
/* multiply-adds up to which dot products are one chunk: 5 us where the right side is in the second
** cache (2026-11-28) */
#define GEMM_DOT_SERIAL_WORK 98304.0

/* -- passes beside the product: nanoseconds of an element -- */
/* to pack it: 0.17 */
#define GEMM_PACK_NS (PARALLEL_CHUNK_NS / 60000)
/* to apply bias and activation: 0.33 */
#define GEMM_EPILOGUE_NS (PARALLEL_CHUNK_NS / 30000)
/* to add it to another array: 0.15 */
#define GEMM_ADD_NS (PARALLEL_CHUNK_NS / 65536)
/* multiply-adds above which OpenBLAS is taken on a processor without AVX2 */
#define GEMM_BLAS_WORK 100000.0

enum {
  /* Bytes of panels that a core reads again and again: half of the second cache, within these. */
  GEMM_CACHE = 512 * 1024,
  /* a second cache of 2 MiB: 1.05 times as fast as with GEMM_CACHE (2026-11-29) */
  GEMM_CACHE_MOST = 1024 * 1024,

  /* -- chunks (2026-11-23) -- */
  /* columns of C whose sums are made at a time */
  GEMM_BLOCK_COLUMNS = 1536,
  /* rows of A up to which packing B is much of the work: then each core packs a part of it */
  GEMM_LOW = 192,
  /* panels of B that one core packs, at least, with up to GEMM_LOW rows */
  GEMM_LOW_PANELS = 3,
  /* the same with more rows */
  GEMM_HIGH_PANELS = 4,
  /* rows of A that use a packed panel, at least, with more than GEMM_LOW rows */
  GEMM_PANEL_ROWS = 400,
  /* chunks of a product for each thread of a team of several; one thread takes the product as one
  ** chunk, since each cut makes strips be copied again (2026-11-29) */
  GEMM_CORE_CHUNKS = 8,
  /* chunks of a product, at most */
  GEMM_CHUNKS = 32,
  /* chunks of a product whose B is read in place, at most */
  GEMM_CHUNKS_IN_PLACE = 8,
  /* panels that share a copied strip where tiles multiply, at least (2026-11-28) */
  GEMM_TILES_PANELS = 8,

  /* -- the way that a product takes -- */
  /* rows or columns of C below which a product is a few dot products */
  GEMM_VECTORS = 4,

  /* Fewer than GEMM_VECTORS rows and B stored by rows: rows of B are added to C (2026-11-28). */
  /* columns of a chunk, at least */
  GEMM_ROW_LEAST = 128,
  /* columns of C at a time, which stay in the first cache */
  GEMM_ROW_COLUMNS = 4096,
  /* rows of B that are added to one row of C before the next */
  GEMM_ROW_TERMS = 16,
  /* elements of B above which this is faster, as a multiple of the squared number of rows of A */
  GEMM_ROW_ABOVE = 16384,

  /* terms of a sum for each row of A from which up to GEMM_FEW rows are dot products too: packing
  ** B would cost more (2026-11-22) */
  GEMM_LONG_SUM = 40,
  /* elements of B above which it is packed although it is stored by rows */
  GEMM_PACK_ABOVE = 30000,
  /* panels that use a strip of A from which copying the strip saves time */
  GEMM_COPY_PANELS = 4,
  /* bytes: rows of A a multiple of these apart share sets of the first cache */
  GEMM_CACHE_STRIDE = 4096,
  /* bytes between columns of an A that is read across its rows from which strips are copied */
  GEMM_ACROSS_BYTES = 1024,

  /* -- sums of columns -- */
  GEMM_SUM_GRAIN = 200000,                            /* elements of a chunk */
  GEMM_SUM_COLUMNS = 256,                             /* columns at a time */
  GEMM_SUM_ROWS = 128,                                /* rows of a partial sum */

  /* -- both gradients of a product (2026-11-30) -- */
  /* bytes of X whose panels are made at once, and of a group's dX */
  GEMM_BOTH_DATA = 1 << 20,
  GEMM_BOTH_LEAST = 128,                              /* rows of X, at least */
  GEMM_BOTH_ROWS = 350,                               /* rows of a block, at most */
  /* columns of a block of GEMM_BOTH_ROWS rows, at most */
  GEMM_BOTH_COLUMNS = 256,
  /* columns of a block of fewer rows, at most */
  GEMM_BOTH_WIDE = 2048,
  GEMM_BOTH_UNIT = 64,                                /* a block has a multiple of these columns */
  GEMM_BOTH_GROUPS = 8,                               /* groups of slabs, at most */
};
