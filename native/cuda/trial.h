/* trial.h - which of a library's ways to compute one thing is the fastest on this device. */
#pragma once
#include "cuda/cuda.h"

enum { TRIAL_WAYS = 8 };                              /* the most that are timed */

/* Ways to compute one thing, in the library's order. */
struct trial {
  int device, n;
  size_t bytes;                                       /* of device memory that any of them needs */
  /* Starts way i on this thread's stream, in that memory, which holds zeros at first. Returns false
  ** where the library refuses. */
  bool (*start)(void *of, int i, char *memory);
  void *of;
};

/* Returns how many ways to ask a library for: 1 unless TYCHO_TUNE is 1. */
int trial_ways(void);
/* Returns the way to take, 0 where there is one only or none can be timed. `what` says what is
** computed, by which version of the library. The choice stays for the process, and on disk for the
** next one. A thread that serves the device's queue times nothing: it takes what was chosen before,
** or 0. */
int trial_choose(const struct trial *t, const char *what);
