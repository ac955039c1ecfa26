/* weight_casts.c - products of bfloat16 (OP_ROUNDS_WEIGHT) read a float32 weight and bias directly
** instead of the casts that the user's graph has. The kernel rounds the weight when it packs it,
** once as long as the array stays the same, where the cast would round it in each run.
**
** A cast stays if something else reads it. Applied on CPUs, in graphs without gradients; not where
** the executor was asked for the graph as written (monitors), nor where TYCHO_DISABLE names gemm or
** weight_casts.
*/
#include "pass/rewrite.h"
#include "base/env.h"
#include "device/device.h"

/* Returns whether a node changes variable `from` in place. */
static bool casts_is_changed(const ty_graph *g, ty_entry from)
{
  for (int i = 0; i < g->n; i++)
    for (int k = 0; k < g->node[i].nin; k++) {
      const struct port *port = &g->node[i].kind->inport[k];
      if (g->node[i].in[k].node == from.node && (port->mutated || port->overwritten)) return true;
    }
  return false;
}

/* Returns the float32 variable of which entry e is a cast to bfloat16; node -1: e is none. */
static ty_entry casts_find_cast_variable(const struct typed_graph *x, ty_entry e)
{
  const ty_graph *g = x->g;
  const struct node *cast = &g->node[e.node];
  const ty_entry none = { -1, 0 };
  if (!cast->op || !(cast->op->flags & OP_CAST)) return none;
  const ty_entry from = cast->in[0];
  if (g->node[from.node].op || cast->guard) return none;
  const bool rounds = x->desc[value_of(g, e)].dtype == TY_BF16 &&
      x->desc[value_of(g, from)].dtype == TY_F32;
  return rounds && !casts_is_changed(g, from) ? from : none;
}

/* Returns whether node i is a product of bfloat16 whose weight is a cast of a variable. */
static bool casts_reads_cast_weight(const struct typed_graph *x, int i)
{
  const struct node *n = &x->g->node[i];
  return n->op && n->op->flags & OP_ROUNDS_WEIGHT && !n->guard &&
      x->desc[n->first].dtype == TY_BF16 && casts_find_cast_variable(x, n->in[1]).node >= 0;
}

/* Copies node i so that it reads the variables of which its weight and bias are casts. */
static int casts_copy_without_casts(struct mapper *m, int i)
{
  const struct node *n = &m->x->g->node[i];
  ty_entry in[3] = { mapper_input(m, i, 0) };
  for (int k = 1; k < n->nin; k++) {
    const ty_entry from = casts_find_cast_variable(m->x, n->in[k]);
    in[k] = from.node < 0 ? mapper_input(m, i, k) : m->entry[value_of(m->x->g, from)];
  }
  return mapper_copy(m, i, in);
}

int rewrite_weight_casts(struct typed_graph *x, const struct rewrite_request *r)
{
  bool any = false;
  if (r->as_written || r->ngroup || device_kind(r->default_device) != TY_CPU) return TY_OK;
  for (int i = 0; i < x->nvariable; i++)
    if (r->with_grad[i]) return TY_OK;
  for (int i = 0; i < x->g->n && !any; i++) any = casts_reads_cast_weight(x, i);
  if (!any || env_disabled("gemm") || env_disabled("weight_casts")) return TY_OK;
  struct mapper m;
  TRY(mapper_begin(&m, x));
  int code = TY_OK;
  for (int i = 0; i < x->g->n && !code; i++) {
    mapper_visit(&m, i);
    code = casts_reads_cast_weight(x, i) ? casts_copy_without_casts(&m, i)
                                         : mapper_copy(&m, i, NULL);
  }
  code = mapper_end(&m, code);
  x->replaced |= !code;
  return code;
}
