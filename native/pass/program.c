/* program.c - a compiled program: the pointers of its operands, the run of one step, freeing. An
** operand is an offset in a device's pool or a bound array; pointers are written when an executor
** is bound, and again whenever a pool has moved.
*/
#include "pass/passes.h"

/* -- pointers ---------------------------------------------------------------------------------- */

static void *program_find_pointer(const struct program *p, const struct bases *b, int v)
{
  const struct value *x = &p->value[v], *r = &p->value[x->root];
  if (r->kind == V_BOUND) return b->bound[r->bound];
  if (r->kind != V_POOL) return NULL;
  return b->pool[program_slot(p, r->device)] + r->offset;
}

static void program_resolve_node(struct program *p, struct step *st, const struct bases *b)
{
  struct call *c = &st->v.call;
  for (int k = 0; k < c->nin; k++) {
    const struct value *r = &p->value[p->value[st->in[k]].root];
    c->in[k].p = program_find_pointer(p, b, st->in[k]);
    c->in[k].version = r->kind == V_BOUND && r->first < 0
        ? b->version[program_slot(p, st->device)] + r->bound
        : NULL;
  }
  for (int k = 0; k < c->nout; k++)
    c->out[k].p = st->out[k] >= 0 ? program_find_pointer(p, b, st->out[k]) : NULL;
  if (st->fused_norm) st->fused_norm->out.p = program_find_pointer(p, b, st->fused_norm->target);
  int slot = program_slot(p, st->device);
  c->tmp = st->scratch ? b->pool[slot] + st->scratch_at : NULL;
  const int draw = p->s.g->node[st->node].draw;
  c->run = draw ? &p->s.own_run[draw - 1] : &p->run[slot];
}

void program_resolve(struct program *p, const struct bases *b)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    st->guard_at = st->guard >= 0 ? program_find_pointer(p, b, st->guard) : NULL;
    if (st->kind == STEP_NODE) program_resolve_node(p, st, b);
    if (st->end && st->scratch)
      st->end_tmp = b->pool[program_slot(p, st->device)] + st->scratch_at;
    for (int k = 0; k < st->npw; k++)
      st->operand[k] = st->pw_value[k] < 0 ? b->bound[st->bound]
                                           : program_find_pointer(p, b, st->pw_value[k]);
    if (st->kind == STEP_COPY)
      st->copy_from = program_find_pointer(p, b, st->in[0]), st->copy_to = b->bound[st->bound];
  }
}

/* -- running ----------------------------------------------------------------------------------- */

int step_skipped(const struct step *s, bool *out)
{
  uint8_t runs = 1;
  if (s->guard_at && device_kind(s->device) != TY_GPU) runs = *s->guard_at;
  else if (s->guard_at) {
    TRY(device_copy(TY_CPU, &runs, s->device, s->guard_at, 1));
    TRY(device_finish(s->device));
  }
  *out = !runs;
  return TY_OK;
}

static int program_run_node(struct step *st)
{
  if (st->before) TRY(st->before->does->run(st->before->call, st->before->n));
  TRY(invoke_run(&st->v));
  return st->after ? st->after->does->run(st->after->call, st->after->n) : TY_OK;
}

int program_run_step(struct program *p, struct step *st)
{
  bool done;
  TRY(step_skipped(st, &done));
  done |= st->fused_into && st->fused_into->done;
  if (!done && st->fused_norm) TRY(fused_norm_run(p, st, &done));
  if (done) return TY_OK;
  switch (st->kind) {
  case STEP_POINTWISE:
    if (st->end)
      return pw_run_end(st->device, st->pw, st->loop, st->operand, st->end, st->end_tmp);
    /* fall through */
  case STEP_ADD: return pw_run(st->device, st->pw, st->loop, st->operand);
  case STEP_COPY:
    return device_copy(st->device, st->copy_to, st->device, st->copy_from,
        desc_bytes(&p->s.desc[st->in[0]]));
  default: return program_run_node(st);
  }
}

void program_free(struct program *p)
{
  if (!p) return;
  for (int t = 0; p->step && t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->pw) pw_free(st->pw);
    if (st->state && st->v.kernel && st->v.kernel->done) st->v.kernel->done(st->state);
    mem_free(st->state);
  }
  struct arena a = p->arena;
  arena_done(&a);
}

/* -- what passes ask --------------------------------------------------------------------------- */

int find_value_node(const ty_graph *g, int v)
{
  int node = 0;
  for (int low = 0, high = g->n - 1; low <= high;) {
    int middle = (low + high) / 2;
    if (g->node[middle].first <= v) {
      node = middle;
      low = middle + 1;
    }
    else
      high = middle - 1;
  }
  return node;
}

int program_slot(const struct program *p, int device)
{
  for (int i = 0; i < p->ndevice; i++)
    if (p->device[i] == device) return i;
  return -1;
}

int program_fail_step(const struct program *p, const struct step *st, int code)
{
  if (st->node < 0) return code;
  const struct node *n = &p->s.g->node[st->node];
  fail_node(op_label(n), n->name, n->where);
  return code;
}
