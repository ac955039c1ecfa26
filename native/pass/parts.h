/* parts.h - the parts of a program that passes.c says passes read and write, and in builds with
** TY_CHECK_PASSES (debug, sanitizers) the check that they read and write no others.
*/
#pragma once
#include "pass/program.h"

enum {
  GRAPH     = 1 << 0,                                 /* nodes, descriptors, devices */
  GROUPS    = 1 << 1,                                 /* element-wise nodes that run as one */
  EPILOGUES = 1 << 2,                                 /* what kernels do of their neighbours */
  STEPS     = 1 << 3,                                 /* what runs, in order */
  ROOTS     = 1 << 4,                                 /* of values that share bytes; operands */
  BLOCKS    = 1 << 5,                                 /* channels of values in blocks */
  KERNELS   = 1 << 6,                                 /* with their scratch */
  LIFETIMES = 1 << 7,                                 /* of roots, which are final */
  NORMS     = 1 << 8,                                 /* normalisations that products may do */
  OFFSETS   = 1 << 9,                                 /* of values and scratch */
  STATES    = 1 << 10,                                /* memory of kernels */
  CODE      = 1 << 11,                                /* pointwise programs */
  SEGMENTS  = 1 << 12,
};

/* Runs a pass. In checking builds, parts that it does not declare hold nonsense while it runs, and
** one that it has written without declaring it fails with TY_EINTERNAL. */
int parts_run(struct program *p, const char *name, int (*run)(struct program *), int reads,
    int writes);
