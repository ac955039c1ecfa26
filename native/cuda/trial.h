/* trial.h - times the algorithms that a library offers for a computation, and chooses the
** fastest. */
#pragma once
#include "cuda/cuda.h"

enum { TRIAL_WAYS = 8 };                              /* most algorithms that are timed */

/* n algorithms for one computation, in the library's order. */
struct trial {
  int device, n;
  size_t bytes;                                       /* device memory that each of them may use */
  /* Starts algorithm i on this thread's stream, in that memory, which is zeros at first. Returns
  ** false if the library refuses. */
  bool (*start)(void *of, int i, char *memory);
  void *of;
};

/* Returns how many algorithms to request from a library: 1 unless TYCHO_TUNE is 1. */
int trial_ways(void);
/* Returns the algorithm to use; 0 if there is only one or none can be timed. what: the key of the
** choice, which names the computation and the library's version. Choices are kept in the process
** and on disk. A thread that serves the device's queue times nothing: it uses an earlier choice, or
** 0. */
int trial_choose(const struct trial *t, const char *what);
