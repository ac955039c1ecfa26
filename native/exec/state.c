/* state.c - what an executor is doing, and what its next task is told. */
#include "exec/inner.h"

int exec_need_memory(const ty_exec *e, const char *what)
{
  NEED(e, TY_ETYPE, "%s: null executor", what);
  NEED(!(e->flags & TY_DRY_RUN), TY_ESTATE,
      "%s: this executor was bound with dry_run and has no memory; bind it again without", what);
  return TY_OK;
}

void exec_note_draws(ty_exec *e)
{
  for (int i = 0; i < e->forward; i++) {
    const struct node *n = &e->g->node[i];
    for (int mode = 0; n->op && mode < 2; mode++)
      e->random[mode] |= op_draws(n->op, n->kind->param, mode);
  }
}

void exec_set_mode(ty_exec *e, bool is_train)
{
  e->last.is_train = is_train;
  if (e->drawn || !e->random[is_train]) return;
  e->last.rng = device_next_rng(e->default_device);
  e->drawn = true;
}
