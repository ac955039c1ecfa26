/* fuse.c - groups element-wise nodes into pointwise programs, and lets kernels apply the
** activation, or make the loss, that follows them.
**
** Rule: scanning in index order, an element-wise node joins, and so merges, the groups of its
** element-wise producers if device, shape and part (forward or backward) agree, the operands
** suffice, and every reader outside the merged group of one of its members has a higher index
** than the node. The group runs at its last member. That one condition also excludes cycles: a
** path out of the group and back would pass an outside reader with a lower index. Inner values
** of a group get no memory at all.
*/
#include "pass/program.h"
#include "operators/loss/softmax_loss.h"

enum { GROUP_NODES = 40, GROUP_OPERANDS = 24,
       /* bytes: a smaller gradient stays in the caches anyway */
       LARGE_LOSS = 4 << 20 };

/* per node: readers are list[first[i] .. first[i + 1] - 1] */
struct readers { int *first, *list; };
struct groups {
  struct program *p;
  struct readers r;
  /* per group leader: members as a chain, their number */
  int *next, *last, *size;
};

static int find_readers(struct program *p, struct readers *r)
{
  const ty_graph *g = p->s.g;
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

static bool assigns(const struct op *op)
{
  const struct port_list *in;
  return !op_inputs(op, NULL, &in) && in->changes;
}

/* Every output is some input's bytes: nothing to compute. */
static bool only_views(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  for (int k = 0; k < n->nout; k++)
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

/* A node that runs as part of a pointwise program: a row whose outputs all have one shape (a
** gradient that must be summed over broadcast axes does not). */
bool element_wise(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  if (!formula_of(n, 0) || assigns(n->op) || (s->summed && s->summed[i]) || only_views(s, i))
    return false;
  const ty_desc *space = n->backward ? NULL : &s->desc[n->first];
  for (int k = 0; n->backward && k < n->nout; k++) {
    const ty_desc *d = &s->desc[n->first + k];
    if (space && !desc_same_shape(space, d)) return false;
    space = d;
  }
  for (int k = 0; n->backward && k < n->nin; k++)
    if (!desc_same_shape(space, &s->desc[value_of(s->g, n->in[k])])) return false;
  return space && desc_known(space);
}

static const ty_desc *space_of(const struct source *s, int i)
{
  return &s->desc[s->g->node[i].first];
}

static bool ends_here(const struct source *s, int i) /* some output is a head or a bound gradient */
{
  const struct node *n = &s->g->node[i];
  for (int k = 0; k < n->nout; k++)
    if (s->grad_of[n->first + k] >= 0) return true;
  for (int h = 0; h < s->nhead; h++)
    if (s->head[h].node == i) return true;
  return false;
}

/* -- merging ----------------------------------------------------------------------------------- */

static int leader(const struct program *p, int i) { return p->group[i]; }

/* Every reader outside groups a and b of one of a's members comes after node n. */
static bool readers_later(const struct groups *q, int a, int b, int n)
{
  for (int m = a; m >= 0; m = q->next[m])
    for (int k = q->r.first[m]; k < q->r.first[m + 1]; k++) {
      int reader = q->r.list[k], its = q->p->group[reader];
      if (reader <= n && its != a && its != b) return false;
    }
  return true;
}

/* Loads and stores of the merged pointwise program: inputs from outside, outputs that somebody
** outside reads. */
static int operands(const struct groups *q, int a, int b)
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
      bool outside = ends_here(s, m);
      for (int k = q->r.first[m]; k < q->r.first[m + 1] && !outside; k++) {
        int its = q->p->group[q->r.list[k]];
        outside = its < 0 || (its != a && its != b);
      }
      n += outside ? node->nout : 0;
    }
  return n;
}

/* Nodes of one pointwise program compute in one dtype, so that fusion changes no bits. */
static int compute_dtype(const struct source *s, int i)
{
  const struct node *n = &s->g->node[i];
  ty_desc d[16];
  int k = 0;
  for (int j = 0; j < n->nin && k < 8; j++) d[k++] = s->desc[value_of(s->g, n->in[j])];
  for (int j = 0; j < n->nout && k < 16; j++) d[k++] = s->desc[n->first + j];
  return pw_dtype(d, k);
}

