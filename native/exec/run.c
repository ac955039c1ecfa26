/* run.c - runs an executor: forward, backward, the gradients of heads, and the continuation of runs
** after an event.
**
** A run is one task per segment (submit.c), or goes node by node between events (walk.c). A segment
** waits for the segments of other devices that it reads from; the first segments wait for
** everything that still runs in the pool.
*/
#include "exec/inner.h"

/* Begins a forward, which takes a new random state. *p: the variant that runs. */
static int run_start(ty_exec *e, const char *what, int which, int is_train, struct program **p)
{
  TRY(exec_need_memory(e, what));
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  TRY(exec_choose_variant(e, which, p));
  e->run.context = (struct run){ 0 };
  e->run.drawn = false;
  exec_set_mode(e, is_train != 0);
  e->run.variant = which;
  e->run.forward_train = is_train;
  e->run.walking = false;
  exec_enter(e, ON_FORWARD);
  return TY_OK;
}

static int run_forward(ty_exec *e, int is_train)
{
  struct program *p;
  bool unfused = e && (e->monitor || e->check);
  TRY(run_start(e, "forward", unfused ? UNFUSED : FUSED, is_train, &p));
  e->stats.runs++;
  e->run.walking = e->monitor;
  e->run.node = e->run.item = 0;
  return exec_settle(
      e, e->run.walking ? exec_walk(e) : exec_submit_all(e, p, 0, p->nsegment_forward));
}

int ty_exec_forward(ty_exec *e, int is_train)
{
  int64_t from = profile_begin();
  int code = run_forward(e, is_train);
  profile_call("Executor:forward", from);
  return code;
}

/* -- backward ---------------------------------------------------------------------------------- */

/* Checks that each head gradient that is given has its output's shape, or, where a run fills the
** output in part, as many rows as the run filled. */
static int run_check_heads(const ty_exec *e, ty_tensor *const *head, int n)
{
  NEED(n <= e->graph.nhead, TY_ESHAPE, "backward: %d head gradients for %d outputs", n,
      e->graph.nhead);
  for (int h = 0; h < n; h++) {
    const ty_tensor *t = head[h];
    if (!t) continue;
    const struct node *of = &e->graph.g->node[e->graph.head[h].node];
    const ty_desc *d = &e->graph.desc[value_of(e->graph.g, e->graph.head[h])];
    ty_desc want = *d;
    const bool rows = of->op && of->op->flags & OP_DYNAMIC_ROWS && t->d.ndim == want.ndim;
    if (rows && t->d.dim[0] <= want.dim[0]) want.dim[0] = t->d.dim[0];
    if (desc_same_shape(&t->d, &want)) continue;
    char expected[160], got[160], name[512];
    output_name(of, e->graph.head[h].out, name, sizeof name);
    int code = fail(TY_ESHAPE,
        "backward: the gradient of output %s has shape %s, but the output has %s", name,
        text_shape(&t->d, got, sizeof got), text_shape(d, expected, sizeof expected));
    fail_argument(name, expected, got);
    return code;
  }
  return TY_OK;
}

int exec_give_heads(ty_exec *e, ty_tensor *const *head, int n)
{
  TRY(run_check_heads(e, head, n));
  for (int h = 0; h < n; h++) {
    if (e->bind.head_grad[h] < 0 || !head[h]) continue;
    ty_tensor *part, *to = e->bind.bound[e->bind.head_grad[h]];
    if (head[h]->d.dim[0] == to->d.dim[0]) {
      TRY(ty_tensor_copy(to, head[h]));
      continue;
    }
    ty_desc d = to->d;
    d.dim[0] = head[h]->d.dim[0];
    TRY(ty_tensor_view(to, &d, 0, &part));
    int code = ty_tensor_copy(part, head[h]);
    ty_tensor_free(part);
    TRY(code);
  }
  return TY_OK;
}

/* Checks the head gradients that are given, and that no head that needs one lacks it. */
static int run_need_heads(const ty_exec *e, ty_tensor *const *head, int n)
{
  TRY(run_check_heads(e, head, n));
  for (int h = 0; h < e->graph.nhead; h++) {
    if (e->bind.head_grad[h] < 0 || (h < n && head[h])) continue;
    const struct node *f = &e->graph.g->node[e->graph.head[h].node];
    const bool callback = f->op && f->op->flags & OP_CALLBACK;
    int code = fail(TY_EVALUE,
        "backward: output %d (%s) is no loss, so its gradient must be given in out_grads%s", h,
        f->name, callback ? "; the description of a loss says need_top_grad = false" : "");
    fail_node(f->op ? f->op->name : NULL, f->name, f->where);
    fail_argument("out_grads", "an array for this output", "nothing");
    return code;
  }
  return TY_OK;
}

/* Runs the nodes of backward, after forward or after it has been repeated. */
static int run_backward_nodes(ty_exec *e, struct program *p)
{
  exec_set_mode(e, e->run.backward_train);
  e->run.walking = e->monitor && e->run.variant != FUSED;
  e->run.node = e->graph.forward;
  e->run.item = 0;
  return e->run.walking ? exec_walk(e)
                        : exec_submit_all(e, p, p->nsegment_forward, p->nsegment);
}

