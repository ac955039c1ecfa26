/* run.c - runs an executor: forward, backward, and the gradients of heads.
**
** A run is one task per segment (segment.c), or goes node by node between events (walk.c). A
** segment waits for the segments of other devices that it reads from; the first segments wait for
** everything that still runs in the pool.
*/
#include "exec/inner.h"

int exec_state(const ty_exec *e, const char *what)
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

int exec_start(ty_exec *e, const char *what, int which, int is_train, struct program **p)
{
  TRY(exec_state(e, what));
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
  TRY(exec_start(e, "forward", unfused ? UNFUSED : FUSED, is_train, &p));
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

int exec_begin_backward(ty_exec *e, struct program *p)
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
  TRY(exec_state(e, "backward"));
  NEED(!interrupt_pending(), TY_EINTERRUPTED, "interrupted");
  if (!e->with_grad) return TY_OK;
  NEED(e->ran >= 0, TY_ESTATE, "backward: call forward first");
  TRY(run_need_heads(e, head, n));
  TRY(exec_give_heads(e, head, n));
  TRY(exec_choose_variant(e, e->ran, &p));
  e->host.train = is_train != 0;
  e->host.rerun = e->spent; /* the last backward overwrote what forward left for it */
  if (!e->spent) return exec_begin_backward(e, p);
  e->last.is_train = e->forward_train;
  int code = exec_submit_all(e, p, 0, p->nsegment_forward);
  if (code > 0) return exec_abandon(p, p->nsegment_forward, p->nsegment, code);
  return code ? code : exec_begin_backward(e, p);
}

int ty_exec_backward(ty_exec *e, ty_tensor *const *head, int n, int is_train)
{
  int64_t from = profile_begin();
  int code = run_backward(e, head, n, is_train);
  profile_call("Executor:backward", from);
  return code;
}

/* -- programs of calls that were recorded ------------------------------------------------------ */

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