static bool may_merge(const struct groups *q, int a, int b, int n)
{
  const struct source *s = &q->p->s;
  if (a == b || q->size[a] + q->size[b] > GROUP_NODES) return false;
  if (s->device[a] != s->device[n] || (a < s->forward) != (n < s->forward) ||
      s->g->node[a].guard != s->g->node[n].guard)
    return false;
  if (!desc_same_shape(space_of(s, a), space_of(s, n))) return false;
  if (compute_dtype(s, a) != compute_dtype(s, n) || operands(q, a, b) > GROUP_OPERANDS)
    return false;
  return readers_later(q, a, b, n) && readers_later(q, b, a, n);
}

static void merge(struct groups *q, int from, int into)
{
  for (int m = from; m >= 0; m = q->next[m]) q->p->group[m] = into;
  q->next[q->last[into]] = from;
  q->last[into] = q->last[from];
  q->size[into] += q->size[from];
}

static void join(struct groups *q, int n)
{
  const struct node *node = &q->p->s.g->node[n];
  q->p->group[n] = n;
  q->next[n] = -1;
  q->last[n] = n;
  q->size[n] = 1;
  for (int k = 0; k < node->nin; k++) {
    int producer = node->in[k].node;
    if (q->p->group[producer] < 0) continue;
    int a = leader(q->p, producer), b = leader(q->p, n);
    if (may_merge(q, a, b, n)) merge(q, a, b);
  }
}

/* -- epilogues --------------------------------------------------------------------------------- */

int formula_activation(const struct op *op, const void *param)
{
  static const struct {
    const char *name;
    int act;
  } known[] = { { "relu", ACT_RELU }, { "sigmoid", ACT_SIGMOID }, { "tanh", ACT_TANH },
    { "softrelu", ACT_SOFTRELU } };
  const char *name = op->name;
  bool found;
  if (!strcmp(name, "Activation")) {
    double k = op_number(op, param, "act_type", &found);
    static const char *const type[] = { "relu", "sigmoid", "softrelu", "softsign", "tanh" };
    for (const struct param *q = op->param; found && q && q->name;
         q++) /* the order of the choices is the operator's */
      if (!strcmp(q->name, "act_type")) {
        const char *c = q->choice;
        for (int i = 0; i < (int)k && c; i++) c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL;
        for (int i = 0; c && i < COUNT(type); i++)
          if (!strncmp(c, type[i], strlen(type[i])) &&
              (c[strlen(type[i])] == '|' || !c[strlen(type[i])]))
            name = type[i];
      }
  }
  for (int i = 0; i < COUNT(known); i++)
    if (!strcmp(known[i].name, name)) return known[i].act;
  return ACT_NONE;
}

static bool applies_activations(const struct node *n, int device)
{
  struct candidates c = op_candidates(n->op, false, device);
  for (const struct kernel *k; (k = next_candidate(&c, NULL));)
    if (k->flags & K_ACT) return true;
  return false;
}

/* The one node that reads output 0, once; -1: none, or several */
static int only_reader(const struct source *s, const struct readers *r, int i)
{
  int only = -1;
  for (int k = r->first[i]; k < r->first[i + 1]; k++) {
    const struct node *m = &s->g->node[r->list[k]];
    bool reads = false;
    for (int j = 0; j < m->nin; j++) reads |= m->in[j].node == i && m->in[j].out == 0;
    if (reads && only >= 0) return -1;
    if (reads) only = r->list[k];
  }
  return only;
}

/* A kernel whose only reader is an activation in the same part applies it while its result is
** still in registers. */
static void absorb(struct program *p, const struct readers *r, int i, const int *size)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!n->op || n->backward || n->op->formula || ends_here(s, i)) return;
  if (!applies_activations(n, s->device[i])) return;
  int a = only_reader(s, r, i);
  if (a < 0 || p->group[a] < 0 || size[p->group[a]] != 1) return;
  const struct node *m = &s->g->node[a];
  if (m->backward || m->mirror != n->mirror || !m->op->formula || m->nin != 1 ||
      m->in[0].out != 0 || s->device[a] != s->device[i] || m->guard != n->guard ||
      (a < s->forward) != (i < s->forward))
    return;
  if (!formula_activation(m->op, m->param) || s->desc[m->first].dtype != s->desc[n->first].dtype ||
      p->group[a] != a)
    return;
  p->act[i] = a;
  p->absorbed[a] = i;
  p->group[a] = -1;
}

