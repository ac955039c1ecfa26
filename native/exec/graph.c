/* graph.c - takes the user's graph into an executor and rewrites it (pass/rewrites.c). */
#include "exec/inner.h"
#include "pass/extract.h"
#include "pass/gradient.h"

bool exec_fuses(const ty_exec *e)
{
  return !(e->flags & TY_NOFUSE) && env_number("TYCHO_FUSE", 1);
}

int exec_take_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x)
{
  const int nextra = s->nend + s->nknown, n = s->nhead + nextra;
  x->nhead = e->graph.nhead = s->nhead;
  x->nextra = nextra;
  x->head = NEWS(ty_entry, n + 1);
  x->extra = NEWS(ty_entry, nextra + 1);
  e->graph.user_head = NEWS(ty_entry, n + 1);
  NEED(x->head && x->extra && e->graph.user_head, TY_EMEMORY, "out of memory: executor");
  for (int i = 0; i < s->nhead; i++) e->graph.user_head[i] = s->head[i];
  for (int i = 0; i < s->nend; i++) e->graph.user_head[s->nhead + i] = s->end[i];
  for (int i = 0; i < s->nknown; i++) e->graph.user_head[s->nhead + s->nend + i] = s->known[i];
  e->graph.user = s->g;
  ty_graph_keep(s->g);
  const bool merge = !nextra && env_number("TYCHO_CSE", 1);
  TRY(graph_extract(s->g, e->graph.user_head, n, merge, &x->g, x->head));
  for (int i = 0; i < nextra; i++) x->extra[i] = x->head[s->nhead + i];
  return TY_OK;
}

/* what is known of each variable */
struct variables_known {
  ty_desc *desc;
  bool *with_grad;
  int *device;                                        /* of its array, -1: there is none */
  int *grad_device;                                   /* of its gradient's array, -1: none */
};

/* Fills in variables from .. from + n - 1. desc: of the given ones, where there are no arrays. */
static int graph_describe_variables(
    ty_exec *e, const ty_bind *given, int ngiven, const ty_desc *desc, int from, int n,
    struct variables_known *k)
{
  struct names names;
  TRY(names_index(&names, given, sizeof *given, ngiven));
  for (int i = from; i < from + n; i++) {
    const struct bound *b = exec_variable_at(e, i);
    const int at = names_first(&names, b->name);
    const bool seeded = !b->value && desc && at >= 0;
    k->desc[i] = b->value ? b->value->d : seeded ? desc[at] : (ty_desc){ .dtype = TY_NODTYPE };
    k->with_grad[i] = b->req != TY_NULL;
    k->device[i] = b->value ? b->value->d.device : -1;
    k->grad_device[i] = b->grad ? b->grad->d.device : -1;
  }
  names_done(&names);
  return TY_OK;
}

/* Marks the nodes that backward computes again (struct rewrite_request). */
static void graph_mark_mirrors(const struct typed_graph *x, void *context, uint8_t *mark)
{
  ty_exec *e = context;
  const int level = e->recompute_level, every = 1 << MAX(level - 1, 0);
  const bool all = e->flags & TY_MIRROR || env_number("TYCHO_MIRROR", 0) || level == 1;
  int seen = 0;
  for (int i = 0; i < x->g->n; i++) {
    const struct node *n = &x->g->node[i];
    mark[i] = node_is_mirrored(n, all);
    if (level >= 2 && n->op && !(n->op->flags & (OP_RANDOM | OP_CALLBACK | OP_LOSS)))
      mark[i] = ++seen % every != 0;
  }
}

