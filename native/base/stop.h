/* stop.h - kernels that end before their work is done when Ctrl-C asks.
**
** The caller of a kernel sets what may be stopped (stop_set); its thread and its team's threads
** ask between pieces of long work (stop_wanted, parallel_for_stoppable). If one has stopped, the
** call fails as interrupted. A piece that is left out must do no harm to the rest of the kernel:
** it writes numbers of results and of scratch, never indices, sizes or what is kept for later
** calls. */
#pragma once
#include <stdbool.h>

struct stop {
  bool (*may)(const void *call);                      /* asked once there is an interruption */
  const void *call;
  int stopped;                                        /* atomic */
};

/* Makes s, or with NULL nothing, what this thread may stop; returns what was before. */
struct stop *stop_set(struct stop *s);
struct stop *stop_now(void);
/* Returns whether to end now, without the rest. */
bool stop_wanted(void);