/* The entry is there when node i runs. */
static bool is_before(const struct program *p, ty_entry e, int i)
{
  const int node = view_root(&p->s, e).node, by = p->absorbed[node];
  return !p->s.g->node[node].op ||
      (by >= 0                      ? by
              : p->group[node] >= 0 ? leader(p, node)
                                    : node) < i;
}

/* The addition of two that alone reads node i's output, in a pointwise program that is nothing
** but it and a relu; -1. relu: -1: none */
static int sum_behind(
    const struct program *p, const struct readers *r, int i, const int *size, int *relu)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i], *m;
  const int sum = only_reader(s, r, i);
  *relu = -1;
  if (sum < 0 || p->group[sum] < 0 || size[p->group[sum]] > 2) return -1;
  m = &s->g->node[sum];
  const char *formula = formula_of(m, 0);
  if (m->backward || m->nin != 2 || m->in[0].node == m->in[1].node || !formula ||
      strcmp(formula, "a + b"))
    return -1;
  if (s->device[sum] != s->device[i] || m->guard != n->guard || m->mirror != n->mirror ||
      (s->into && s->into[m->first] >= 0))
    return -1;
  if (size[p->group[sum]] == 1) return sum;
  const int a = only_reader(s, r, sum);
  if (a < 0 || p->group[a] != p->group[sum] || ends_here(s, sum) || s->g->node[a].nin != 1)
    return -1;
  *relu = a;
  return formula_activation(s->g->node[a].op, s->g->node[a].param) == ACT_RELU ? sum : -1;
}

/* A normalisation adds the other side of a residual sum, and applies the relu behind it: two
** passes over memory less. Only where there are gradients; without, the product before it may do
** all of this (fold_batchnorm.c). */
static void absorb_sum(struct program *p, const struct readers *r, int i, const int *size)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  int relu;
  if (!n->op || n->backward || n->op->formula || p->act[i] >= 0 || s->forward == s->g->n ||
      ends_here(s, i))
    return;
  if (!all_candidates_can(n->op, false, s->device[i], K_PLUS)) return;
  const int sum = sum_behind(p, r, i, size, &relu);
  if (sum < 0) return;
  const struct node *m = &s->g->node[sum];
  const ty_entry other = m->in[m->in[0].node == i];
  const ty_desc *x = &s->desc[n->first], *y = &s->desc[value_of(s->g, other)],
                *z = &s->desc[m->first];
  if (!desc_same_shape(x, y) || !desc_same_shape(x, z) || y->dtype != x->dtype ||
      z->dtype != x->dtype)
    return;
  if ((x->dtype != TY_F32 && x->dtype != TY_F64) || s->device[other.node] != s->device[i] ||
      !is_before(p, other, i))
    return;
  p->sum[i] = sum;
  p->act[i] = relu < 0 ? sum : relu;
  p->absorbed[sum] = p->absorbed[p->act[i]] = i;
  p->group[sum] = p->group[p->act[i]] = -1;
}

/* Backward of a kernel that took over a relu takes over the relu's gradient too, if nobody else
** wants that. */
static void absorb_gradient(struct program *p, const struct readers *r, int i, const int *size)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!n->op || !n->backward || n->op->formula || n->forward < 0) return;
  int relu = p->act[n->forward], a = n->nin ? n->in[0].node : -1;
  if (relu < 0 || p->sum[n->forward] >= 0 || s->desc[n->first].dtype != TY_F32 ||
      !all_candidates_can(n->op, true, s->device[i], K_ACT))
    return;
  const struct node *m = &s->g->node[a], *f = &s->g->node[relu];
  if (!m->backward || m->forward != relu || formula_activation(f->op, f->param) != ACT_RELU ||
      s->device[a] != s->device[i])
    return;
  if (m->guard != n->guard || ends_here(s, a) || only_reader(s, r, a) != i || p->group[a] < 0 ||
      size[p->group[a]] != 1)
    return;
  p->act[i] = a;
  p->absorbed[a] = i;
  p->group[a] = -1;
}

