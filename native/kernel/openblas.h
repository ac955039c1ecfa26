/* openblas.h - checks that OpenBLAS can allocate its buffers. It allocates one per calling thread
** and keeps it for ever; if the system refuses, it retries without end. So call openblas_enter
** first. */
#pragma once
#include "kernel/kernel.h"

/* Call it before `threads` threads call OpenBLAS. Fails with TY_EMEMORY if their buffers do not
** fit; then do not call openblas_leave. */
int openblas_enter(int threads);
/* Ends openblas_enter; call it after the calls of OpenBLAS, with the same `threads`. */
void openblas_leave(int threads);