/* Continues with backward after forward was repeated. code: the result of that forward; after a
** failure, what backward would have written is marked as failed. */
static int run_after_repeated(ty_exec *e, struct program *p, int code)
{
  if (code > 0) return exec_abandon(p, p->nsegment_forward, p->nsegment, code);
  if (code) return code;
  exec_enter(e, ON_REPEATED);
  return run_backward_nodes(e, p);
}

/* Runs backward, after forward once more where the last backward has used its results up. */
static int run_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  struct program *p;
  TRY(exec_need_memory(e, "backward"));
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  if (!e->graph.with_grad) return TY_OK;
  NEED(exec_allows(e, ON_BACKWARD), TY_ESTATE, "backward: call forward first");
  TRY(run_need_heads(e, head, n));
  TRY(exec_give_heads(e, head, n));
  TRY(exec_choose_variant(e, e->run.variant, &p));
  e->run.backward_train = is_train != 0;
  exec_enter(e, ON_BACKWARD);
  if (e->run.phase == RUN_BACKWARD) return exec_settle(e, run_backward_nodes(e, p));
  e->run.context.is_train = e->run.forward_train;
  e->run.walking = false;
  return exec_settle(e, run_after_repeated(e, p, exec_submit_all(e, p, 0, p->nsegment_forward)));
}

int ty_exec_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  int64_t from = profile_begin();
  int code = run_backward(e, head, n, is_train);
  profile_call("Executor:backward", from);
  return code;
}

int ty_exec_partial_forward(ty_exec *e, int is_train, int step, int *step_left)
{
  struct program *p;
  TRY(exec_need_memory(e, "partial_forward"));
  NEED(step >= 0, TY_EINDEX, "partial_forward: step %d; expected 0 to %d", step,
      e->graph.forward - 1);
  NEED(step_left, TY_ETYPE, "partial_forward: null argument");
  *step_left = step < e->graph.forward ? e->graph.forward - step - 1 : 0;
  if (step >= e->graph.forward) return TY_OK;
  if (step == 0 || e->run.variant != UNFUSED)
    TRY(run_start(e, "partial_forward", UNFUSED, is_train, &p));
  else
    TRY(exec_choose_variant(e, UNFUSED, &p));
  exec_enter(e, ON_NODE);
  exec_set_mode(e, is_train != 0);
  e->run.walking = true;
  e->run.node = step;
  int code = exec_run_node(e, p, step);
  if (code > 0) code = exec_abandon(p, 0, p->nsegment_forward, code);
  return exec_settle(e, code);
}

/* -- after an event ---------------------------------------------------------------------------- */

int ty_exec_abandon(ty_exec *e, const char *why)
{
  TRY(exec_need_memory(e, "abandon"));
  NEED(why, TY_ETYPE, "abandon: null argument");
  if (!e->run.waiting) return TY_OK;
  struct program *p = exec_current_program(e);
  int code = fail(TY_ERUN, "%s", why);
  fail_node(e->event.op, e->event.node, e->graph.g->node[e->run.node].where);
  if (e->run.walking)
    exec_abandon_walk(e, code);
  else
    exec_abandon(p, e->run.segment,
        e->run.phase == RUN_REPEAT ? p->nsegment : exec_end_segment(e), code);
  exec_enter(e, ON_END);
  return TY_OK;
}

int ty_exec_resume(ty_exec *e)
{
  TRY(exec_need_memory(e, "resume"));
  NEED(e->run.waiting, TY_ESTATE, "resume: there is no run to go on with");
  struct program *p = exec_current_program(e);
  const int t = e->run.walking ? p->step_of[e->run.node] : -1;
  const int segment = !e->run.walking          ? e->run.segment
      : t >= 0 && step_is_front_end(p, &p->step[t]) ? find_segment(p, t)
                                               : -1;
  e->run.waiting = false;
  /* what the front end has written in its segment was written without failure */
  for (int k = 0; segment >= 0 && k < p->segment[segment].nwrite; k++)
    storage_mark(&p->segment[segment].write[k], NULL);
  if (e->run.walking) return exec_settle(e, exec_walk(e));
  int code = exec_submit_all(e, p, segment + 1, exec_end_segment(e));
  if (e->run.phase == RUN_REPEAT) code = run_after_repeated(e, p, code);
  return exec_settle(e, code);
}

/* -- programs of recorded calls ---------------------------------------------------------------- */

int exec_prepare_whole(ty_exec *e)
{
  struct program *p;
  return exec_choose_variant(e, exec_fuses(e) ? FUSED : UNFUSED, &p);
}

int exec_run_whole(ty_exec *e, const struct run *own, bool is_train)
{
  struct program *p;
  const int which = exec_fuses(e) ? FUSED : UNFUSED;
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  TRY(exec_choose_variant(e, which, &p));
  e->run.context = (struct run){ .is_train = is_train };
  e->run.variant = which;
  e->run.walking = false;
  exec_enter(e, ON_WHOLE);
  if (e->nown) {
    exec_wait_runs(e);                                  /* their kernels read own_run */
    memcpy(e->own_run, own, sizeof *own * (size_t)e->nown);
  }
  return exec_settle(e, exec_submit_all(e, p, 0, p->nsegment));
}

void exec_mark_read(const ty_exec *e, uint8_t *read)
{
  const struct program *p = e->variant[FUSED];
  for (int v = 0; v < e->graph.g->nvalue; v++) {
    const struct value *r = &p->value[p->value[v].root];
    if (p->value[v].nread && r->kind == V_BOUND) read[r->bound] = 1;
  }
}