/* The gradient of max pooling behind a relu applies the relu's, which the pooled output decides
** as well: where the relu's own output is the maximum it is the same number, elsewhere there is
** no gradient. A kernel whose own backward does so with less is left to it. */
static void absorb_gradient_behind(
    struct program *p, const struct readers *r, int i, const int *size)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!n->op || !n->backward || n->op->formula || n->nin != 2 || ends_here(s, i) ||
      !all_candidates_can(n->op, true, s->device[i], K_MASK))
    return;
  int a = only_reader(s, r, i);
  if (a < 0 || p->group[a] < 0 || size[p->group[a]] != 1 || s->desc[n->first].dtype != TY_F32)
    return;
  const struct node *m = &s->g->node[a], *pool = &s->g->node[n->in[1].node];
  const int relu = m->forward, before = relu < 0 ? -1 : p->absorbed[relu];
  if (!m->backward || relu < 0 || m->in[0].node != i ||
      formula_activation(s->g->node[relu].op, s->g->node[relu].param) != ACT_RELU)
    return;
  if (s->g->node[n->forward].in[0].node != relu || pool->backward || s->device[a] != s->device[i] ||
      m->guard != n->guard)
    return;
  if (ends_here(s, a) || (s->into && s->into[m->first] >= 0)) return;
  if (before >= 0 && p->sum[before] < 0 &&
      all_candidates_can(s->g->node[before].op, true, s->device[before], K_ACT))
    return;
  p->act[i] = a;
  p->absorbed[a] = i;
  p->group[a] = -1;
}

/* A product in front of a large softmax makes the gradient of the loss itself, part by part, if
** nobody else wants that. */
static void absorb_loss(struct program *p, const struct readers *r, int i)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!n->op || !n->backward || n->op->formula || !n->nin || n->in[0].out ||
      !all_candidates_can(n->op, true, s->device[i], K_LOSS))
    return;
  int a = n->in[0].node, dtype = s->desc[n->first].dtype;
  const struct node *m = &s->g->node[a];
  if (!m->backward || m->guard != n->guard || s->device[a] != s->device[i] || ends_here(s, a))
    return;
  if (r->first[a + 1] - r->first[a] != 1 || r->list[r->first[a]] != i ||
      (dtype != TY_F32 && dtype != TY_F64))
    return;
  const ty_desc *out = &s->desc[m->first], *label = &s->desc[value_of(s->g, m->in[m->nin - 1])];
  if (out->dtype != dtype || label->dtype != dtype || desc_bytes(out) < LARGE_LOSS) return;
  if (!softmax_loss_rows(m->op, m->param, out, label)) return;
  p->act[i] = a;
  p->absorbed[a] = i;
}

int fuse_program(struct program *p)
{
  const struct source *s = &p->s;
  int n = s->g->n;
  struct groups q = { p, { 0 }, arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)),
    arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)),
    arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)) };
  p->group = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  p->act = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  p->absorbed = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  p->sum = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  NEED(q.next && q.last && q.size && p->group && p->act && p->absorbed && p->sum, TY_EMEMORY,
      "out of memory: fusion");
  for (int i = 0; i < n; i++) p->group[i] = p->act[i] = p->absorbed[i] = p->sum[i] = -1;
  TRY(find_readers(p, &q.r));
  for (int i = 0; i < n; i++) {
    if (!element_wise(s, i)) continue;
    if (s->flags & TY_NOFUSE)
      p->group[i] = i, q.next[i] = -1, q.last[i] = i, q.size[i] = 1;
    else
      join(&q, i);
  }
  if (!(s->flags & TY_NOFUSE))
    for (int i = 0; i < n; i++) {
      absorb(p, &q.r, i, q.size);
      absorb_sum(p, &q.r, i, q.size);
      absorb_gradient(p, &q.r, i, q.size);
      absorb_gradient_behind(p, &q.r, i, q.size);
      absorb_loss(p, &q.r, i);
    }
  return TY_OK;
}
