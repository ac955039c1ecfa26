/* precision.c - see precision.h. */
#include "base/base.h"
#include "base/precision.h"

static __thread int chosen = -1;                      /* by ty_precision; -1: the environment's */

static int precision_of_environment(void)
{
  static int known = -1;
  int p = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (p >= 0) return p;
  const char *word = env_text("TYCHO_PRECISION", "highest");
  p = !strcmp(word, "medium") ? PRECISION_MEDIUM
      : !strcmp(word, "high") ? PRECISION_HIGH
                              : PRECISION_HIGHEST;
  __atomic_store_n(&known, p, __ATOMIC_RELAXED);
  return p;
}

int precision_now(void) { return chosen < 0 ? precision_of_environment() : chosen; }

int precision_of_flags(int flags)
{
  return flags & TY_MEDIUM ? PRECISION_MEDIUM
      : flags & TY_HIGH    ? PRECISION_HIGH
                           : PRECISION_HIGHEST;
}

int ty_precision(int which)
{
  const int before = precision_now();
  if (which >= PRECISION_HIGHEST && which <= PRECISION_MEDIUM) chosen = which;
  return before;
}
