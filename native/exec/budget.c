/* budget.c - recomputation until a plan fits a budget of bytes.
**
** Levels, from nothing recomputed to nearly everything: 0 only what carries the attribute, 1
** what is cheap (the rule of force_mirroring), n > 1 every node but one in 2^(n-1), which are kept
** as points to start from. The fewer points are kept, the more values between two of them live at
** once, so the least memory is at a level in between. The first level whose plan fits is taken; if
** none fits, the failure says how many bytes the smallest plan has.
*/
#include "exec/inner.h"

enum { LEVELS = 12 };

int exec_make_within_budget(const struct exec_source *s, ty_exec **out)
{
  if (s->budget <= 0) return exec_make(s, out);
  int64_t least = INT64_MAX;
  for (int level = 0; level < LEVELS; level++) {
    struct exec_source dry = *s;                        /* its plan is made, no array is */
    ty_exec *e;
    dry.recompute_level = level;
    dry.flags |= TY_DRY_RUN;
    dry.pool = NULL;
    TRY(exec_make(&dry, &e));
    const struct program *p = e->variant[FUSED];
    int64_t bytes = 0;
    for (int i = 0; i < p->ndevice; i++) bytes += p->pool[i];
    ty_exec_free(e);
    least = MIN(least, bytes);
    if (bytes > s->budget) continue;
    struct exec_source chosen = *s;
    chosen.recompute_level = level;
    return exec_make(&chosen, out);
  }
  char want[32], got[32];
  int code = fail(TY_EMEMORY,
      "bind: no recomputation fits memory_budget = %lld bytes; the least is %lld",
      (long long)s->budget, (long long)least);
  snprintf(want, sizeof want, "%lld", (long long)least);
  snprintf(got, sizeof got, "%lld", (long long)s->budget);
  fail_argument("memory_budget", want, got);
  return code;
}
