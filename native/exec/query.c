/* query.c - answers questions about an executor: arrays, names, memory, timings; sets switches. */
#include "exec/inner.h"
#include "pass/extract.h"

/* -- arrays ------------------------------------------------------------------------------------ */

static const struct bound *query_find_bound(
    const struct bound *b, const struct names *names, const char *name)
{
  int i = names_first(names, name);
  return i < 0 ? NULL : &b[i];
}

static int query_fail_name(const char *what, const char *name)
{
  int code = fail(TY_ENAME, "the executor has no %s '%s'", what, name);
  fail_argument(name, what, name);
  return code;
}

int ty_exec_outputs(ty_exec *e, int *n)
{
  NEED(e && n, TY_ETYPE, "outputs: null argument");
  *n = e->graph.nhead;
  return TY_OK;
}

int ty_exec_output(ty_exec *e, int i, ty_tensor **out)
{
  NEED(e && out, TY_ETYPE, "output: null argument");
  NEED(i >= 0 && i < e->graph.nhead, TY_EINDEX, "output %d; expected 0 to %d", i,
      e->graph.nhead - 1);
  *out = e->output[i];
  return *out ? TY_OK : fail(TY_ESTATE, "output %d is an argument without array (dry_run)", i);
}

int ty_exec_arg(ty_exec *e, const char *name, ty_tensor **out)
{
  NEED(e && name && out, TY_ETYPE, "arg: null argument");
  const struct bound *b = query_find_bound(e->bind.arg, &e->bind.arg_names, name);
  if (!b) return query_fail_name("argument", name);
  *out = b->value;
  return TY_OK;
}

int ty_exec_grad(ty_exec *e, const char *name, ty_tensor **out)
{
  NEED(e && name && out, TY_ETYPE, "grad: null argument");
  const struct bound *b = query_find_bound(e->bind.arg, &e->bind.arg_names, name);
  if (!b) return query_fail_name("argument", name);
  *out = b->grad;
  return TY_OK;
}

int ty_exec_aux(ty_exec *e, const char *name, ty_tensor **out)
{
  NEED(e && name && out, TY_ETYPE, "aux: null argument");
  const struct bound *b = query_find_bound(e->bind.aux, &e->bind.aux_names, name);
  if (!b) return query_fail_name("auxiliary state", name);
  *out = b->value;
  return TY_OK;
}

int ty_exec_names(ty_exec *e, int what, const char *const **names, int *n)
{
  NEED(e && names && n, TY_ETYPE, "names: null argument");
  NEED(what >= TY_ARG && what <= TY_OUT, TY_EVALUE, "names: %d; expected TY_ARG, TY_AUX or TY_OUT",
      what);
  *n = what == TY_ARG ? e->bind.narg : what == TY_AUX ? e->bind.naux : e->graph.nhead;
  if (!e->names[what]) {
    const char **list = arena_new(&e->arena, sizeof *list * (size_t)(*n + 1));
    NEED(list, TY_EMEMORY, "out of memory");
    for (int i = 0; i < *n; i++) {
      char name[600] = "";
      if (what == TY_OUT)
        output_name(&e->graph.g->node[e->graph.head[i].node], e->graph.head[i].out, name,
            sizeof name);
      list[i] = what == TY_ARG ? e->bind.arg[i].name
          : what == TY_AUX     ? e->bind.aux[i].name
                               : arena_text(&e->arena, name);
    }
    e->names[what] = list;
  }
  *names = e->names[what];
  return TY_OK;
}

