/* gradient.c - appends to a graph the nodes that compute gradients of its variables.
**
** One reverse walk over the forward nodes. Each forward node between a requested variable
** and a head gets one gradient operator, `<node>_backward`: it reads what the operator's `grad`
** lists, and its output k is the gradient of input k. Only gradients that something reads are
** computed: none for nodes computed from a loss, which reads no head gradient. The gradient of an
** operator that updates states, or adds a part of its own, runs wherever the gradient of an input
** is read, on zeros if no head gradient comes. Contributions to one value are summed: one alone is
** used as it is, fewer than a cap become one add_n called sum_grad, more a chain of additions. Head
** gradients are variables `_head_grad_<i>`, made only where read.
** Recomputation: a node marked __force_mirroring__ (or all that qualify, under an option) gets a
** clone `<node>_mirror` right before its first reader in the backward part; backward nodes read
** the clone, so that the bytes of the first result can be reused. Invariant: a backward node's
** inputs come before it (graph/graph.h, 1). The rule of sums is the reference's.
*/
#include "pass/gradient.h"

struct list { ty_entry *e; int n, cap, links; };
struct walk {
  ty_graph *g;
  struct descs *d;
  const struct gradient_request *request;
  struct gradient *out;
  int forward;                                        /* forward nodes */
  /* per forward node: it is a requested variable, or the gradient of an input is read */
  uint8_t *need;
  /* per forward value: something reads its gradient */
  uint8_t *asked;
  /* per forward value: contributions to its gradient */
  struct list *part;
  /* per forward value: their sum; node -1: not built yet */
  ty_entry *sum;
  /* per forward node: its mirror, -1: none yet */
  int *clone;
  /* per forward value: how many contributions may come */
  int *readers;
  /* per forward node: heads are made of it */
  uint8_t *below;
};

static bool gradient_is_zero(const struct op *op)
{
  if (op->flags & OP_ZERO_GRAD) return true;
  for (int k = 0; op->formula && k < COUNT(op->formula->grad); k++)
    if (op->formula->grad[k]) return false;
  return op->formula != NULL;
}

/* -- descriptors of appended nodes ------------------------------------------------------------- */

static int gradient_note_desc(struct walk *w, int node, int out, const ty_desc *d)
{
  if (w->g->nvalue > w->d->cap) {
    int cap = w->g->nvalue * 2 + 64;
    ty_desc *more = mem_grow(w->d->d, sizeof *more * (size_t)cap);
    NEED(more, TY_EMEMORY, "out of memory: gradient");
    w->d->d = more;
    w->d->cap = cap;
  }
  w->d->d[w->g->node[node].first + out] = *d;
  return TY_OK;
}

static ty_desc gradient_desc_of(struct walk *w, ty_entry e) { return w->d->d[value_of(w->g, e)]; }

/* -- small nodes ------------------------------------------------------------------------------- */

static int gradient_append_op(struct walk *w, const char *op, const char *name, const ty_attr *attr,
    int nattr, const ty_entry *in, int nin, ty_desc d, ty_entry *out)
{
  const struct op *o = op_find(op);
  if (!o) return op_unknown(op);
  char number[16];
  ty_attr more[4];
  attr = op_counted(o, attr, &nattr, nin, more, number);
  TRY(graph_node(w->g, o, name, attr, nattr, in, nin, out));
  w->g->node[out->node].forward = -1;
  return gradient_note_desc(w, out->node, 0, &d);
}

static int gradient_append_zeros(struct walk *w, ty_desc d, ty_entry *out)
{
  struct text t = { 0 };
  for (int i = 0; i < d.ndim; i++) text_add(&t, "%s%lld", i ? ", " : "(", (long long)d.dim[i]);
  text_add(&t, d.ndim == 1 ? ",)" : ")");
  ty_attr attr[] = { { "dtype", dtype_name(d.dtype) }, { "shape", t.s } };
  int code = t.lost ? fail(TY_EMEMORY, "out of memory: gradient")
                    : gradient_append_op(w, "_zeros", "_zeros", attr, 2, NULL, 0, d, out);
  text_done(&t);
  return code;
}

