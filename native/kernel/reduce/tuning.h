/* tuning.h - constants that decide how reductions are divided.
**
** The order of sums depends on these, so a change can change the last bits of results. Sources:
** 2026-11-21, and 2026-11-23 for columns (doc/decisions.md: 0.155 to 0.105 ns per element of a
** large array). */
#pragma once

enum {
  REDUCE_UNIT_RESULTS = 512,                          /* most results of a unit */
  REDUCE_MIN_COLUMNS = 256,                           /* least columns of a unit */
  REDUCE_MAX_COLUMNS = 2048,                          /* most columns of a unit */
  /* units of columns are widened only while at least this many remain */
  REDUCE_UNITS = 16,
  REDUCE_GRAIN = 1 << 15,                             /* least elements for a thread */
  REDUCE_PARTS = 64,                                  /* most parts of a reduced group */
  REDUCE_PART_ROW = 4096,                             /* least elements of a part of a row */
  REDUCE_PART_DEPTH = 96,                             /* least elements per result in a part */
  /* most elements that one core sums before a second one would have started */
  REDUCE_SERIAL_SUM = 100 << 10,
};
