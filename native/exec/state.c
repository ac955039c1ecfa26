/* state.c - the state of a run: its phases and the transitions between them, mode and draw. */
#include "exec/inner.h"

/* The next phase. ON_END is for complete, failed and abandoned runs. ON_BACKWARD in RUN_FORWARD
** comes from a script that calls backward while its forward waits for the front end. */
static const enum exec_phase transitions[RUN_PHASES][RUN_EVENTS] = {
  /* phase            ON_FORWARD   ON_NODE        ON_BACKWARD   ON_REPEATED   ON_WHOLE   ON_END */
  [RUN_NONE]      = { RUN_FORWARD, RUN_NODE,      RUN_REFUSED,  RUN_REFUSED,  RUN_WHOLE, RUN_NONE },
  [RUN_FORWARD]   = { RUN_FORWARD, RUN_NODE,      RUN_BACKWARD, RUN_REFUSED,  RUN_WHOLE, RUN_DONE },
  [RUN_DONE]      = { RUN_FORWARD, RUN_NODE,      RUN_BACKWARD, RUN_REFUSED,  RUN_WHOLE, RUN_DONE },
  [RUN_NODE]      = { RUN_FORWARD, RUN_NODE,      RUN_BACKWARD, RUN_REFUSED,  RUN_WHOLE, RUN_DONE },
  [RUN_BACKWARD]  = { RUN_FORWARD, RUN_NODE_USED, RUN_REPEAT,   RUN_REFUSED,  RUN_WHOLE, RUN_USED },
  [RUN_USED]      = { RUN_FORWARD, RUN_NODE_USED, RUN_REPEAT,   RUN_REFUSED,  RUN_WHOLE, RUN_USED },
  [RUN_NODE_USED] = { RUN_FORWARD, RUN_NODE_USED, RUN_REPEAT,   RUN_REFUSED,  RUN_WHOLE, RUN_USED },
  [RUN_REPEAT]    = { RUN_FORWARD, RUN_NODE_USED, RUN_REPEAT,   RUN_BACKWARD, RUN_WHOLE, RUN_USED },
  [RUN_WHOLE]     = { RUN_FORWARD, RUN_NODE_USED, RUN_REPEAT,   RUN_REFUSED,  RUN_WHOLE, RUN_USED },
};

bool exec_allows(const ty_exec *e, enum exec_event event)
{
  return transitions[e->run.phase][event] != RUN_REFUSED;
}

void exec_enter(ty_exec *e, enum exec_event event)
{
  const enum exec_phase next = transitions[e->run.phase][event];
  if (next != RUN_REFUSED) e->run.phase = next;
  e->run.waiting = false;
}

int exec_settle(ty_exec *e, int code)
{
  if (code < 0)
    e->run.waiting = true;
  else
    exec_enter(e, ON_END);
  return code;
}

struct program *exec_current_program(const ty_exec *e)
{
  return e->variant[e->run.variant];
}

int exec_end_segment(const ty_exec *e)
{
  const struct program *p = exec_current_program(e);
  const bool forward = e->run.phase == RUN_FORWARD || e->run.phase == RUN_REPEAT;
  return forward ? p->nsegment_forward : p->nsegment;
}

int exec_need_memory(const ty_exec *e, const char *what)
{
  NEED(e, TY_ETYPE, "%s: null executor", what);
  NEED(!(e->flags & TY_DRY_RUN), TY_ESTATE,
      "%s: this executor was bound with dry_run and has no memory; bind it again without", what);
  return TY_OK;
}

void exec_note_draws(ty_exec *e)
{
  for (int i = 0; i < e->graph.forward; i++) {
    const struct node *n = &e->graph.g->node[i];
    for (int mode = 0; n->op && mode < 2; mode++)
      e->graph.random[mode] |= op_draws(n->op, n->kind->param, mode);
  }
}

void exec_set_mode(ty_exec *e, bool is_train)
{
  e->run.context.is_train = is_train;
  if (e->run.drawn || !e->graph.random[is_train]) return;
  e->run.context.rng = device_next_rng(e->default_device);
  e->run.drawn = true;
}