static int graph_run_rewrites(
    ty_exec *e, const struct exec_source *s, struct typed_graph *x, struct variables_known *k)
{
  TRY(graph_describe_variables(e, s->arg, s->narg, s->arg_desc, 0, e->bind.narg, k));
  TRY(graph_describe_variables(e, s->aux, s->naux, s->aux_desc, e->bind.narg, e->bind.naux, k));
  const struct rewrite_request r = { .variable = k->desc,
    .with_grad = k->with_grad,
    .head_has_grad = s->head_has_grad,
    .mark_mirrors = graph_mark_mirrors,
    .context = e,
    .sum_cap = (int)env_number("TYCHO_GRAD_SUM_CAP", 8),
    .as_written = e->flags & TY_AS_WRITTEN || !exec_fuses(e),
    .default_device = e->default_device,
    .precision = precision_of_flags(e->flags),
    .group = e->place,
    .ngroup = e->nplace,
    .array_device = k->device,
    .grad_device = k->grad_device };
  return rewrite_all(x, &r);
}

/* Lists the arrays of values that are known, and those that values are written into. */
static int graph_add_ends(ty_exec *e, const struct exec_source *s, const struct typed_graph *x)
{
  e->bind.known_of = NEWS(int, x->g->nvalue + 1);
  e->bind.end = NEWS(ty_entry, s->nend + 1);
  e->bind.end_bound = NEWS(int, s->nend + 1);
  e->bind.known_bound = NEWS(int, s->nknown + 1);
  NEED(e->bind.known_of && e->bind.end && e->bind.end_bound && e->bind.known_bound, TY_EMEMORY,
      "out of memory: executor");
  for (int v = 0; v < x->g->nvalue; v++) e->bind.known_of[v] = -1;
  for (int i = 0; i < s->nknown; i++) {
    const int v = value_of(x->g, x->extra[s->nend + i]);
    if (x->g->node[x->extra[s->nend + i].node].op)
      TRY(exec_add_bound(e, s->known_array[i], &e->bind.known_of[v]));
    e->bind.known_bound[i] = e->bind.known_of[v];
  }
  e->bind.nknown = s->nknown;
  e->bind.nend = s->nend;
  for (int i = 0; i < s->nend; i++) {
    e->bind.end[i] = x->extra[i];
    TRY(exec_add_bound(e, s->end_array[i], &e->bind.end_bound[i]));
  }
  return TY_OK;
}

int exec_rewrite_graph(ty_exec *e, const struct exec_source *s, struct typed_graph *x)
{
  const int n = e->bind.narg + e->bind.naux;
  struct variables_known k = { NEWS(ty_desc, n + 1), NEWS(bool, n + 1), NEWS(int, n + 1),
    NEWS(int, n + 1) };
  x->nvariable = n;
  x->variable = NEWS(int, n + 1);
  const bool enough = k.desc && k.with_grad && k.device && k.grad_device && x->variable;
  for (int i = 0; enough && i < n; i++) x->variable[i] = exec_variable_at(e, i)->node;
  int code = enough ? graph_run_rewrites(e, s, x, &k) : fail(TY_EMEMORY, "out of memory: executor");
  mem_free(k.desc);
  mem_free(k.with_grad);
  mem_free(k.device);
  mem_free(k.grad_device);
  if (!code) code = graph_add_ends(e, s, x);
  if (code) return code;
  /* rewrites have allocated for several times as many */
  ty_desc *desc = mem_grow(x->desc, sizeof *desc * (size_t)(x->g->nvalue + 1));
  NEED(desc, TY_EMEMORY, "out of memory: executor");
  x->desc = desc;
  for (int i = 0; i < x->nvariable; i++) exec_variable_at(e, i)->node = x->variable[i];
  for (int i = 0; i < e->bind.narg; i++) e->graph.with_grad |= e->bind.arg[i].req != TY_NULL;
  for (int i = 0; i < x->g->n; i++)
    e->graph.with_grad |= x->g->node[i].op && x->g->node[i].op->flags & OP_FUSED_UPDATE;
  e->graph.g = x->g;
  e->graph.desc = x->desc;
  e->graph.device = x->device;
  e->graph.forward = x->forward;
  e->graph.replaced = x->replaced;
  e->graph.head = x->head;
  e->graph.grad_entry = x->grad;
  e->graph.head_grad_entry = x->head_grad;
  mem_free(x->variable);
  mem_free(x->extra);
  *x = (struct typed_graph){ 0 };
  return TY_OK;
}