static int gradient_find_head_gradient(struct walk *w, int head, ty_entry *out)
{
  char name[48];
  ty_entry *made = &w->out->head[head];
  if (made->node < 0) {
    snprintf(name, sizeof name, "_head_grad_%d", head);
    ty_desc d = gradient_desc_of(w, w->request->head[head]);
    TRY(graph_var(w->g, name, NULL, 0, made));
    w->g->node[made->node].head_gradient = true;
    TRY(gradient_note_desc(w, made->node, 0, &d));
  }
  *out = *made;
  return TY_OK;
}

/* -- contributions ----------------------------------------------------------------------------- */

/* entry.node of a contribution that is head gradient entry.out */
enum { FROM_HEAD = -2 };

/* Returns whether a sum is hidden as part of control flow: that of a value inside it is, unless the
** value is shown; any other one if all that it adds is. */
static bool gradient_sum_is_inside(
    const ty_graph *g, const struct node *of, const ty_entry *part, int n)
{
  if (of->inside) return !of->shown;
  for (int i = 0; i < n; i++)
    if (!g->node[part[i].node].inside) return false;
  return true;
}

/* Notes where a sum of contributions to a forward value is computed, and which guard it has: the
** innermost of the guards of what it adds, which is the last of them. */
static void gradient_mark_sum(
    struct walk *w, ty_entry sum, ty_entry of, const ty_entry *part, int n)
{
  struct node *s = &w->g->node[sum.node];
  s->inside = gradient_sum_is_inside(w->g, &w->g->node[of.node], part, n);
  for (int i = 0; i < n; i++) s->guard = MAX(s->guard, w->g->node[part[i].node].guard);
}

/* Adds one more link to a chain of additions: the sum so far, and what has just been computed. */
static int gradient_add_link(struct walk *w, struct list *l, ty_entry to, ty_entry part)
{
  int v = value_of(w->g, to);
  char name[32];
  ty_entry pair[2] = { l->e[0], part };
  for (int i = 0; i < 2; i++)
    if (pair[i].node == FROM_HEAD) TRY(gradient_find_head_gradient(w, pair[i].out, &pair[i]));
  bool last = ++l->links + 1 == w->readers[v];
  if (last)
    snprintf(name, sizeof name, "sum_grad_final");
  else
    snprintf(name, sizeof name, "sum_grad_%d", l->links - 1);
  TRY(gradient_append_op(w, "_grad_add", name, NULL, 0, pair, 2, w->d->d[v], &l->e[0]));
  w->g->node[l->e[0].node].partial_sum = !last;
  gradient_mark_sum(w, l->e[0], to, pair, 2);
  return TY_OK;
}

/* Adds a contribution to the gradient of a forward value. Many are summed as they come, so that
** none of them is kept until the last is computed. */
static int gradient_add_contribution(struct walk *w, ty_entry to, ty_entry part)
{
  int v = value_of(w->g, to);
  struct list *l = &w->part[v];
  if (!w->asked[v]) return TY_OK;
  if (l->n && w->readers[v] >= w->request->cap) return gradient_add_link(w, l, to, part);
  NEED(GROW(l->e, l->n, l->cap), TY_EMEMORY, "out of memory: gradient");
  l->e[l->n++] = part;
  return TY_OK;
}

/* Returns the gradient of a forward value; found = false: nothing contributes. */
static int gradient_sum_contributions(struct walk *w, ty_entry value, bool *found, ty_entry *out)
{
  int v = value_of(w->g, value);
  struct list *l = &w->part[v];
  *found = l->n > 0;
  if (!l->n) return TY_OK;
  if (w->sum[v].node < 0) {
    for (int i = 0; i < l->n; i++)
      if (l->e[i].node == FROM_HEAD) TRY(gradient_find_head_gradient(w, l->e[i].out, &l->e[i]));
    if (l->n == 1)
      w->sum[v] = l->e[0];
    else {
      TRY(gradient_append_op(w, "add_n", "sum_grad", NULL, 0, l->e, l->n, w->d->d[v], &w->sum[v]));
      gradient_mark_sum(w, w->sum[v], value, l->e, l->n);
    }
  }
  *out = w->sum[v];
  return TY_OK;
}

/* -- recomputation ----------------------------------------------------------------------------- */

bool node_is_mirrored(const struct node *n, bool all)
{
  if (!n->op || n->op->flags & (OP_CALLBACK | OP_NEVER_AGAIN)) return false;
  const char *s = node_attr(n, "__force_mirroring__");
  if (s) return !strcmp(s, "True") || !strcmp(s, "true") || !strcmp(s, "1");
  return all && !(n->op->flags & OP_SPARED);
}

