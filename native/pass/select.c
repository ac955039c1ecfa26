/* select.c - the kernel of each step that runs a node: the first candidate that accepts the call;
** for a pointwise program that ends in a reduction, the plan of the reduction. It comes before
** memory is planned, because a kernel's scratch is planned memory. Half types are converted around
** a kernel that lacks them (op/dispatch.c).
*/
#include "pass/passes.h"

/* Lists the work of other nodes that a step's kernel does. Their operands follow those of its own
** node, in order. */
static int select_fill_epilogue(struct program *p, struct step *st)
{
  const struct fusion *f = step_fusion(p, st);
  struct epilogue *e = arena_new(&p->arena, sizeof *e);
  int operand = p->s.g->node[st->node].nin;
  NEED(e, TY_EMEMORY, "out of memory: kernels");
  for (int k = 0; k < f->n; k++) {
    const struct fused_node *x = &f->node[k];
    const struct node *n = &p->s.g->node[x->node];
    struct fused_op *to = &e->op[e->n++];
    *to = (struct fused_op){ .kind = x->kind,
      .operand = x->operand.node < 0 ? -1 : operand++,
      .exponentials = x->exponentials };
    if (x->kind == PRE_LOSS_GRAD || x->kind == PRE_LOG_GRAD)
      to->param = n->kind->param;
    else
      to->act = op_act(n->op, n->kind->param);
  }
  st->v.call.epilogue = e;
  return TY_OK;
}

static bool select_overwrites_input(const struct node *n)
{
  for (int k = 0; !n->backward && !n->mirror && k < n->nin; k++)
    if (n->kind->inport[k].overwritten) return true;
  return false;
}

static bool select_has_gradient_step(const ty_graph *g, int node)
{
  for (int i = node + 1; i < g->n; i++)
    if (g->node[i].backward && g->node[i].forward == node) return true;
  return false;
}

/* Returns what failures of a node's step name; NULL: out of memory. */
static const struct origin *select_make_origin(struct program *p, const struct node *n)
{
  struct origin *o = arena_new(&p->arena, sizeof *o);
  if (!o) return NULL;
  *o = (struct origin){ arena_text(&p->arena, op_label(n)), n->name, n->where };
  return o->op ? o : NULL;
}

int step_call(struct program *p, struct step *st)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[st->node];
  struct call *c = &st->v.call;
  *c = (struct call){
    .op = n->op, .device = st->device, .param = n->kind->param, .nin = st->nin, .nout = st->nout
  };
  c->in = arena_new(&p->arena, sizeof(struct operand) * (size_t)(st->nin + 1));
  c->out = arena_new(&p->arena, sizeof(struct operand) * (size_t)(st->nout + 1));
  NEED(c->in && c->out, TY_EMEMORY, "out of memory: kernels");
  for (int k = 0; k < st->nin; k++) {
    c->in[k] = (struct operand){ OPERAND_PLANNED, s->desc[st->in[k]], NULL,
      p->value[st->in[k]].block };
    c->in[k].d.device = p->value[st->in[k]].device;
  }
  const int kept = fusion_kept(step_fusion(p, st));
  for (int k = 0; k < st->nout; k++) {
    bool read = st->out[k] >= 0;
    const int v = k < n->kind->nout ? n->first + k : s->g->node[kept].first;
    c->out[k] = (struct operand){ read ? OPERAND_PLANNED : NULL, s->desc[v], NULL,
      read ? p->value[st->out[k]].block : 0 };
    if (read && p->value[st->out[k]].add) c->add |= 1u << k;
  }
  if (device_kind(st->device) == TY_GPU) {              /* a CPU's failures are results of calls */
    c->origin = select_make_origin(p, n);
    NEED(c->origin, TY_EMEMORY, "out of memory: kernels");
  }
  c->trains = p->nforward != p->n;
  c->precision = precision_of_flags(s->flags);
  c->with_grad = select_overwrites_input(n) && select_has_gradient_step(s->g, st->node);
  c->node = n->draw ? 0 : (uint32_t)(n->forward >= 0 ? n->forward : st->node) + 1;
  st->v.backward = n->backward;
  return step_fusion(p, st) ? select_fill_epilogue(p, st) : TY_OK;
}

static int select_step(struct program *p, struct step *st)
{
  struct text why = { 0 };
  TRY(step_call(p, st));
  if (step_is_front_end(p, st)) return TY_OK;
  int code = invoke_choose(&st->v, &p->arena, &why);
  if (!code && why.n) st->why = arena_text(&p->arena, why.s);
  text_done(&why);
  if (code) {
    const struct node *n = &p->s.g->node[st->node];
    fail_node(n->op->name, n->name, n->where);
    return code;
  }
  st->scratch = st->v.scratch;
  return TY_OK;
}

static int select_end(struct program *p, struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  const ty_desc *space = space_of(&p->s, st->node);
  const struct axis_reduction r = n->op->reduction(n->kind->param, space->ndim);
  st->end = arena_new(&p->arena, sizeof *st->end);
  NEED(st->end, TY_EMEMORY, "out of memory: kernels");
  *st->end = (struct pw_end){ .kind = r.kind, .finish = r.finish, .dtype = space->dtype };
  reduce_plan(space, r.axes, &st->end->over);
  st->scratch = align_up(pw_end_scratch(st->device, st->end), ALIGN);
  return TY_OK;
}

int pass_select(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    if (p->step[t].kind == STEP_NODE) TRY(select_step(p, &p->step[t]));
    if (ends_in_reduction(p, &p->step[t])) TRY(select_end(p, &p->step[t]));
  }
  return TY_OK;
}
