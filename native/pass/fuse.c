/* fuse.c - groups element-wise nodes into pointwise programs.
**
** Rule: scanning in index order, an element-wise node joins, and so merges, the groups of its
** element-wise producers if device, shape and part (forward or backward) agree, the operands
** suffice, and every reader outside the merged group of one of its members has a higher index
** than the node. The group runs at its last member. That one condition also excludes cycles: a
** path out of the group and back would pass an outside reader with a lower index. Inner values
** of a group get no memory at all.
**
** Where the device can, a reduction of what a group makes joins it in the same way and ends it:
** no node joins a group whose last node is a reduction.
*/
#include "pass/passes.h"

enum { GROUP_NODES = 40, GROUP_OPERANDS = 24 };

struct groups {
  struct program *p;
  /* per node: the next member of its group, -1 */
  int *next;
  int *last;                                          /* per group leader: its last member */
  int *size;                                          /* per group leader: number of members */
};

static int fuse_find_readers(struct program *p)
{
  const ty_graph *g = p->s.g;
  struct readers *r = &p->readers;
  r->first = arena_new(&p->arena, sizeof(int) * (size_t)(g->n + 2));
  NEED(r->first, TY_EMEMORY, "out of memory: fusion");
  int total = 0;
  for (int i = 0; i < g->n; i++)
    for (int k = 0; k < g->node[i].nin; k++) r->first[g->node[i].in[k].node + 1]++, total++;
  for (int i = 0; i < g->n; i++) r->first[i + 1] += r->first[i];
  r->list = arena_new(&p->arena, sizeof(int) * (size_t)(total + 1));
  int *at = NEWS(int, g->n + 1);
  NEED(r->list && at, TY_EMEMORY, "out of memory: fusion");
  memcpy(at, r->first, sizeof(int) * (size_t)g->n);
  for (int i = 0; i < g->n; i++)
    for (int k = 0; k < g->node[i].nin; k++) r->list[at[g->node[i].in[k].node]++] = i;
  mem_free(at);
  return TY_OK;
}

/* -- which nodes may join ---------------------------------------------------------------------- */

static bool fuse_op_assigns(const struct op *op)
{
  const struct port_list *in;
  return !op_inputs(op, NULL, &in) && in->changes;
}

/* Returns whether every output is some input's bytes, so that there is nothing to compute. */
static bool fuse_makes_only_views(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  for (int k = 0; k < n->kind->nout; k++)
    if (!(n->backward && !n->op->formula->grad[MIN(k, 5)]) && view_of(s, i, k) < 0) return false;
  return true;
}

const char *formula_of(const struct node *n, int out)
{
  static const char *const sum[] = { "a + b", "a + b + c", "a + b + c + d", "a + b + c + d + e",
    "a + b + c + d + e + f" };
  if (!n->op) return NULL;
  const struct formula *r = n->op->formula;
  if (r) return !n->backward ? r->y : out < COUNT(r->grad) && r->grad[out] ? r->grad[out] : "0";
  return n->op->flags & OP_SUM && !n->backward && n->nin > 1 && n->nin < 7 ? sum[n->nin - 2] : NULL;
}

/* Returns whether a node runs as part of a pointwise program: it has a formula and outputs of one
** shape (a gradient that must be summed over broadcast axes does not). */
bool element_wise(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (is_known(s, i) || !formula_of(n, 0) || fuse_op_assigns(n->op) ||
      (s->summed && s->summed[i]) || fuse_makes_only_views(s, i))
    return false;
  const ty_desc *space = n->backward ? NULL : &s->desc[n->first];
  for (int k = 0; n->backward && k < n->kind->nout; k++) {
    const ty_desc *d = &s->desc[n->first + k];
    if (space && !desc_same_shape(space, d)) return false;
    space = d;
  }
  for (int k = 0; n->backward && k < n->nin; k++)
    if (!desc_same_shape(space, &s->desc[value_of(s->g, n->in[k])])) return false;
  return space && desc_known(space);
}

/* Returns whether a node may end a pointwise program: a reduction of more than one element to one,
** of one dtype, which adds to no sum of the program. */
static bool fuse_may_end(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (!n->op || is_known(s, i) || !n->op->reduction || n->backward || n->kind->nout != 1 ||
      !pw_can_end(s->device[i]))
    return false;
  const ty_desc *in = &s->desc[value_of(s->g, n->in[0])], *out = &s->desc[n->first];
  return in->dtype == out->dtype && !(s->into && s->into[n->first] >= 0) &&
      desc_count(out) > 0 && desc_count(in) > desc_count(out);
}

static bool fuse_is_reduction(const struct source *s, int i)
{
  return s->g->node[i].op->reduction != NULL;
}

bool ends_in_reduction(const struct program *p, const struct step *st)
{
  return st->kind == STEP_POINTWISE && fuse_is_reduction(&p->s, st->node);
}

const ty_desc *space_of(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  return &s->desc[fuse_is_reduction(s, i) ? value_of(s->g, n->in[0]) : n->first];
}