/* Returns the entry that the backward part reads in place of forward entry e: its mirror's, where
** the node is recomputed. */
static int gradient_recompute_entry(struct walk *w, ty_entry e, ty_entry *out)
{
  const struct node *n = &w->g->node[e.node];
  *out = e;
  if (e.node >= w->forward || !(w->request->mirror && w->request->mirror[e.node])) return TY_OK;
  if (w->clone[e.node] < 0) {
    char name[512];
    ty_entry made;
    ty_entry *in = NEWS(ty_entry, n->nin);
    NEED(in, TY_EMEMORY, "out of memory: gradient");
    int nin = n->nin, nout = n->kind->nout, code = TY_OK;
    for (int i = 0; i < nin && !code; i++)
      code = gradient_recompute_entry(w, w->g->node[e.node].in[i], &in[i]);
    snprintf(name, sizeof name, "%s_mirror", w->g->node[e.node].name);
    if (!code) code = graph_clone(w->g, e.node, name, false, in, nin, nout, &made);
    mem_free(in);
    TRY(code);
    w->clone[e.node] = made.node;
    for (int k = 0; k < nout; k++) {
      ty_desc d = gradient_desc_of(w, (ty_entry){ e.node, k });
      TRY(gradient_note_desc(w, made.node, k, &d));
    }
  }
  *out = (ty_entry){ w->clone[e.node], e.out };
  return TY_OK;
}

/* -- one node ---------------------------------------------------------------------------------- */

/* Appends one operand of a gradient operator to in[]. */
static int gradient_read_operand(struct walk *w, int node, char kind, int k, ty_entry *in, int *nin)
{
  const struct node *n = &w->g->node[node];
  ty_entry self = { node, k };
  bool found;
  if (kind == READ_IN) return gradient_recompute_entry(w, n->in[k], &in[(*nin)++]);
  if (kind == READ_OUT) return gradient_recompute_entry(w, self, &in[(*nin)++]);
  TRY(gradient_sum_contributions(w, self, &found, &in[*nin]));
  if (!found) TRY(gradient_append_zeros(w, gradient_desc_of(w, self), &in[*nin]));
  (*nin)++;
  return TY_OK;
}

static int gradient_fail_not_differentiable(const struct node *n)
{
  int code = fail(TY_EUNSUPPORTED,
      "%s %s: operator %s has no gradient; set grad_req = \"null\" for what comes before it or put "
      "a BlockGrad in front",
      n->op->name, n->name, n->op->name);
  fail_node(n->op->name, n->name, n->where);
  return code;
}

bool gradient_is_own(const struct node *n)
{
  const bool loss = n->kind->reads && !n->kind->reads->heads;
  return loss || (n->op && n->op->flags & OP_OWN_GRADIENT);
}

/* Returns whether the gradients of a node's inputs may differ from zero. */
static bool gradient_exists_for(const struct walk *w, int node)
{
  const struct node *n = &w->g->node[node];
  if (gradient_is_own(n)) return true;
  for (int k = 0; k < n->kind->nout; k++)
    if (w->part[n->first + k].n) return true;
  return false;
}

static int gradient_append_backward(struct walk *w, int node)
{
  char name[512];
  const struct node *n = &w->g->node[node];
  ty_entry out, *in = NEWS(ty_entry, n->nin + 2 * n->kind->nout + 64);
  struct read_walk r = reads_walk(n->kind->reads, n->nin, n->kind->nout);
  int nin = 0, code = TY_OK;
  const bool cut = !gradient_exists_for(w, node); /* zeros come out as well */
  NEED(in, TY_EMEMORY, "out of memory: gradient");
  while (!code && reads_next(&r)) code = gradient_read_operand(w, node, r.kind, r.k, in, &nin);
  snprintf(name, sizeof name, "%s%s_backward", w->g->node[node].name,
      w->request->mirror && w->request->mirror[node] ? "_mirror" : "");
  if (!code) code = graph_clone(w->g, node, name, true, in, nin, w->g->node[node].nin, &out);
  mem_free(in);
  TRY(code);
  for (int k = 0; k < w->g->node[node].nin; k++) {
    ty_entry to = w->g->node[node].in[k];
    ty_desc d = gradient_desc_of(w, to);
    TRY(gradient_note_desc(w, out.node, k, &d));
    const struct formula *row = w->g->node[node].op->formula;
    if (row && (k >= COUNT(row->grad) || !row->grad[k])) continue; /* a gradient of zero */
    if (!cut && !w->g->node[node].kind->inport[k].mutated)
      TRY(gradient_add_contribution(w, to, (ty_entry){ out.node, k }));
  }
  return TY_OK;
}

