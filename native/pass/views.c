/* views.c - which outputs are views of inputs; which nodes change a state; gradients of labels. */
#include "pass/passes.h"

/* Returns the index of head gradient 0 among what the gradient operator of node n reads; -1: it is
** not read. */
static int views_find_head_gradient(const struct node *n)
{
  struct read_walk w = reads_walk(n->kind->reads, n->nin, n->kind->nout);
  while (reads_next(&w))
    if (w.kind == READ_HEAD && w.k == 0) return w.operand;
  return -1;
}

static const char *views_skip_space(const char *s)
{
  while (*s == ' ') s++;
  return s;
}
static bool views_is_name(const char *formula, char name)
{
  const char *s = formula ? views_skip_space(formula) : "";
  return *s == name && !*views_skip_space(s + 1);
}

static int views_find_input(const struct source *s, int node, int out)
{
  const struct node *n = &s->g->node[node];
  if (!n->op || is_known(s, node)) return -1;
  const struct op *op = n->op;
  int in = -1;
  if (s->summed && s->summed[node]) return 0;
  if (!n->backward) {
    if (op->flags & (OP_VIEW | OP_ALIAS) && out == 0)
      in = 0;
    else if (op->formula && views_is_name(op->formula->y, 'a'))
      in = 0;
  }
  else {
    const struct node *f = &s->g->node[n->forward];
    const char *formula =
        op->formula && out < COUNT(op->formula->grad) ? op->formula->grad[out] : NULL;
    if ((op->flags & OP_VIEW && out == 0) || views_is_name(formula, 'g'))
      in = views_find_head_gradient(f);
  }
  if (in < 0 || in >= n->nin) return -1;
  const ty_desc *a = &s->desc[n->first + out], *b = &s->desc[value_of(s->g, n->in[in])];
  bool same_device = s->device[node] == s->device[n->in[in].node];
  return same_device && a->dtype == b->dtype && desc_count(a) == desc_count(b) &&
          (!op->formula || desc_same_shape(a, b))
      ? in
      : -1;
}

ty_entry view_root(const struct source *s, ty_entry e)
{
  int in;
  while ((in = view_of(s, e.node, e.out)) >= 0) e = s->g->node[e.node].in[in];
  return e;
}

/* Returns the input whose bytes an output has, -1: none. A head is never a view of a bound array:
** it would change when the array does. */
int view_of(const struct source *s, int node, int out)
{
  int in = views_find_input(s, node, out);
  if (in < 0 || !s->is_head[s->g->node[node].first + out]) return in;
  ty_entry root = view_root(s, s->g->node[node].in[in]);
  return s->g->node[root.node].op && !is_known(s, root.node) ? in : -1;
}

/* -- states and labels ------------------------------------------------------------------------- */

bool changes_state(const struct node *n)
{
  if (n->mirror) return false; /* a recomputed node does not change the state again */
  /* some operators change their state in backward instead of forward */
  const bool later = n->kind->reads && n->kind->reads->changes;
  if (n->backward) return later;
  for (int k = 0; n->op && k < n->nin; k++)
    if (n->kind->inport[k].mutated) return !later;
  return false;
}

bool is_label_end(const struct source *s, ty_entry e)
{
  const struct node *n = &s->g->node[e.node];
  return n->op && n->backward && n->op->flags & OP_LOSS && e.out > 0;
}
