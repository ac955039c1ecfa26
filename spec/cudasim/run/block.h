/* block.h - the threads of one block: which one runs, which ones wait and for what. */
#pragma once
#include <stdint.h>
#include "fibre.h"
#include "run.h"

enum State { READY, AT_BARRIER, AT_WARP, DONE };

struct Thread {
  cudasim_thread me;                                  /* first: cudasim_self points here */
  Fibre *on;                                          /* none: has not begun */
  State state;
  int line;                                           /* where it waits */
  uint32_t warp_epoch;                                /* warp operations since the last barrier */
};

/* a warp operation of the lanes of a mask */
struct Meeting {
  unsigned mask, arrived;
  int line, phase;
  uint64_t value[2][33];                              /* two, since a fast lane may be one ahead */
};

struct Block {
  const Launch *launch;
  int n, done;
  Thread thread[MAX_THREADS];
  Meeting meeting[MAX_THREADS];                       /* by warp and lowest lane of the mask */
  int order[MAX_THREADS];                             /* in which threads begin */
  int ready[MAX_THREADS], head, nready;               /* a ring of threads that can go on */
  int at_barrier, barrier_line, barrier_sum, barrier_result;
  uint32_t epoch;                                     /* barriers since the block began */
  Fibre *spare, *current;
  void *main;                                         /* the stack that block_run was called on */
};
extern Block block;

/* Runs one block to its end, or until something is wrong (run_report). */
void block_run(void);
/* Forgets the stacks of a failed launch, which cannot be used again. */
void block_forget(void);
