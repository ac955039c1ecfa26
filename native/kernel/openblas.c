/* openblas.c - see openblas.h. Other threads can still take memory between this check and
** OpenBLAS's allocation. */
#include <sys/mman.h>
#include "base/system.h"
#include "kernel/openblas.h"

/* Bytes of a buffer of OpenBLAS; builds for other processors use less. */
#define BUFFER ((size_t)128 << 20)

static int inside;  /* threads between enter and leave; atomic */
static int buffers; /* buffers that OpenBLAS is known to have; atomic */

static int openblas_probe_memory(int missing)
{
  void *p = sys_map((size_t)missing * BUFFER, PROT_READ | PROT_WRITE);
  if (!p) return fail_memory("OpenBLAS", (size_t)missing * BUFFER, mem_bytes(), 0);
  munmap(p, (size_t)missing * BUFFER);
  return TY_OK;
}

int openblas_enter(int threads)
{
  const int now = __atomic_add_fetch(&inside, threads, __ATOMIC_ACQ_REL);
  int known = __atomic_load_n(&buffers, __ATOMIC_ACQUIRE);
  const int code = now > known ? openblas_probe_memory(now - known) : TY_OK;
  if (code) return openblas_leave(threads), code;
  while (now > known &&
      !__atomic_compare_exchange_n(
          &buffers, &known, now, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
  return TY_OK;
}

void openblas_leave(int threads) { __atomic_sub_fetch(&inside, threads, __ATOMIC_ACQ_REL); }
