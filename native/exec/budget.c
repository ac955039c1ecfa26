/* budget.c - recomputation until a plan fits a budget of bytes.
**
** Levels, from nothing recomputed to nearly everything: 0 only what carries the attribute, 1
** what is cheap (the rule of force_mirroring), n > 1 every node but one in 2^(n-1), which stay
** as places to start from. More is recomputed when less is kept, but what is kept from one place
** to the next must live at once, so that the least memory lies in between. The first level whose
** plan fits is taken; if none does, the failure says the least that would do.
*/
#include "exec/exec.h"
#include "pass/gradient.h"

enum { LEVELS = 12 };

static int64_t planned_bytes(const ty_exec *e)
{
  const struct program *p = e->variant[FUSED];
  int64_t sum = 0;
  for (int i = 0; i < p->ndevice; i++) sum += p->pool[i];
  return sum;
}

/* Bytes of the plan at one level; nothing is allocated. */
static int try_level(const struct exec_source *s, int level, int64_t *bytes)
{
  struct exec_source dry = *s;
  ty_exec *e;
  dry.level = level;
  dry.flags |= TY_DRY_RUN;
  dry.pool = NULL;
  TRY(exec_make(&dry, &e));
  *bytes = planned_bytes(e);
  ty_exec_free(e);
  return TY_OK;
}

static int too_small(int64_t budget, int64_t least)
{
  char want[32], got[32];
  int code = fail(TY_EMEMORY,
      "bind: no recomputation fits memory_budget = %lld bytes; the least is %lld",
      (long long)budget, (long long)least);
  snprintf(want, sizeof want, "%lld", (long long)least);
  snprintf(got, sizeof got, "%lld", (long long)budget);
  fail_argument("memory_budget", want, got);
  return code;
}

int exec_within(const struct exec_source *s, ty_exec **out)
{
  if (s->budget <= 0) return exec_make(s, out);
  int64_t least = INT64_MAX, bytes;
  for (int level = 0; level < LEVELS; level++) {
    TRY(try_level(s, level, &bytes));
    least = MIN(least, bytes);
    if (bytes > s->budget) continue;
    struct exec_source chosen = *s;
    chosen.level = level;
    return exec_make(&chosen, out);
  }
  return too_small(s->budget, least);
}

/* Which forward nodes the backward part computes again. */
void exec_mark_mirrors(const ty_exec *e, const struct typed_graph *x, bool all, uint8_t *mark)
{
  int seen = 0, every = 1 << MAX(e->level - 1, 0);
  for (int i = 0; i < x->g->n; i++) {
    const struct node *n = &x->g->node[i];
    mark[i] = node_is_mirrored(n, all || e->level == 1);
    if (e->level < 2 || !n->op || n->op->flags & (OP_RANDOM | OP_CALLBACK | OP_LOSS)) continue;
    mark[i] = ++seen % every != 0;
  }
}
