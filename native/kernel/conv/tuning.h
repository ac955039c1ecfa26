/* tuning.h - constants that decide how convolutions are divided and which kernels run.
**
** The order of sums depends on some of these, so a change can change the last bits of results.
** Sources: `scripts/dev/bench/bench.lua` (layers), AVX2 and AVX-512, on the dates given, or else
** 2026-11-21. */
#pragma once
#include "kernel/grain.h"

/* Multiply-adds. A larger unit of a forward product is halved while there are fewer than CONV_UNITS
** units. */
#define CONV_UNIT_WORK 2e6

enum {
  /* -- windows -- */
  /* most positions of a panel, or of columns of the data's gradient, at a time */
  CONV_COLUMNS = 128,

  /* -- packed weights that inference keeps (2026-11-22): up to CONV_SMALL_WEIGHT; with fewer
  ** positions than CONV_FEW_POSITIONS; up to CONV_LARGE_WEIGHT with fewer than
  ** CONV_MANY_POSITIONS -- */
  CONV_FEW_POSITIONS = 256,                           /* positions of the result */
  CONV_MANY_POSITIONS = 1000,                         /* positions of the result */
  CONV_SMALL_WEIGHT = 128 << 10,                      /* bytes */
  CONV_LARGE_WEIGHT = 1 << 20,                        /* bytes */

  /* -- forward -- */
  CONV_PANELS = 4,                                    /* panels of a block of positions */
  CONV_PANELS_1X1 = 8,                                /* panels of a block of a 1 x 1 window */
  CONV_UNITS = 32,                                    /* units that suffice for a team */
  CONV_MIN_STRIPS = 3,                                /* least strips of filters of a unit */

  /* -- gradient of the data -- */
  /* rows of columns (channels x taps) that stay in the second-level cache */
  CONV_DATA_ROWS = 512,

  /* -- gradient of the weight -- */
  CONV_POSITIONS = 512,                               /* positions of a block */
  CONV_SHARES = 16,                                   /* most shares of the images */
  CONV_SHARES_BYTES = 4 << 20,                        /* most bytes of the shares' sums */
  CONV_GATHER_GRAIN = 100000,                         /* elements of sums that a chunk adds */

  /* -- gradient of the weight, with many filters (weight_outer.c) -- */
  OUTER_FILTERS = 96,                                 /* least filters */
  OUTER_POSITIONS = 1024,                             /* most positions, for one tap */
  OUTER_ROWS = 128,                                   /* rows of columns at a time */
  OUTER_UNITS = 16,                                   /* units that suffice for a team */
  OUTER_SHARES_BYTES = 4 << 20,                       /* most bytes of the shares' sums */

  /* -- a few positions (few.c), compared with the packed product (2026-11-28) -- */
  FEW_POSITIONS = 8,                                  /* most positions of all images */
  FEW_EACH = 4,                                       /* least positions per image, if several */
  FEW_DEPTH = 64,                                     /* least channels x taps */

  /* -- rounded to bfloat16 (rounded.c), compared with float32 (2026-11-28) -- */
  ROUNDED_IMAGES = 8,                                 /* least images; a thread takes whole ones */
  ROUNDED_CHANNELS = 4,                               /* least channels of a group, in pairs */
  ROUNDED_FILTERS = 8,                                /* least filters of a group */
  ROUNDED_DEPTH = 64,                                 /* least channels x taps */

  /* -- on tiles (tiles.c), compared with oneDNN's products of bfloat16 (2026-11-29) -- */
  TILES_CHANNELS = 16,                                /* least channels; rounded up to 32s */

  /* -- one channel per group (depthwise.c) -- */
  /* most bytes of the padded rows of a plane: half of a first-level cache of 32 KiB */
  DEPTHWISE_PIECE = 16 << 10,
};

/* Nanoseconds per element: of a packed weight, of a bias's gradient, of sums in weight_outer.c. */
#define CONV_STRIP_NS (PARALLEL_CHUNK_NS / 100000)
#define CONV_BIAS_NS (PARALLEL_CHUNK_NS / 200000)
#define OUTER_ADD_NS (PARALLEL_CHUNK_NS / 65536)
/* Nanoseconds per multiply-add of depthwise.c: of gradients, of forward. */
#define DEPTHWISE_NS (PARALLEL_CHUNK_NS / 100000)
#define DEPTHWISE_FORWARD_NS (PARALLEL_CHUNK_NS / 400000)
/* Nanoseconds per element of a packed 8-bit weight (levels.c). */
#define LEVELS_PACK_NS (PARALLEL_CHUNK_NS / 30000)
/* Nanoseconds per step of 2 x 2 tiles (tiles.c, tiles_weight.c): 35 to 60 (2026-11-29). */
#define NS_TILES 50.0
/* Nanoseconds per channel and panel of filters of Winograd's packed weight. */
#define WINOGRAD_PACK_NS (PARALLEL_CHUNK_NS / 500)

/* Winograd, compared with oneDNN's direct kernels (2026-11-22). Transforming the weight pays only
** with enough tiles, more of them if it is done at each run; gradients need fewer tiles, since
** their direct kernels are slower. */
enum {
  WINOGRAD_MIN_CHANNELS = 16,    /* least channels and filters */
  WINOGRAD_MIN_TILES_KEPT = 16,  /* if the transformed weight is kept */
  WINOGRAD_MIN_TILES_FRESH = 32, /* if the weight is transformed at each run */
  WINOGRAD_MIN_TILES_BACKWARD = 16,
  /* the transformed weight is kept with fewer tiles, or with at most this many products */
  WINOGRAD_KEEP_BELOW_TILES = 32,
  WINOGRAD_KEEP_UP_TO_PRODUCTS = 30 << 20,

  /* bytes of a group's planes: most of a second-level cache of 512 KiB */
  WINOGRAD_CACHE = 384 << 10,
  /* least tiles of a group; with fewer, reading the weight dominates */
  WINOGRAD_GROUP = 24,
  /* least filters of a part; with fewer, transforming all of x dominates */
  WINOGRAD_PART = 64,

  /* -- a weight that is packed part by part -- */
  WINOGRAD_LATE_WEIGHT = 12 << 20,                    /* least bytes of the weight */
  WINOGRAD_LATE_PLANES = 16 << 20,                    /* most bytes of all tiles' planes */
  WINOGRAD_LATE_PART = 5 << 19,                       /* bytes of a part of the weight */
  WINOGRAD_LATE_TILES = 8,                            /* tiles that a unit transforms */

  /* -- gradient of the weight -- */
  WINOGRAD_MIN_TILES = 64,                            /* least tiles at a time */
  WINOGRAD_MAX_TILES = 256,                           /* most tiles at a time */
  WINOGRAD_SHARES = 16,                               /* most shares of the tiles */
  WINOGRAD_SUMS = 12 << 20,                           /* most bytes of the shares' sums */
};