/* Returns in *rows the rows that output i has after the last run; -1: its shape is static. */
int ty_exec_rows(ty_exec *e, int i, int64_t *rows)
{
  TRY(exec_need_memory(e, "rows"));
  NEED(rows && i >= 0 && i < e->graph.nhead, TY_EINDEX, "rows: output %d of %d", i, e->graph.nhead);
  const struct node *n = &e->graph.g->node[e->graph.head[i].node];
  const struct program *p = e->variant[e->run.variant < 0 ? FUSED : e->run.variant];
  const int t = p->step_of[e->graph.head[i].node];
  const struct step *st = t < 0 ? NULL : &p->step[t];
  *rows = -1;
  if (!n->op || !(n->op->flags & OP_DYNAMIC_ROWS) || !st || !st->state) return TY_OK;
  *rows = e->graph.desc[value_of(e->graph.g, e->graph.head[i])].dim[0];
  if (e->run.variant < 0) return TY_OK;
  TRY(ty_tensor_wait(e->output[i], 0));
  *rows = *(const int64_t *)st->state;
  return TY_OK;
}

int ty_exec_regraph(ty_exec *e, ty_graph *g)
{
  NEED(e && g, TY_ETYPE, "regraph: null argument");
  NEED(g->n == e->graph.user->n, TY_EVALUE, "regraph: %d nodes, expected %d", g->n,
      e->graph.user->n);
  ty_graph_keep(g);
  ty_graph_free(e->graph.user);
  e->graph.user = g;
  return TY_OK;
}

/* Makes a graph of the forward part after merging; the caller frees it. */
int ty_exec_optimized(ty_exec *e, ty_graph **out)
{
  NEED(e && out, TY_ETYPE, "optimized: null argument");
  ty_entry *head = NEWS(ty_entry, e->graph.nhead);
  ty_graph *g;
  NEED(head, TY_EMEMORY, "out of memory");
  int code = graph_extract(e->graph.g, e->graph.head, e->graph.nhead, false, &g, head);
  if (!code)
    g->head = head, g->nhead = e->graph.nhead, *out = g;
  else
    mem_free(head);
  return code;
}

/* -- memory ------------------------------------------------------------------------------------ */

static int64_t query_variable_bytes(const ty_exec *e, const struct bound *b, const ty_tensor *t)
{
  return (int64_t)desc_bytes(t ? &t->d : &e->graph.desc[e->graph.g->node[b->node].first]);
}

int ty_exec_memory(ty_exec *e, ty_memory *out)
{
  NEED(e && out, TY_ETYPE, "memory: null argument");
  const struct program *p = e->variant[FUSED];
  ty_memory m = { 0 };
  for (int i = 0; i < p->ndevice; i++) {
    int64_t pool = 0;
    m.planned += p->pool[i];
    m.bound += p->bound[i];
    m.unshared += p->unshared[i];
    ty_pool_bytes(e->pool, p->device[i], &pool);
    m.pool += pool;
  }
  for (int i = 0; i < e->bind.narg; i++) {
    const struct bound *b = &e->bind.arg[i];
    m.args += query_variable_bytes(e, b, b->value);
    if (b->grad || b->req) m.grads += query_variable_bytes(e, b, b->grad);
  }
  for (int i = 0; i < e->bind.naux; i++) m.aux += query_variable_bytes(e, &e->bind.aux[i], NULL);
  for (int h = 0; h < e->graph.nhead; h++)
    m.outputs += (int64_t)desc_bytes(&e->graph.desc[value_of(e->graph.g, e->graph.head[h])]);
  *out = m;
  return TY_OK;
}

