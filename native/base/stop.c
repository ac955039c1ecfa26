/* stop.c - see stop.h. */
#include "base/stop.h"
#include <stddef.h>
#include "base/interrupt.h"

static __thread struct stop *now;

struct stop *stop_set(struct stop *s)
{
  struct stop *before = now;
  now = s;
  return before;
}

struct stop *stop_now(void) { return now; }

bool stop_wanted(void)
{
  if (!now) return false;
  if (__atomic_load_n(&now->stopped, __ATOMIC_RELAXED)) return true;
  if (!interrupt_pending() || !now->may(now->call)) return false;
  __atomic_store_n(&now->stopped, 1, __ATOMIC_RELAXED);
  return true;
}
