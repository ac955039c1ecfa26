/* run.h - runs kernels on the CPU: the interface for the driver's side. The caller must run one
** launch at a time in a process. */
#pragma once
#define CUDASIM_HOST 1
#pragma GCC visibility push(default)                   /* kernels find these in the library */
#include "../device/cudasim.h"
#pragma GCC visibility pop

enum { MAX_THREADS = 1024, MAX_DYNAMIC = 227 << 10 };

struct Launch {
  const cudasim_kernel *kernel;
  void **parameters;
  unsigned grid[3], block[3];
  size_t dynamic;                                     /* bytes of dynamic shared memory */
  char *shared;                                       /* the module's static shared variables */
  size_t shared_bytes;
};

/* Runs all blocks. NULL, or what went wrong (until the next launch). */
const char *run_launch(const Launch &launch);

/* Ends the launch because of a fault of this thread while a kernel runs; returns where none runs on
** this thread. For the handler of SIGSEGV. */
void run_fault(const char *what);

/* -- for the checker (check.cc) ---------------------------------------------------------------- */

struct Place {                                        /* of the thread that runs */
  uint32_t launch, block, epoch, warp_epoch;
  int thread;                                         /* -1: no kernel runs */
  const char *stack;
  size_t stack_bytes;
};
Place run_place(void);
/* Ends the launch after this block, with this text. Later texts of the launch are dropped. */
void run_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool run_owns(const void *p);                         /* belongs to the stand-in itself */