int ty_exec_value(ty_exec *e, int i, ty_value *out)
{
  NEED(e && out, TY_ETYPE, "value: null argument");
  NEED(i >= 0, TY_EINDEX, "value %d; expected 0 or more", i);
  const struct program *p = e->variant[FUSED];
  int k = 0;
  for (int node = 0; node < e->graph.g->n; node++) {
    const struct node *n = &e->graph.g->node[node];
    for (int j = 0; j < n->kind->nout; j++) {
      const struct value *x = &p->value[n->first + j], *r = &p->value[x->root];
      if (x->kind != V_POOL && r->kind != V_POOL) continue;
      if (k++ != i) continue;
      char name[600];
      output_name(n, j, name, sizeof name);
      const int root_node = find_value_node(e->graph.g, x->root);
      *out = (ty_value){ arena_text(&e->arena, name), n->name, x->bytes, r->offset, r->first,
        r->last, r->device, x->root == n->first + j ? -1 : root_node };
      return out->name ? TY_OK : fail(TY_EMEMORY, "out of memory");
    }
  }
  /* after the values, the ranges of scratch: each is in use while its step runs */
  for (int t = 0; t < p->n; t++) {
    const struct step *st = &p->step[t];
    if (!st->scratch || k++ != i) continue;
    char name[600];
    const char *node = st->node >= 0 ? e->graph.g->node[st->node].name : "";
    snprintf(name, sizeof name, "%s_scratch", node);
    *out = (ty_value){ arena_text(&e->arena, name), node, (int64_t)align_up(st->scratch, ALIGN),
      st->scratch_at, t, t, st->device, -1 };
    return out->name ? TY_OK : fail(TY_EMEMORY, "out of memory");
  }
  return fail(TY_EINDEX, "value: there is no value %d; the program has %d, counted from 0", i, k);
}

int ty_exec_verify(ty_exec *e)
{
  NEED(e, TY_ETYPE, "verify: null executor");
  for (int w = 0; w < VARIANTS; w++)
    if (e->variant[w]) TRY(plan_verify(e->variant[w]));
  return TY_OK;
}

/* -- timings and switches ---------------------------------------------------------------------- */

int ty_exec_stats(ty_exec *e, ty_stats *out)
{
  NEED(e && out, TY_ETYPE, "stats: null argument");
  const struct program *p = e->variant[e->run.variant >= 0 ? e->run.variant : FUSED];
  *out = e->stats;
  out->instructions = p->n;
  out->segments = p->nsegment;
  for (int t = 0; t < p->n; t++) out->ns += p->step[t].ns;
  return TY_OK;
}

/* Turns timing on at the first call; returns the last run's instructions at later ones. *n: the
** capacity of `out`, then the number of instructions. */
int ty_exec_profile(ty_exec *e, ty_sample *out, int *n)
{
  NEED(e && n, TY_ETYPE, "profile: null argument");
  struct program *p = e->variant[e->run.variant >= 0 ? e->run.variant : FUSED];
  TRY(ty_wait(e->default_device));
  exec_wait_runs(e);
  int capacity = *n;
  e->profile = true;
  *n = p->n;
  for (int t = 0; out && t < p->n && t < capacity; t++) {
    const struct step *st = &p->step[t];
    int64_t bytes = 0;
    for (int k = 0; k < st->nin; k++) bytes += (int64_t)desc_bytes(&e->graph.desc[st->in[k]]);
    for (int k = 0; k < st->nout; k++)
      if (st->out[k] >= 0) bytes += (int64_t)desc_bytes(&e->graph.desc[st->out[k]]);
    const char *label = st->node >= 0 ? arena_text(&e->arena, op_label(&e->graph.g->node[st->node]))
                                      : "copy";
    const char *name = st->node >= 0 ? e->graph.g->node[st->node].name : "";
    out[t] = (ty_sample){ label, name, bytes, st->ns };
  }
  return TY_OK;
}

int ty_exec_monitor(ty_exec *e, int mode)
{
  NEED(e, TY_ETYPE, "monitor: null executor");
  NEED(mode >= TY_MON_OFF && mode <= TY_MON_ALL, TY_EVALUE,
      "monitor: mode %d; expected TY_MON_OFF, TY_MON_OUT or TY_MON_ALL", mode);
  e->monitor = mode;
  return TY_OK;
}

int ty_exec_check(ty_exec *e, int on)
{
  NEED(e, TY_ETYPE, "check: null executor");
  exec_wait_runs(e);                                    /* tasks read e->check */
  e->check = on != 0;
  return TY_OK;
}

int ty_exec_pool(ty_exec *e, ty_pool **out)
{
  NEED(e && out, TY_ETYPE, "pool: null argument");
  *out = e->pool;
  return TY_OK;
}
