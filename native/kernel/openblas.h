/* openblas.h - memory that OpenBLAS takes for itself: a buffer per thread that calls it, kept for
** ever. Where the system refuses one, it asks again without end; so callers enter first. */
#pragma once
#include "kernel/kernel.h"

/* Prepares OpenBLAS for calls by this thread. TY_EMEMORY: there is no room for this many threads
** more, and nothing to leave. */
int openblas_enter(int threads);
void openblas_leave(int threads);