bool source_takes(const struct source *s, int v)
{
  return s->grad_of[v] >= 0 || s->copied[v] || s->is_head[v];
}

bool source_ends_at(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (is_known(s, i)) return true;
  for (int v = n->first; v < n->first + n->kind->nout; v++)
    if (source_takes(s, v)) return true;
  return false;
}

/* -- merging ----------------------------------------------------------------------------------- */

static int fuse_find_leader(const struct program *p, int i) { return p->group[i]; }

/* Returns whether every reader, outside groups a and b, of one of a's members comes after node
** n. */
static bool fuse_is_read_after(const struct groups *q, int a, int b, int n)
{
  for (int m = a; m >= 0; m = q->next[m])
    for (int k = q->p->readers.first[m]; k < q->p->readers.first[m + 1]; k++) {
      int reader = q->p->readers.list[k], its = q->p->group[reader];
      if (reader <= n && its != a && its != b) return false;
    }
  return true;
}

/* Counts loads and stores of the merged pointwise program: inputs from outside, outputs that are
** read outside. */
static int fuse_count_operands(const struct groups *q, int a, int b)
{
  const struct source *s = &q->p->s;
  int n = 0;
  for (int turn = 0; turn < 2; turn++)
    for (int m = turn ? b : a; m >= 0; m = q->next[m]) {
      const struct node *node = &s->g->node[m];
      for (int k = 0; k < node->nin; k++) {
        int its = q->p->group[node->in[k].node];
        n += its < 0 || (its != a && its != b);
      }
      bool outside = source_ends_at(s, m);
      for (int k = q->p->readers.first[m]; k < q->p->readers.first[m + 1] && !outside; k++) {
        int its = q->p->group[q->p->readers.list[k]];
        outside = its < 0 || (its != a && its != b);
      }
      n += outside ? node->kind->nout : 0;
    }
  return n;
}

/* Returns the dtype in which a node computes. Nodes of one program compute in one, so that fusion
** changes no bits. */
static int fuse_find_dtype(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  ty_desc d[16];
  int k = 0;
  for (int j = 0; j < n->nin && k < 8; j++) d[k++] = s->desc[value_of(s->g, n->in[j])];
  for (int j = 0; j < n->kind->nout && k < 16; j++) d[k++] = s->desc[n->first + j];
  return pw_dtype(d, k);
}

static bool fuse_may_merge(const struct groups *q, int a, int b, int n)
{
  const struct source *s = &q->p->s;
  if (a == b || fuse_is_reduction(s, a) || q->size[a] + q->size[b] > GROUP_NODES) return false;
  if (s->device[a] != s->device[n] || (a < s->forward) != (n < s->forward) ||
      s->g->node[a].guard != s->g->node[n].guard)
    return false;
  if (!desc_same_shape(space_of(s, a), space_of(s, n))) return false;
  if (fuse_find_dtype(s, a) != fuse_find_dtype(s, n) ||
      fuse_count_operands(q, a, b) > GROUP_OPERANDS)
    return false;
  return fuse_is_read_after(q, a, b, n) && fuse_is_read_after(q, b, a, n);
}

static void fuse_merge_groups(struct groups *q, int from, int into)
{
  for (int m = from; m >= 0; m = q->next[m]) q->p->group[m] = into;
  q->next[q->last[into]] = from;
  q->last[into] = q->last[from];
  q->size[into] += q->size[from];
}

static void fuse_begin_group(struct groups *q, int n)
{
  q->p->group[n] = n;
  q->next[n] = -1;
  q->last[n] = n;
  q->size[n] = 1;
}

static void fuse_join_groups(struct groups *q, int n)
{
  const struct node *node = &q->p->s.g->node[n];
  fuse_begin_group(q, n);
  for (int k = 0; k < node->nin; k++) {
    int producer = node->in[k].node;
    if (q->p->group[producer] < 0) continue;
    int a = fuse_find_leader(q->p, producer), b = fuse_find_leader(q->p, n);
    if (fuse_may_merge(q, a, b, n)) fuse_merge_groups(q, a, b);
  }
}

int pass_fuse(struct program *p)
{
  const struct source *s = &p->s;
  int n = s->g->n;
  struct groups q = { p, arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)),
    arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)),
    arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)) };
  p->group = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  NEED(q.next && q.last && q.size && p->group, TY_EMEMORY, "out of memory: fusion");
  for (int i = 0; i < n; i++) p->group[i] = -1;
  TRY(fuse_find_readers(p));
  for (int i = 0; i < n; i++) {
    const bool fuses = !(s->flags & TY_NOFUSE);
    if (element_wise(s, i) && fuses)
      fuse_join_groups(&q, i);
    else if (element_wise(s, i))
      fuse_begin_group(&q, i);
    else if (fuses && fuse_may_end(s, i)) {
      fuse_join_groups(&q, i);
      if (q.size[i] == 1) p->group[i] = -1; /* alone it is no pointwise program */
    }
  }
  return TY_OK;
}
