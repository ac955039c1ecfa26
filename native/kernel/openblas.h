/* openblas.h - checks that OpenBLAS can allocate its buffers: it allocates one per calling thread,
** which it keeps for ever, and if the system refuses, it retries without end. So enter before
** calling it. */
#pragma once
#include "kernel/kernel.h"

/* Call it before calls of OpenBLAS by `threads` threads. Fails with TY_EMEMORY if their buffers do
** not fit; then do not call openblas_leave. */
int openblas_enter(int threads);
/* Ends what openblas_enter began. */
void openblas_leave(int threads);