/* Returns whether an operator passes its gradient on to every input unchanged, as sums do: no node
** is needed. */
static bool gradient_passes(const struct op *op)
{
  if (op->flags & OP_IDENTITY_GRAD) return true;
  if (!op->formula || op->flags & OP_BROADCAST || !op->formula->grad[1]) return false;
  for (int k = 0; k < COUNT(op->formula->grad) && op->formula->grad[k]; k++)
    if (strcmp(op->formula->grad[k], "g")) return false;
  return true;
}

static int gradient_pass_on(struct walk *w, int node)
{
  bool found;
  ty_entry g;
  TRY(gradient_sum_contributions(w, (ty_entry){ node, 0 }, &found, &g));
  for (int k = 0; found && k < w->g->node[node].nin; k++) {
    ty_entry to = w->g->node[node].in[k];
    TRY(gradient_add_contribution(w, to, g));
  }
  return TY_OK;
}

static int gradient_visit_node(struct walk *w, int node)
{
  const struct node *n = &w->g->node[node];
  if (!n->op || !w->need[node] || gradient_is_zero(n->op)) return TY_OK;
  if (gradient_passes(n->op)) return gradient_pass_on(w, node);
  const bool moves = n->kind->reads && n->kind->reads->changes;
  if (!moves && !gradient_exists_for(w, node)) return TY_OK;
  return n->kind->reads ? gradient_append_backward(w, node) : gradient_fail_not_differentiable(n);
}

/* -- the pass ---------------------------------------------------------------------------------- */

/* Marks the outputs of a node whose gradient its own gradient operator reads. */
static void gradient_mark_asked(struct walk *w, const struct node *n)
{
  struct read_walk r = reads_walk(n->kind->reads, n->nin, n->kind->nout);
  /* without `reads` there is no gradient operator: an error if a gradient arrives */
  const bool all = n->op && !n->kind->reads && !gradient_passes(n->op);
  if (!n->op || gradient_passes(n->op)) w->asked[n->first] = true;
  for (int k = 0; all && k < n->kind->nout; k++) w->asked[n->first + k] = true;
  while (reads_next(&r))
    if (r.kind == READ_HEAD) w->asked[n->first + r.k] = true;
}

static void gradient_find_needed(struct walk *w)
{
  /* below: nodes that heads are made of; others, which the graph has for their values, have no part
  ** in the gradient */
  for (int h = 0; h < w->request->nhead; h++) w->below[w->request->head[h].node] = 1;
  for (int i = w->forward - 1; i >= 0; i--)
    for (int k = 0; w->below[i] && k < w->g->node[i].nin; k++)
      w->below[w->g->node[i].in[k].node] = 1;
  for (int i = 0; i < w->forward; i++) {
    const struct node *n = &w->g->node[i];
    if (!w->below[i]) continue;
    w->need[i] = w->request->requested[i] || (n->op && n->op->flags & OP_FUSED_UPDATE);
    for (int k = 0; n->op && !gradient_is_zero(n->op) && k < n->nin; k++) {
      const int v = value_of(w->g, n->in[k]);
      w->need[i] |= w->asked[v] && !n->kind->inport[k].mutated;
      w->readers[v] += w->asked[v];
    }
    if (w->need[i]) gradient_mark_asked(w, n);
  }
}

static int gradient_collect_all(struct walk *w)
{
  for (int i = 0; i < w->forward; i++) {
    bool found;
    w->out->of[i] = (ty_entry){ -1, 0 };
    if (!w->request->requested[i]) continue;
    ty_entry self = { i, 0 };
    TRY(gradient_sum_contributions(w, self, &found, &w->out->of[i]));
    if (!found) TRY(gradient_append_zeros(w, gradient_desc_of(w, self), &w->out->of[i]));
  }
  return TY_OK;
}

