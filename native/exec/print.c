/* print.c - prints executors: the graph, as the reference's debug_str, and the program. */
#include "exec/inner.h"
#include "pass/extract.h"

/* -- debug_str: the logical graph -------------------------------------------------------------- */

/* Returns the input that is printed of a node: for one of backward that reads a mirror, the forward
** node that it mirrors. */
static ty_entry print_find_input(const ty_exec *e, const struct node *n, ty_entry in)
{
  const struct node *from = &e->graph.g->node[in.node];
  bool of_mirror = strstr(n->name, "_mirror") != NULL;
  if (from->mirror && n->backward && !of_mirror) return (ty_entry){ from->forward, in.out };
  return in;
}

struct printer {
  const ty_exec *e;
  struct text *t;
  uint8_t *seen;                                      /* per node: printed */
};

/* Prints node i and what it reads, depth-first; a mirror is reached through the gradients of
** mirrored nodes only. */
static void print_node(struct printer *q, int i)
{
  if (q->seen[i]) return;
  q->seen[i] = 1;
  const struct node *n = &q->e->graph.g->node[i];
  for (int k = 0; k < n->nin; k++) print_node(q, print_find_input(q->e, n, n->in[k]).node);
  char label[256];
  snprintf(label, sizeof label, "%s", op_label(n));
  if (!n->op) {
    text_add(q->t, "Variable:%s\n", n->name);
    return;
  }
  text_add(q->t, "--------------------\nOp:%s, Name=%s\nInputs:\n", label, n->name);
  for (int k = 0; k < n->nin; k++) {
    ty_entry in = print_find_input(q->e, n, n->in[k]);
    const struct node *from = &q->e->graph.g->node[in.node];
    text_add(q->t, "\targ[%d]=%s(%d)%s\n", k, from->name, in.out, from->op ? "" : " version=0");
  }
  if (n->kind->nattr) text_add(q->t, "Attrs:\n");
  for (int k = 0; k < n->kind->nattr; k++)
    text_add(q->t, "\t%s=%s\n", n->kind->attr[k].key, n->kind->attr[k].value);
}

int ty_exec_print(ty_exec *e, const char **text)
{
  NEED(e && text, TY_ETYPE, "debug_str: null argument");
  struct text *t = &e->printed;
  struct printer q = { e, t, NEWS(uint8_t, e->graph.g->n) };
  NEED(q.seen, TY_EMEMORY, "out of memory");
  ty_memory m;
  t->n = 0;
  text_add(t, "Symbol Outputs:\n");
  for (int h = 0; h < e->graph.nhead; h++) {
    const ty_entry head = e->graph.head[h];
    text_add(t, "\toutput[%d]=%s(%d)\n", h, e->graph.g->node[head.node].name, head.out);
  }
  for (int h = 0; h < e->graph.nhead; h++) print_node(&q, e->graph.head[h].node);
  for (int i = 0; i < e->bind.narg; i++)
    if (e->bind.arg[i].req && e->graph.grad_entry[i].node >= 0)
      print_node(&q, e->graph.grad_entry[i].node);
  ty_exec_memory(e, &m);
  text_add(t, "Total %lld MB allocated\nTotal 11 TempSpace resource requested\n",
      (long long)(m.planned >> 20));
  mem_free(q.seen);
  NEED(!t->lost, TY_EMEMORY, "out of memory");
  *text = t->s;
  return TY_OK;
}

/* -- the program ------------------------------------------------------------------------------- */

/* Prints how a step's products of float32 are taken, where that is not in float32. */
static void print_products(struct text *t, const struct step *st)
{
  const struct invoke *v = &st->v;
  if (st->kind != STEP_NODE || !v->kernel || !(v->kernel->flags & K_PRECISION)) return;
  const int dtype = v->call.in[0].d.dtype;
  if (v->cpu_fallback || device_kind(st->device) != TY_GPU) {
    if (cpu_multiplies_narrow() && v->call.precision == PRECISION_MEDIUM && dtype != TY_F64)
      text_add(t, "  products of bfloat16");
  }
  else if (precision_allows_tf32(v->call.precision) && (dtype == TY_F32 || v->half))
    text_add(t, "  products of TF32");
}

