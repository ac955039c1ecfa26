/* tuning.h - constants by which convolutions are divided and kernels chosen.
**
** The order of sums depends on some of these, so a change can change the last bits of results.
** Sources: `scripts/dev/bench/bench.lua` (layers), AVX2 and AVX-512, on the dates given, or else
** 2026-11-21.
*/
#pragma once
#include "kernel/grain.h"

/* multiply-adds: a larger unit of a forward product is halved while there are fewer than
** CONV_UNITS */
#define CONV_UNIT_WORK 2e6

enum {
  /* -- windows -- */
  /* most positions of a panel, or of the gradient's columns, at a time */
  CONV_COLUMNS = 128,

  /* -- packed weights that inference keeps (2026-11-22): any up to CONV_SMALL_WEIGHT, any below
  ** CONV_FEW_POSITIONS, and up to CONV_LARGE_WEIGHT below CONV_MANY_POSITIONS -- */
  CONV_FEW_POSITIONS = 256,                           /* positions of the result */
  CONV_MANY_POSITIONS = 1000,                         /* positions of the result */
  CONV_SMALL_WEIGHT = 128 << 10,                      /* bytes */
  CONV_LARGE_WEIGHT = 1 << 20,                        /* bytes */

  /* -- forward -- */
  CONV_PANELS = 4,                                    /* panels of a block of positions */
  CONV_PANELS_1X1 = 8,                                /* panels of a block of a 1 x 1 window */
  CONV_UNITS = 32,                                    /* units that are enough for a team */
  CONV_MIN_STRIPS = 3,                                /* least strips of filters of a unit */

  /* -- gradient of the data -- */
  /* rows of columns (channels x taps) that stay in the second cache */
  CONV_DATA_ROWS = 512,

  /* -- gradient of the weight -- */
  CONV_POSITIONS = 512,                               /* positions of a block */
  CONV_SHARES = 16,                                   /* shares of the images, at most */
  CONV_SHARES_BYTES = 4 << 20,                        /* bytes of the shares' sums, at most */
  CONV_GATHER_GRAIN = 100000,                         /* elements of sums added by a chunk */

  /* -- gradient of the weight, with many filters (weight_outer.c) -- */
  OUTER_FILTERS = 96,                                 /* least filters */
  OUTER_POSITIONS = 1024,                             /* most positions, for one tap */
  OUTER_ROWS = 128,                                   /* rows of columns at a time */
  OUTER_UNITS = 16,                                   /* units that are enough for a team */
  OUTER_SHARES_BYTES = 4 << 20,                       /* bytes of the shares' sums, at most */

  /* -- a few positions (few.c), beside the packed product (2026-11-28) -- */
  FEW_POSITIONS = 8,                                  /* of all images, at most */
  FEW_EACH = 4,                                       /* of each of several images, at least */
  FEW_DEPTH = 64,                                     /* channels x taps, at least */

  /* -- rounded to bfloat16 (rounded.c), beside float32 (2026-11-28) -- */
  ROUNDED_IMAGES = 8,                                 /* a thread takes whole images */
  ROUNDED_CHANNELS = 4,                               /* of a group; they go in pairs */
  ROUNDED_FILTERS = 8,                                /* of a group */
  ROUNDED_DEPTH = 64,                                 /* channels x taps, at least */

  /* -- on tiles (tiles.c), beside oneDNN's products of bfloat16 (2026-11-29) -- */
  TILES_CHANNELS = 16,                                /* they go in thirty-twos */

  /* -- one channel a group (depthwise.c) -- */
  /* bytes of a padded piece of a plane, at most: half of a first cache */
  DEPTHWISE_PIECE = 16 << 10,
};

/* nanoseconds per element: of a packed weight, of a bias's gradient, of sums in weight_outer.c */
#define CONV_STRIP_NS (PARALLEL_CHUNK_NS / 100000)
#define CONV_BIAS_NS (PARALLEL_CHUNK_NS / 200000)
#define OUTER_ADD_NS (PARALLEL_CHUNK_NS / 65536)
/* per multiply-add of depthwise.c: of gradients, of forward */
#define DEPTHWISE_NS (PARALLEL_CHUNK_NS / 100000)
#define DEPTHWISE_FORWARD_NS (PARALLEL_CHUNK_NS / 400000)
/* per element of a packed 8-bit weight (levels.c) */
#define LEVELS_PACK_NS (PARALLEL_CHUNK_NS / 30000)
/* per step of 2 x 2 tiles (tiles.c, tiles_weight.c): 35 to 60 ns (2026-11-29) */
#define NS_TILES 50.0
/* per channel of Winograd's packed weight, for each panel of filters */
#define WINOGRAD_PACK_NS (PARALLEL_CHUNK_NS / 500)

/* Winograd, compared with oneDNN's direct kernels (2026-11-22): transforming the weight pays for
** enough tiles only, for more if it is done at each run; gradients, whose direct kernels are
** slower, need fewer tiles. */
enum {
  WINOGRAD_MIN_CHANNELS = 16,    /* channels and filters */
  WINOGRAD_MIN_TILES_KEPT = 16,  /* the weight's points are kept */
  WINOGRAD_MIN_TILES_FRESH = 32, /* they are made at each run */
  WINOGRAD_MIN_TILES_BACKWARD = 16,
  /* points are kept with fewer tiles than this, or with at most this many products */
  WINOGRAD_KEEP_BELOW_TILES = 32,
  WINOGRAD_KEEP_UP_TO_PRODUCTS = 30 << 20,

  /* bytes of a group's planes: most of a second cache of 512 KiB */
  WINOGRAD_CACHE = 384 << 10,
  /* least tiles of a group; with fewer, reading the weight dominates */
  WINOGRAD_GROUP = 24,
  /* least filters of a part; with fewer, transforming all of x dominates */
  WINOGRAD_PART = 64,

  /* -- a weight that is packed part by part -- */
  WINOGRAD_LATE_WEIGHT = 12 << 20,                    /* bytes of the weight, at least */
  WINOGRAD_LATE_PLANES = 16 << 20,                    /* bytes of all tiles' planes, at most */
  WINOGRAD_LATE_PART = 5 << 19,                       /* bytes of a part of the weight */
  WINOGRAD_LATE_TILES = 8,                            /* tiles that a chunk carries */

  /* -- gradient of the weight -- */
  WINOGRAD_MIN_TILES = 64,                            /* tiles at a time, at least */
  WINOGRAD_MAX_TILES = 256,                           /* tiles at a time, at most */
  WINOGRAD_SHARES = 16,                               /* shares of the tiles, at most */
  WINOGRAD_SUMS = 12 << 20,                           /* bytes of the shares' sums, at most */
};
