/* tuning.h - the numbers that reductions are cut by.
**
** Results are reduced in an order that depends on these, so a change can change the last bits of
** sums. Sources: 2026-11-21, and 2026-11-23 for columns (doc/decisions.md: 0.155 to 0.105 ns per
** element of a large array).
*/
#pragma once

enum {
  REDUCE_UNIT_RESULTS = 512,                          /* results of one unit, at most */
  REDUCE_MIN_COLUMNS = 256,                           /* columns of a unit, at least */
  REDUCE_MAX_COLUMNS = 2048,                          /* columns of a unit, at most */
  REDUCE_UNITS = 16,                                  /* units that wide columns still leave */
  REDUCE_GRAIN = 1 << 15,                             /* elements worth a thread */
  REDUCE_PARTS = 64,                                  /* parts of a reduced group, at most */
  REDUCE_PART_ROW = 4096,                             /* elements of a part of a row, at least */
  REDUCE_PART_DEPTH = 96,                             /* elements of a result in a part, at least */
  /* elements up to which one core has the sum before a second one would have started */
  REDUCE_SERIAL_SUM = 100 << 10,
};