/* Adds the gradients of heads. Of several heads that are one value the last one's gradient counts,
** as in the reference. */
static int gradient_contribute_heads(struct walk *w)
{
  const ty_entry *head = w->request->head;
  int n = w->request->nhead, *last = NEWS(int, w->g->nvalue), code = TY_OK;
  NEED(last, TY_EMEMORY, "out of memory: gradient");
  for (int h = 0; h < n; h++) {
    int v = value_of(w->g, head[h]);
    if (w->request->head_has_grad && !w->request->head_has_grad[h]) continue;
    w->readers[v] += !last[v];
    last[v] = h + 1;
  }
  for (int h = 0; h < n && !code; h++)
    if (last[value_of(w->g, head[h])] == h + 1)
      code = gradient_add_contribution(w, head[h], (ty_entry){ FROM_HEAD, h });
  mem_free(last);
  return code;
}

static int gradient_run_walk(struct walk *w)
{
  for (int v = 0; v < w->g->nvalue; v++) w->sum[v].node = -1;
  for (int i = 0; i < w->forward; i++) w->clone[i] = -1;
  for (int h = 0; h < w->request->nhead; h++) w->out->head[h].node = -1;
  gradient_find_needed(w);
  TRY(gradient_contribute_heads(w));
  for (int i = w->forward - 1; i >= 0; i--) TRY(gradient_visit_node(w, i));
  return gradient_collect_all(w);
}

static int gradient_append_all(
    ty_graph *g, struct descs *d, const struct gradient_request *request, struct gradient *out)
{
  int nodes = g->n, values = g->nvalue;
  struct walk w = { g, d, request, out, nodes, NEWS(uint8_t, nodes),
    NEWS(uint8_t, values), NEWS(struct list, values),
    NEWS(ty_entry, values), NEWS(int, nodes), NEWS(int, values), NEWS(uint8_t, nodes) };
  bool enough = w.need && w.asked && w.part && w.sum && w.clone && w.readers && w.below;
  int code = enough ? gradient_run_walk(&w) : fail(TY_EMEMORY, "out of memory: gradient");
  for (int v = 0; w.part && v < values; v++) mem_free(w.part[v].e);
  mem_free(w.need);
  mem_free(w.asked);
  mem_free(w.part);
  mem_free(w.sum);
  mem_free(w.clone);
  mem_free(w.readers);
  mem_free(w.below);
  return code;
}

/* -- as a rewrite ------------------------------------------------------------------------------ */

static int gradient_run_rewrite(struct typed_graph *x, const struct rewrite_request *r,
    uint8_t *requested, uint8_t *mirror, struct gradient *out)
{
  const int nodes = x->g->n;
  bool any = false; /* is there anything to do? */
  for (int i = 0; i < nodes; i++) out->of[i].node = -1;
  for (int h = 0; h < x->nhead; h++) out->head[h].node = -1;
  for (int i = 0; i < x->nvariable; i++)
    if (r->with_grad[i]) requested[x->variable[i]] = any = true;
  for (int i = 0; i < nodes; i++)
    any |= x->g->node[i].op && x->g->node[i].op->flags & OP_FUSED_UPDATE;
  if (any) {
    if (r->mark_mirrors) r->mark_mirrors(x, r->context, mirror);
    struct gradient_request request = { x->head, x->nhead, r->head_has_grad, requested, mirror,
      r->sum_cap };
    struct descs d = { x->desc, x->desc_cap };
    int code = gradient_append_all(x->g, &d, &request, out);
    x->desc = d.d;
    x->desc_cap = d.cap;
    TRY(code);
  }
  for (int i = 0; i < x->nvariable; i++)
    x->grad[i] = r->with_grad[i] ? out->of[x->variable[i]] : (ty_entry){ -1, 0 };
  return TY_OK;
}

int rewrite_gradient(struct typed_graph *x, const struct rewrite_request *r)
{
  const int nodes = x->g->n;
  x->forward = nodes;
  x->grad = NEWS(ty_entry, x->nvariable + 1);
  x->head_grad = NEWS(ty_entry, x->nhead + 1);
  uint8_t *requested = NEWS(uint8_t, nodes + 1), *mirror = NEWS(uint8_t, nodes + 1);
  struct gradient out = { NEWS(ty_entry, nodes + 1), x->head_grad };
  int code = x->grad && x->head_grad && requested && mirror && out.of
      ? gradient_run_rewrite(x, r, requested, mirror, &out)
      : fail(TY_EMEMORY, "out of memory: gradient");
  mem_free(requested);
  mem_free(mirror);
  mem_free(out.of);
  return code;
}
