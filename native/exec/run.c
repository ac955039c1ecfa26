/* run.c - runs an executor: forward, backward, the gradients of heads, and runs that go on after an
** event.
**
** A run is one task per segment (submit.c), or goes node by node between events (walk.c). A segment
** waits for the segments of other devices that it reads from; the first segments wait for
** everything that still runs in the pool.
*/
#include "exec/inner.h"

static int run_start(ty_exec *e, const char *what, int which, int is_train, struct program **p)
{
  TRY(exec_need_memory(e, what));
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  TRY(exec_choose_variant(e, which, p));
  e->last = (struct run){ 0 };
  e->drawn = false;
  exec_set_mode(e, is_train != 0);
  e->ran = which;
  e->forward_train = is_train;
  e->spent = false;
  e->walk.active = false;
  e->host.p = NULL;
  e->host.rerun = false;
  return TY_OK;
}

static int run_forward(ty_exec *e, int is_train)
{
  struct program *p;
  bool unfused = e && (e->monitor || e->check);
  TRY(run_start(e, "forward", unfused ? UNFUSED : FUSED, is_train, &p));
  e->stats.runs++;
  if (!e->monitor) return exec_submit_all(e, p, 0, p->nsegment_forward);
  e->walk.active = true;
  e->walk.node = 0;
  e->walk.item = 0;
  e->walk.phase = FORWARD;
  return exec_walk(e);
}

int ty_exec_forward(ty_exec *e, int is_train)
{
  int64_t from = profile_begin();
  int code = run_forward(e, is_train);
  profile_call("Executor:forward", from);
  return code;
}

/* -- backward ---------------------------------------------------------------------------------- */

/* Checks that a head gradient has its output's shape, or, where a run fills the output in part, as
** many rows as the run filled. */
static int run_check_head(const ty_exec *e, int h, const ty_tensor *t)
{
  const struct node *n = &e->g->node[e->head[h].node];
  const ty_desc *d = &e->desc[value_of(e->g, e->head[h])];
  ty_desc want = *d;
  const bool rows = n->op && n->op->flags & OP_DYNAMIC_ROWS && t->d.ndim == want.ndim;
  if (rows && t->d.dim[0] <= want.dim[0]) want.dim[0] = t->d.dim[0];
  if (desc_same_shape(&t->d, &want)) return TY_OK;
  char expected[160], got[160], name[512];
  output_name(n, e->head[h].out, name, sizeof name);
  int code = fail(TY_ESHAPE,
      "backward: the gradient of output %s has shape %s, but the output has %s", name,
      text_shape(&t->d, got, sizeof got), text_shape(d, expected, sizeof expected));
  fail_argument(name, expected, got);
  return code;
}

