/* stop.h - lets kernels end early after Ctrl-C.
**
** The caller of a kernel declares that it may be stopped (stop_set). The kernel's threads ask
** between pieces of long work (stop_wanted, parallel_for_stoppable). If one of them has stopped,
** the call fails as interrupted. Skipping a piece must not harm the rest of the kernel: a piece may
** only write numbers of results and of scratch, never indices, sizes or state kept for later
** calls. */
#pragma once
#include <stdbool.h>

struct stop {
  bool (*may)(const void *call);                      /* called after an interruption */
  const void *call;
  int stopped;                                        /* atomic */
};

/* Sets what this thread may stop (NULL: nothing). Returns the previous value, for setting it
** back. */
struct stop *stop_set(struct stop *s);
/* Returns what this thread may stop; NULL: nothing. */
struct stop *stop_now(void);
/* Returns whether to end now and skip the remaining work. */
bool stop_wanted(void);
