/* rewrites.c - the list of rewrites, in the order in which they run. Afterwards the passes
** (passes.c) make a program of the graph.
*/
#include "pass/rewrite.h"
#include "base/env.h"

/* Parts of a typed graph. */
enum {
  NODES     = 1 << 0,                                 /* nodes, heads, variables */
  DESCS     = 1 << 1,                                 /* shapes and types of values */
  GRADIENTS = 1 << 2,                                 /* gradients of variables and heads */
  DEVICES   = 1 << 3,                                 /* of nodes */
  ALL       = NODES | DESCS | GRADIENTS | DEVICES,
};

static const struct {
  const char *name;
  int (*run)(struct typed_graph *x, const struct rewrite_request *r);
  int reads, writes;
} rewrites[] = {
  { "infer",        rewrite_infer,        NODES,                     DESCS },
  { "control flow", rewrite_control_flow, NODES | DESCS,             NODES | DESCS },
  { "check rows",   rewrite_check_rows,   NODES,                     0 },
  { "attention",    rewrite_attention,    NODES | DESCS,             NODES | DESCS },
  { "weight casts", rewrite_weight_casts, NODES | DESCS,             NODES },
  { "gradient",     rewrite_gradient,     NODES | DESCS,             NODES | DESCS | GRADIENTS },
  { "placement",    rewrite_placement,    NODES | DESCS | GRADIENTS, ALL },
};

/* -- checks after a rewrite -------------------------------------------------------------------- */

static bool rewrites_has_entry(const struct typed_graph *x, ty_entry e)
{
  return e.node >= 0 && e.node < x->g->n && e.out >= 0 && e.out < x->g->node[e.node].kind->nout;
}

static bool rewrites_is_sound_node(const struct typed_graph *x, int i)
{
  const struct node *n = &x->g->node[i];
  bool sound = n->guard <= i && n->forward < i;
  for (int k = 0; k < n->nin; k++) sound &= rewrites_has_entry(x, n->in[k]) && n->in[k].node < i;
  return sound;
}

/* Fails where the graph breaks the invariants of graph.h, or lacks a descriptor. */
static int rewrites_verify_graph(const struct typed_graph *x, const char *name)
{
  for (int i = 0; i < x->g->n; i++)
    NEED(rewrites_is_sound_node(x, i), TY_EINTERNAL,
        "rewrite %s: node %s reads what comes after it", name, x->g->node[i].name);
  for (int h = 0; h < x->nhead; h++)
    NEED(rewrites_has_entry(x, x->head[h]), TY_EINTERNAL, "rewrite %s: head %d is lost", name, h);
  for (int i = 0; i < x->nvariable; i++)
    NEED(x->variable[i] >= 0 && !x->g->node[x->variable[i]].op, TY_EINTERNAL,
        "rewrite %s: variable %d is lost", name, i);
  for (int v = 0; v < x->g->nvalue; v++)
    NEED(desc_known(&x->desc[v]), TY_EINTERNAL, "rewrite %s: value %d has no shape", name, v);
  return TY_OK;
}

int rewrite_all(struct typed_graph *x, const struct rewrite_request *r)
{
  const bool checks = env_number("TYCHO_VERIFY", 0) != 0;
  int known = NODES;
  for (int i = 0; i < COUNT(rewrites); i++) {
    NEED((known & rewrites[i].reads) == rewrites[i].reads, TY_EINTERNAL,
        "rewrite %s comes before what it reads", rewrites[i].name);
    TRY(rewrites[i].run(x, r));
    known |= rewrites[i].writes;
    if (checks) TRY(rewrites_verify_graph(x, rewrites[i].name));
  }
  return TY_OK;
}