int exec_give_heads(ty_exec *e, ty_tensor *const *head, int n)
{
  NEED(n <= e->nhead, TY_ESHAPE, "backward: %d head gradients for %d outputs", n, e->nhead);
  for (int h = 0; h < n; h++)
    if (head[h]) TRY(run_check_head(e, h, head[h]));
  for (int h = 0; h < n; h++) {
    if (e->head_grad[h] < 0 || !head[h]) continue;
    ty_tensor *part, *to = e->bound[e->head_grad[h]];
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

/* Checks that each head that is no loss has a gradient. */
static int run_need_heads(const ty_exec *e, ty_tensor *const *head, int n)
{
  NEED(n <= e->nhead, TY_ESHAPE, "backward: %d head gradients for %d outputs", n, e->nhead);
  for (int h = 0; h < n; h++)
    if (head[h]) TRY(run_check_head(e, h, head[h]));
  for (int h = 0; h < e->nhead; h++) {
    if (e->head_grad[h] < 0 || (h < n && head[h])) continue;
    const struct node *f = &e->g->node[e->head[h].node];
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

static int run_begin_backward(ty_exec *e, struct program *p)
{
  e->host.rerun = false;
  exec_set_mode(e, e->host.train);
  e->spent = true;
  if (!e->monitor || e->ran == FUSED)
    return exec_submit_all(e, p, p->nsegment_forward, p->nsegment);
  e->walk.active = true;
  e->walk.node = e->forward;
  e->walk.item = 0;
  e->walk.phase = BACKWARD;
  return exec_walk(e);
}

static int run_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  struct program *p;
  TRY(exec_need_memory(e, "backward"));
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  if (!e->with_grad) return TY_OK;
  NEED(e->ran >= 0, TY_ESTATE, "backward: call forward first");
  TRY(run_need_heads(e, head, n));
  TRY(exec_give_heads(e, head, n));
  TRY(exec_choose_variant(e, e->ran, &p));
  e->host.train = is_train != 0;
  e->host.rerun = e->spent; /* the last backward overwrote what forward left for it */
  if (!e->spent) return run_begin_backward(e, p);
  e->last.is_train = e->forward_train;
  int code = exec_submit_all(e, p, 0, p->nsegment_forward);
  if (code > 0) return exec_abandon(p, p->nsegment_forward, p->nsegment, code);
  return code ? code : run_begin_backward(e, p);
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
  NEED(step >= 0, TY_EINDEX, "partial_forward: step %d; expected 0 to %d", step, e->forward - 1);
  NEED(step_left, TY_ETYPE, "partial_forward: null argument");
  *step_left = step < e->forward ? e->forward - step - 1 : 0;
  if (step >= e->forward) return TY_OK;
  if (step == 0 || e->ran != UNFUSED)
    TRY(run_start(e, "partial_forward", UNFUSED, is_train, &p));
  else
    TRY(exec_choose_variant(e, UNFUSED, &p));
  exec_set_mode(e, is_train != 0);
  e->walk.active = true;
  e->walk.phase = ONE;
  e->walk.node = step;
  int code = exec_run_node(e, p, step);
  if (code != TY_EV_HOST) e->walk.active = false;
  return code > 0 ? exec_abandon(p, 0, p->nsegment_forward, code) : code;
}

/* -- runs that go on after an event ------------------------------------------------------------ */

int ty_exec_abandon(ty_exec *e, const char *why)
{
  TRY(exec_need_memory(e, "abandon"));
  NEED(why, TY_ETYPE, "abandon: null argument");
  if (!e->walk.active && !e->host.p) return TY_OK;
  struct program *p = e->host.p;
  int code = fail(TY_ERUN, "%s", why);
  fail_node(e->event.op, e->event.node, e->g->node[e->walk.node].where);
  if (!p)
    exec_abandon_walk(e, code);
  else
    exec_abandon(p, e->host.at, e->host.rerun ? p->nsegment : e->host.to, code);
  e->host.p = NULL;
  e->host.rerun = false;
  return TY_OK;
}

/* Marks what the front end has written in its segment as written without failure. */
static void run_mark_written(const struct segment *g)
{
  for (int k = 0; k < g->nwrite; k++) storage_mark(&g->write[k], NULL);
}

int ty_exec_resume(ty_exec *e)
{
  TRY(exec_need_memory(e, "resume"));
  NEED(e->walk.active || e->host.p, TY_ESTATE, "resume: there is no run to go on with");
  struct program *p = e->host.p;
  if (!p) {
    p = e->variant[UNFUSED];
    int t = p->step_of[e->walk.node];
    if (t >= 0 && step_of_host(p, &p->step[t])) run_mark_written(&p->segment[segment_of(p, t)]);
    return exec_walk(e);
  }
  run_mark_written(&p->segment[e->host.at]);
  int code = exec_submit_all(e, p, e->host.at + 1, e->host.to);
  return code || !e->host.rerun ? code : run_begin_backward(e, p);
}

/* -- programs of recorded calls ---------------------------------------------------------------- */

int exec_run_whole(ty_exec *e, const struct run *own, bool is_train)
{
  struct program *p;
  const int which = exec_fuses(e) ? FUSED : UNFUSED;
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  TRY(exec_choose_variant(e, which, &p));
  e->last = (struct run){ .is_train = is_train };
  e->ran = which;
  if (e->nown) {
    exec_wait_runs(e);                                  /* their kernels read own_run */
    memcpy(e->own_run, own, sizeof *own * (size_t)e->nown);
  }
  return exec_submit_all(e, p, 0, p->nsegment);
}

void exec_mark_read(const ty_exec *e, uint8_t *read)
{
  const struct program *p = e->variant[FUSED];
  for (int v = 0; v < e->g->nvalue; v++) {
    const struct value *r = &p->value[p->value[v].root];
    if (p->value[v].nread && r->kind == V_BOUND) read[r->bound] = 1;
  }
}
