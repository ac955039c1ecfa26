/* openblas.h - memory that OpenBLAS takes for itself: a buffer per thread that calls it, kept for
** ever. Where the system refuses one, it asks again without end; so callers enter first. */
#pragma once
#include "kernel/kernel.h"

/* Prepares OpenBLAS for calls by this thread. TY_EMEMORY if its buffers for `threads` more threads
** do not fit; then do not call openblas_leave. */
int openblas_enter(int threads);
void openblas_leave(int threads);