/* Prints the line of step i. */
static void print_step(const ty_exec *e, const struct program *p, int i, struct text *t)
{
  const struct step *st = &p->step[i];
  char at[64] = "-", shape[160], device[32];
  const char *kernel = st->kind == STEP_POINTWISE ? "pointwise"
      : st->kind == STEP_ADD                      ? "add"
      : st->kind == STEP_COPY                     ? "copy"
      : st->v.kernel                              ? st->v.kernel->name
                                                  : "host";
  int v = -1;
  for (int k = 0; k < st->nout && v < 0; k++) v = st->out[k];
  const ty_desc *d = &e->graph.desc[v >= 0 ? v : st->in[0]];
  const struct value *r = v < 0 ? NULL : &p->value[p->value[v].root];
  if (r && r->kind == V_POOL)
    snprintf(at, sizeof at, "p+0x%06llx", (unsigned long long)r->offset);
  else if (r && r->kind == V_BOUND)
    snprintf(at, sizeof at, "array %d", r->bound);
  text_add(t, "%4d  %-18s %-8s %-12s %-8s %-16s", i, kernel,
      device_name(st->device, device, sizeof device), at, dtype_name(d->dtype),
      text_shape(d, shape, sizeof shape));
  for (int k = 0; k < st->nin; k++) {
    const int node = find_value_node(e->graph.g, st->in[k]);
    const struct node *n = &e->graph.g->node[node];
    if (n->op && p->step_of[node] >= 0)
      text_add(t, " %d", p->step_of[node]);
    else
      text_add(t, " %s", n->name);
  }
  if (st->kind == STEP_POINTWISE) {
    text_add(t, "  ");
    pw_print(st->pw, t);
    if (st->end)
      text_add(t, "; %%%d by %s", st->end->operand, e->graph.g->node[st->node].op->name);
    text_add(t, "  [");
    for (int k = 0; k < st->nmember; k++)
      text_add(t, "%s%s", k ? " " : "", e->graph.g->node[p->member[st->member + k]].name);
    text_add(t, "]");
  }
  const struct fusion *f = step_fusion(p, st);
  if (st->kind == STEP_NODE) {
    text_add(t, "  [%s", e->graph.g->node[st->node].name);
    for (int k = 0; f && k < f->n; k++) text_add(t, " %s", e->graph.g->node[f->node[k].node].name);
    text_add(t, "]");
  }
  if (st->kind == STEP_NODE && !f && st->nin > e->graph.g->node[st->node].nin)
    text_add(t, "  %d products in one", 1 + (st->nin - e->graph.g->node[st->node].nin) / 2);
  if (st->fused_norm)
    text_add(t, st->fused_norm->sum < 0 ? "  does %d" : "  does %d %d", st->fused_norm->norm,
        st->fused_norm->sum);
  if (v >= 0 && p->value[v].block && device_kind(p->value[v].device) == TY_GPU)
    text_add(t, "  channels last");
  else if (v >= 0 && p->value[v].block)
    text_add(t, "  channels in %ds", p->value[v].block);
  print_products(t, st);
  if (st->kind == STEP_NODE && st->v.cpu_fallback) text_add(t, "  on the host, over copies");
  if (st->guard >= 0) text_add(t, "  if %d", p->step_of[find_value_node(e->graph.g, st->guard)]);
  if (st->why) text_add(t, "  not %s", st->why);
  text_add(t, "\n");
}

int ty_exec_program(ty_exec *e, const char **text)
{
  NEED(e && text, TY_ETYPE, "program: null argument");
  struct program *p;
  TRY(exec_variant(e, FUSED, &p));
  struct text *t = &e->printed;
  ty_memory m;
  int nodes = 0;
  for (int i = 0; i < e->graph.g->n; i++) nodes += e->graph.g->node[i].op != NULL;
  ty_exec_memory(e, &m);
  t->n = 0;
  text_add(t,
      "%d nodes -> %d instructions (%d forward) in %d segments, pool %lld bytes (unshared %lld)\n",
      nodes, p->n, p->nforward, p->nsegment, (long long)m.planned, (long long)m.unshared);
  for (int i = 0; i < p->n; i++) {
    if (i == p->nforward) text_add(t, "backward\n");
    print_step(e, p, i, t);
  }
  NEED(!t->lost, TY_EMEMORY, "out of memory");
  *text = t->s;
  return TY_OK;
}
