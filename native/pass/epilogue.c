/* epilogue.c - lets a kernel compute nodes around its own.
**
** A kernel may do more than its operator while its operands are in registers (kernel/epilogue.h).
** After its own work it may apply the activation that follows, add another value or, in a
** gradient's kernel, apply the gradient of the activation that made the data. Before its own work
** it may apply the activation that precedes or, in a gradient's kernel, the gradient of an
** activation, of a loss or of a pick. It may also write elements picked from its output as one more
** output. Here node i takes over one or two such neighbours, where
**   - every kernel that may be chosen for i can do it (`fuses`),
**   - nothing else uses the value between the two: no reader, head or bound gradient; except that a
**     kernel may write a relu's gradient as one more output, which others read later,
**   - the neighbour has the device, part, guard and mirror of i,
**   - its pointwise program consists of the nodes that are taken over, and
**   - no bit of a result changes: of activations only relu, whose value is exact, and of float32
**     gelu, which a kernel with CAN_GELU computes as its operator does, and tanh before a pooling.
** Three results do change: a sum after a product that a library adds to is rounded once instead of
** twice; the gradient of an element that a maximum ignores is 0 even where the element is NaN; the
** gradient of a pick beside log_softmax is computed from probabilities, not from exponentials of
** their logarithms. Nodes taken over get no step; their further inputs follow those of i.
*/
#include "pass/passes.h"
#include "base/cpu.h"

/* bytes of a loss's gradient; a smaller one stays in the caches anyway */
enum { LARGE_LOSS = 4 << 20 };

/* per leader of a group of fuse.c: its members, the last of them */
struct finder { struct program *p; int *size, *last; };

/* -- neighbours -------------------------------------------------------------------------------- */

static uint32_t epilogue_get_caps(const struct finder *f, int i)
{
  const struct node *n = &f->p->s.g->node[i];
  return op_common_caps(n->op, n->backward, f->p->s.device[i]).fuses;
}

/* Returns the one node that reads output 0, once; -1: none, or several. */
static int epilogue_find_only_reader(const struct finder *f, int i)
{
  const struct readers *r = &f->p->readers;
  int only = -1;
  for (int k = r->first[i]; k < r->first[i + 1]; k++) {
    const struct node *m = &f->p->s.g->node[r->list[k]];
    bool reads = false;
    for (int j = 0; j < m->nin; j++) reads |= m->in[j].node == i && m->in[j].out == 0;
    if (reads && only >= 0) return -1;
    if (reads) only = r->list[k];
  }
  return only;
}

/* Returns whether node a runs under the same conditions and on the same device as node i. */
static bool epilogue_runs_beside(const struct finder *f, int i, int a)
{
  const struct source *s = &f->p->s;
  const struct node *n = &s->g->node[i], *m = &s->g->node[a];
  return s->device[i] == s->device[a] && n->guard == m->guard && n->mirror == m->mirror &&
      (i < s->forward) == (a < s->forward);
}

/* Returns whether the pointwise program of node a has this many nodes. */
static bool epilogue_in_group_of(const struct finder *f, int a, int size)
{
  const int group = f->p->group[a];
  return group >= 0 && f->size[group] == size;
}

static bool epilogue_is_relu(const struct finder *f, int a)
{
  const struct node *m = &f->p->s.g->node[a];
  return !m->backward && op_act(m->op, m->kind->param) == ACT_RELU;
}

/* Returns the node whose step computes the value of node a. */
static int epilogue_find_maker(const struct finder *f, int a)
{
  const struct program *p = f->p;
  if (p->taken_by[a] >= 0) return p->taken_by[a];
  return p->group[a] >= 0 ? f->last[p->group[a]] : a;
}

/* -- taking over ------------------------------------------------------------------------------- */

static int epilogue_take_node(struct finder *f, int i, struct fused_node with)
{
  struct program *p = f->p;
  if (!p->fusion[i]) p->fusion[i] = arena_new(&p->arena, sizeof *p->fusion[i]);
  NEED(p->fusion[i], TY_EMEMORY, "out of memory: epilogues");
  p->fusion[i]->node[p->fusion[i]->n++] = with;
  p->taken_by[with.node] = i;
  p->group[with.node] = -1;
  return TY_OK;
}

/* -- after a forward node: an activation ------------------------------------------------------- */

static bool epilogue_is_activation(const struct finder *f, int i, int a)
{
  const struct source *s = &f->p->s;
  const struct node *m = &s->g->node[a];
  const int dtype = s->desc[s->g->node[i].first].dtype;
  if (s->desc[m->first].dtype != dtype) return false;
  if (epilogue_is_relu(f, a)) return epilogue_in_group_of(f, a, 1);
  return dtype == TY_F32 && epilogue_get_caps(f, i) & CAN_GELU && !m->backward &&
      op_act(m->op, m->kind->param) == ACT_GELU && f->p->group[a] < 0;
}

static int epilogue_take_after(struct finder *f, int i)
{
  if (!(epilogue_get_caps(f, i) & CAN(POST_ACT)) || source_ends_at(&f->p->s, i)) return TY_OK;
  const int a = epilogue_find_only_reader(f, i);
  if (a < 0 || !epilogue_runs_beside(f, i, a) || !epilogue_is_activation(f, i, a)) return TY_OK;
  return epilogue_take_node(f, i, (struct fused_node){ POST_ACT, a, { -1, 0 } });
}

/* -- before a forward node: an activation ------------------------------------------------------ */

/* Returns the gradient node of i where node b, the gradient of the activation a before i, can be a
** part of its kernel; -1: it cannot. */
static int epilogue_find_masking_gradient(const struct finder *f, int i, int a, int b)
{
  const struct source *s = &f->p->s;
  const struct node *m = &s->g->node[b];
  if (!m->backward || m->forward != a || !epilogue_in_group_of(f, b, 1) || source_ends_at(s, b) ||
      (s->into && s->into[m->first] >= 0) || m->in[0].out)
    return -1;
  const int j = m->in[0].node;
  const struct node *n = &s->g->node[j];
  const uint32_t both = CAN(PRE_ACT) | CAN(POST_ACT_GRAD);
  if (!n->backward || n->forward != i || n->nin != 2 || n->in[1].node != i) return -1;
  if ((epilogue_get_caps(f, j) & both) != both || source_ends_at(s, j) || f->p->fusion[j])
    return -1;
  return epilogue_find_only_reader(f, j) == b && epilogue_runs_beside(f, j, b) ? j : -1;
}

/* Lets a kernel such as max pooling's compute the activation of its data, where no other node needs
** it: its gradient reads which elements the maxima came from, and the output has their activation.
*/
static int epilogue_take_activation(struct finder *f, int i)
{
  const struct program *p = f->p;
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!(epilogue_get_caps(f, i) & CAN(PRE_ACT)) || n->in[0].out || is_known(s, i)) return TY_OK;
  const int a = n->in[0].node, dtype = s->desc[n->first].dtype;
  const struct node *m = &s->g->node[a];
  if (!m->op || m->backward || op_act(m->op, m->kind->param) != ACT_TANH || dtype != TY_F32 ||
      s->desc[m->first].dtype != dtype || !epilogue_in_group_of(f, a, 1) || source_ends_at(s, a) ||
      !epilogue_runs_beside(f, i, a))
    return TY_OK;
  int gradient = -1, mask = -1;
  for (int k = p->readers.first[a]; k < p->readers.first[a + 1]; k++) {
    const int reader = p->readers.list[k];
    if (reader == i) continue;
    if (gradient >= 0) return TY_OK;
    gradient = epilogue_find_masking_gradient(f, i, a, reader);
    mask = reader;
    if (gradient < 0) return TY_OK;
  }
  TRY(epilogue_take_node(f, i, (struct fused_node){ PRE_ACT, a, { -1, 0 } }));
  if (gradient < 0) return TY_OK;
  return epilogue_take_node(f, gradient, (struct fused_node){ POST_ACT_GRAD, mask, { i, 0 } });
}

/* -- before a gradient: of the activation which the forward kernel does, of a loss, of a pick -- */

static bool epilogue_did_activation(const struct program *p, int i, int act)
{
  const struct fusion *x = i < 0 ? NULL : p->fusion[i];
  return x && x->n == 1 && x->node[0].kind == POST_ACT && x->node[0].node == act;
}

/* Returns whether node a is the gradient of a pick of elements from the rows of what node i is the
** gradient of, where these are on the last axis. */
static bool epilogue_picks_rows(const struct finder *f, int i, int a)
{
  const struct source *s = &f->p->s;
  const struct node *n = &s->g->node[i], *m = &s->g->node[a];
  const ty_desc *d = &s->desc[n->first], *g = &s->desc[m->first];
  return m->op->picks && m->op->picks(m->kind->param, d->ndim) && g->dtype == d->dtype &&
      (d->dtype == TY_F32 || d->dtype == TY_F64) &&
      n->op->picked_from && n->op->picked_from(n->kind->param, d->ndim);
}

/* Returns the pick of elements from the rows of node i, a log_softmax, where only the pick and node
** b, the gradient of i, read them, and the kernel of i can do the pick; -1: there is none. */
static int epilogue_find_pick_beside(const struct finder *f, int i, int b)
{
  const struct program *p = f->p;
  const struct source *s = &p->s;
  const struct readers *r = &p->readers;
  const struct node *n = &s->g->node[i];
  const int from = r->first[i];
  if (!(epilogue_get_caps(f, i) & CAN(BESIDE_PICK)) || p->fusion[i] || p->taken_by[i] >= 0 ||
      source_ends_at(s, i) || r->first[i + 1] - from != 2)
    return -1;
  /* the gradient may read what is computed again in place of i */
  if (r->list[from] != b && r->list[from + 1] != b) return -1;
  const int a = r->list[from] == b ? r->list[from + 1] : r->list[from];
  const struct node *m = &s->g->node[a];
  if (m->backward || !m->op->picks || !m->op->picks(m->kind->param, s->desc[n->first].ndim) ||
      m->in[0].node != i || m->in[1].node == i ||
      s->desc[m->first].dtype != s->desc[n->first].dtype)
    return -1;
  if (p->group[a] >= 0 || p->taken_by[a] >= 0 || source_ends_at(s, a) ||
      !epilogue_runs_beside(f, i, a))
    return -1;
  const int index = m->in[1].node;
  return s->g->node[index].op && epilogue_find_maker(f, index) >= i ? -1 : a;
}

/* Lets the gradient of log_softmax, node i, begin with that of a pick, node a. Where the kernel of
** log_softmax can do the pick itself, it gives probabilities to the gradient, which then needs no
** exponentials. */
static int epilogue_take_pick(struct finder *f, int i, int a)
{
  const ty_graph *g = f->p->s.g;
  const int forward = g->node[i].forward, pick = epilogue_find_pick_beside(f, forward, i);
  struct fused_node with = { PRE_PICK_GRAD, a, g->node[a].in[1], .exponentials = pick >= 0 };
  TRY(epilogue_take_node(f, i, with));
  if (pick < 0) return TY_OK;
  return epilogue_take_node(
      f, forward, (struct fused_node){ BESIDE_PICK, pick, g->node[pick].in[1] });
}

/* Returns whether a kernel may compute the gradient of node n's output, which node m makes, in
** parts: where it is large and all operands have one dtype. */
static bool epilogue_is_large_loss(const struct finder *f, int i, const struct node *m)
{
  const struct source *s = &f->p->s;
  const int dtype = s->desc[s->g->node[i].first].dtype;
  /* by parts it is all float32, which is slower than rounded products of the whole */
  const bool rounds = s->flags & TY_MEDIUM && s->device[i] == TY_CPU && cpu_multiplies_narrow();
  const ty_desc *out = &s->desc[m->first];
  return !rounds && (dtype == TY_F32 || dtype == TY_F64) && out->dtype == dtype &&
      desc_bytes(out) >= LARGE_LOSS;
}

/* Lets a product's gradient compute that of log_softmax, node a, which computes that of a pick;
** where the indices have the dtype of the other operands. */
static int epilogue_take_picked(struct finder *f, int i, int a)
{
  struct program *p = f->p;
  const struct node *m = &p->s.g->node[a];
  const struct fused_node pick = p->fusion[a]->node[0];
  if (p->s.desc[value_of(p->s.g, pick.operand)].dtype != p->s.desc[m->first].dtype) return TY_OK;
  p->fusion[a] = NULL;
  TRY(epilogue_take_node(f, i, (struct fused_node){ PRE_LOG_GRAD, a, m->in[1] }));
  return epilogue_take_node(f, i, pick);
}

static int epilogue_take_before(struct finder *f, int i)
{
  const struct program *p = f->p;
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  const uint32_t all =
      CAN(PRE_ACT_GRAD) | CAN(PRE_LOSS_GRAD) | CAN(PRE_PICK_GRAD) | CAN(PRE_LOG_GRAD);
  const uint32_t can = epilogue_get_caps(f, i) & all;
  if (!can || !n->nin || n->in[0].out) return TY_OK;
  const int a = n->in[0].node, dtype = s->desc[n->first].dtype;
  const struct node *m = &s->g->node[a];
  const bool read_once = p->readers.first[a + 1] - p->readers.first[a] == 1;
  if (!m->backward || !read_once || source_ends_at(s, a) || !epilogue_runs_beside(f, i, a))
    return TY_OK;
  const bool half = (dtype == TY_F16 || dtype == TY_BF16) &&
      epilogue_get_caps(f, i) & CAN_HALF_GRAD;
  if (can & CAN(PRE_ACT_GRAD) && (dtype == TY_F32 || half) && epilogue_in_group_of(f, a, 1) &&
      epilogue_did_activation(p, n->forward, m->forward))
    return epilogue_take_node(f, i, (struct fused_node){ PRE_ACT_GRAD, a, { -1, 0 } });
  if (can & CAN(PRE_PICK_GRAD) && epilogue_picks_rows(f, i, a))
    return epilogue_take_pick(f, i, a);
  if (!epilogue_is_large_loss(f, i, m)) return TY_OK;
  if (can & CAN(PRE_LOG_GRAD) && fusion_has(p->fusion[a], PRE_PICK_GRAD))
    return epilogue_take_picked(f, i, a);
  if (!(can & CAN(PRE_LOSS_GRAD)) || !m->op->loss_in_parts) return TY_OK;
  const ty_entry label = m->in[m->nin - 1];
  const ty_desc *out = &s->desc[m->first], *classes = &s->desc[value_of(s->g, label)];
  if (classes->dtype != dtype || !m->op->loss_in_parts(m->kind->param, out, classes)) return TY_OK;
  return epilogue_take_node(f, i, (struct fused_node){ PRE_LOSS_GRAD, a, label });
}

/* -- before a gradient: that of a relu which others read, too ---------------------------------- */

/* Returns whether all readers of node a run at node i or later. */
static bool epilogue_readers_follow(const struct finder *f, int i, int a)
{
  const struct program *p = f->p;
  for (int k = p->readers.first[a]; k < p->readers.first[a + 1]; k++) {
    const int reader = p->readers.list[k], by = p->taken_by[reader];
    if ((by < 0 ? reader : by) < i) return false;
  }
  return true;
}

/* Returns the gradient sum of two parts whose result relu's gradient m reads, where m's pointwise
** program has no other node; -1: there is none. */
static int epilogue_find_sum_before(const struct finder *f, int i, int m)
{
  const struct source *s = &f->p->s;
  const int a = s->g->node[m].in[0].node;
  const struct node *n = &s->g->node[a];
  if (!epilogue_in_group_of(f, m, 2) || f->p->group[a] != f->p->group[m] ||
      epilogue_find_only_reader(f, a) != m || source_ends_at(s, a) ||
      !epilogue_runs_beside(f, i, a) || !(n->op->flags & OP_SUM) || n->nin != 2)
    return -1;
  for (int k = 0; k < 2; k++) {
    const ty_desc *d = &s->desc[value_of(s->g, n->in[k])];
    if (!desc_same_shape(d, &s->desc[n->first]) || d->dtype != s->desc[n->first].dtype) return -1;
  }
  return a;
}

/* Lets a gradient kernel such as BatchNorm's, which reads its head gradient twice, compute that in
** its first pass, where it is the gradient of a relu after a sum of layers, and write it for the
** other layers and its second pass. */
static int epilogue_take_kept(struct finder *f, int i)
{
  const struct source *s = &f->p->s;
  const struct node *n = &s->g->node[i];
  const uint32_t both = CAN(PRE_ADD) | CAN(PRE_KEPT_GRAD);
  if ((epilogue_get_caps(f, i) & both) != both || !n->nin || n->in[0].out) return TY_OK;
  const int a = n->in[0].node;
  const struct node *m = &s->g->node[a];
  if (!m->op || !m->backward || !epilogue_is_relu(f, m->forward) || m->nin != 2 || m->in[0].out ||
      source_ends_at(s, a) || (s->into && s->into[m->first] >= 0) || !epilogue_runs_beside(f, i, a))
    return TY_OK;
  const int sum = epilogue_find_sum_before(f, i, a), dtype = s->desc[m->first].dtype;
  if ((sum < 0 && !epilogue_in_group_of(f, a, 1)) || !epilogue_readers_follow(f, i, a))
    return TY_OK;
  for (int k = 0; k < 2; k++)
    if (s->desc[value_of(s->g, m->in[k])].dtype != dtype || s->desc[n->first].dtype != dtype)
      return TY_OK;
  TRY(epilogue_take_node(f, i, (struct fused_node){ PRE_KEPT_GRAD, a, m->in[1] }));
  return sum < 0
      ? TY_OK
      : epilogue_take_node(f, i, (struct fused_node){ PRE_ADD, sum, s->g->node[sum].in[1] });
}

/* -- after a gradient: that of the activation which made the data ------------------------------ */

/* Lets a gradient kernel such as max pooling's apply the gradient of the activation before it: the
** kernel reads only which elements its output came from, and where an element is the output, the
** output has the information that the activation's own would have. Not where the kernel before the
** activation computes that gradient with fewer inputs. */
static int epilogue_take_mask(struct finder *f, int i)
{
  const struct program *p = f->p;
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[i];
  if (!(epilogue_get_caps(f, i) & CAN(POST_ACT_GRAD)) || n->nin != 2 || source_ends_at(s, i) ||
      s->g->node[n->in[1].node].backward || s->desc[n->first].dtype != TY_F32)
    return TY_OK;
  const int a = epilogue_find_only_reader(f, i);
  if (a < 0 || !epilogue_in_group_of(f, a, 1) || !epilogue_runs_beside(f, i, a)) return TY_OK;
  const struct node *m = &s->g->node[a];
  if (!m->backward || m->forward < 0 || m->in[0].node != i || !epilogue_is_relu(f, m->forward) ||
      s->g->node[n->forward].in[0].node != m->forward)
    return TY_OK;
  const int before = p->taken_by[m->forward];
  if (before >= 0 && epilogue_did_activation(p, before, m->forward) &&
      op_common_caps(s->g->node[before].op, true, s->device[before]).fuses & CAN(PRE_ACT_GRAD))
    return TY_OK;
  if (source_ends_at(s, a) || (s->into && s->into[m->first] >= 0)) return TY_OK;
  return epilogue_take_node(f, i, (struct fused_node){ POST_ACT_GRAD, a, { n->in[1].node, 0 } });
}

/* -- after a gradient: that of the activation which made the data, by the data ----------------- */

/* Returns whether a kernel that reads node a, the gradient of an activation, computes it in a pass
** that it makes anyway. */
static bool epilogue_reader_does_act(const struct finder *f, int a)
{
  const struct readers *r = &f->p->readers;
  for (int k = r->first[a]; k < r->first[a + 1]; k++) {
    const struct node *n = &f->p->s.g->node[r->list[k]];
    if (n->backward && epilogue_get_caps(f, r->list[k]) & (CAN(PRE_ACT_GRAD) | CAN(PRE_KEPT_GRAD)))
      return true;
  }
  return false;
}

/* Returns whether the gradient of node a's activation follows from its output. */
static bool epilogue_is_known_by_output(const struct finder *f, int a)
{
  const struct node *m = &f->p->s.g->node[a];
  const int act = m->backward ? ACT_NONE : op_act(m->op, m->kind->param);
  return act == ACT_RELU || act == ACT_SIGMOID || act == ACT_TANH;
}

/* Lets the gradient kernel of a product, which reads the data, apply the gradient of the activation
** that made it. */
static int epilogue_take_slope(struct finder *f, int i)
{
  const struct source *s = &f->p->s;
  const struct node *n = &s->g->node[i];
  if (!(epilogue_get_caps(f, i) & CAN(POST_DATA_GRAD)) || n->nin < 2 || is_known(s, i) ||
      source_takes(s, n->first))
    return TY_OK;
  const int a = epilogue_find_only_reader(f, i), dtype = s->desc[n->first].dtype;
  if (a < 0 || !epilogue_in_group_of(f, a, 1) || !epilogue_runs_beside(f, i, a)) return TY_OK;
  const struct node *m = &s->g->node[a];
  const ty_entry y = n->in[1];
  if (!m->backward || m->forward < 0 || !epilogue_is_known_by_output(f, m->forward) ||
      m->nin != 2 || m->in[0].node != i || m->in[1].node != y.node || m->in[1].out != y.out)
    return TY_OK;
  if (s->desc[m->first].dtype != dtype || s->desc[value_of(s->g, y)].dtype != dtype) return TY_OK;
  if (source_ends_at(s, a) || (s->into && s->into[m->first] >= 0)) return TY_OK;
  return epilogue_reader_does_act(f, a)
      ? TY_OK
      : epilogue_take_node(f, i, (struct fused_node){ POST_DATA_GRAD, a, y });
}

/* -- after any node: a sum with a value that is there before ----------------------------------- */

/* Returns the relu after the sum a, where the sum's program holds nothing else; -1: none. */
static int epilogue_find_relu_of_sum(const struct finder *f, int i, int a)
{
  const struct source *s = &f->p->s;
  const int r = epilogue_find_only_reader(f, a);
  if (!(epilogue_get_caps(f, i) & CAN_ACT_OF_SUM) || r < 0 || !epilogue_in_group_of(f, a, 2))
    return -1;
  return f->p->group[r] == f->p->group[a] && epilogue_is_relu(f, r) && !source_ends_at(s, r) &&
          s->desc[s->g->node[r].first].dtype == s->desc[s->g->node[a].first].dtype
      ? r
      : -1;
}

static int epilogue_take_sum(struct finder *f, int i)
{
  const struct source *s = &f->p->s;
  const int first = s->g->node[i].first;
  if (!(epilogue_get_caps(f, i) & CAN(POST_ADD)) || is_known(s, i)) return TY_OK;
  if (source_takes(s, first)) return TY_OK;
  const int a = epilogue_find_only_reader(f, i);
  if (a < 0 || !epilogue_runs_beside(f, i, a) || source_ends_at(s, a)) return TY_OK;
  const int relu = epilogue_find_relu_of_sum(f, i, a);
  if (relu < 0 && !epilogue_in_group_of(f, a, 1)) return TY_OK;
  const struct node *m = &s->g->node[a];
  const ty_desc *sum = &s->desc[m->first];
  if (m->backward || !(m->op->flags & OP_SUM) || m->nin != 2) return TY_OK;
  const ty_entry other = m->in[m->in[0].node == i];
  if (!s->g->node[other.node].op || epilogue_find_maker(f, other.node) >= i) return TY_OK;
  for (int k = 0; k < 2; k++) {
    const ty_desc *d = &s->desc[value_of(s->g, m->in[k])];
    if (!desc_same_shape(d, sum) || d->dtype != sum->dtype) return TY_OK;
  }
  TRY(epilogue_take_node(f, i, (struct fused_node){ POST_ADD, a, other }));
  return relu < 0 ? TY_OK
                  : epilogue_take_node(f, i, (struct fused_node){ POST_ACT, relu, { -1, 0 } });
}

/* -- the pass ---------------------------------------------------------------------------------- */

static int epilogue_find_all(struct finder *f)
{
  const struct program *p = f->p;
  for (int i = 0; i < p->s.g->n; i++)
    if (p->group[i] >= 0) f->size[p->group[i]]++, f->last[p->group[i]] = i;
  for (int i = 0; i < p->s.g->n; i++) {
    const struct node *n = &p->s.g->node[i];
    if (!n->op || n->op->formula) continue;
    if (!n->backward) TRY(epilogue_take_after(f, i));
    if (!n->backward && !p->fusion[i]) TRY(epilogue_take_activation(f, i));
    if (n->backward) TRY(epilogue_take_before(f, i));
    if (n->backward && !p->fusion[i]) TRY(epilogue_take_kept(f, i));
    if (n->backward && !p->fusion[i]) TRY(epilogue_take_mask(f, i));
    if (n->backward && !p->fusion[i]) TRY(epilogue_take_slope(f, i));
    if (!p->fusion[i]) TRY(epilogue_take_sum(f, i));
  }
  return TY_OK;
}

int pass_epilogue(struct program *p)
{
  const int n = p->s.g->n;
  p->fusion = arena_new(&p->arena, sizeof *p->fusion * (size_t)(n + 1));
  p->taken_by = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  NEED(p->fusion && p->taken_by, TY_EMEMORY, "out of memory: epilogues");
  for (int i = 0; i < n; i++) p->taken_by[i] = -1;
  if (p->s.flags & TY_NOFUSE) return TY_OK;
  struct finder f = { p, NEWS(int, n), NEWS(int, n) };
  const int code =
      f.size && f.last ? epilogue_find_all(&f) : fail(TY_EMEMORY, "out of memory: epilogues");
  mem_free(f.size);
  mem_free(f.last);
  return code;
}

/* -- for later passes -------------------------------------------------------------------------- */

bool fusion_has(const struct fusion *f, enum fused_kind kind)
{
  for (int k = 0; f && k < f->n; k++)
    if (f->node[k].kind == kind) return true;
  return false;
}

int fusion_kept(const struct fusion *f)
{
  for (int k = 0; f && k < f->n; k++)
    if (fused_kept(f->node[k].kind)) return f->node[k].node;
  return -1;
}

int fusion_result(const struct fusion *f)
{
  return f && fused_after(f->node[f->n - 1].kind) ? f->node[f->n - 1].node : -1;
}

bool value_is_internal(const struct program *p, int i)
{
  const int by = p->taken_by[i], result = by < 0 ? -1 : fusion_result(p->fusion[by]);
  return fusion_result(p->fusion[i]) >= 0 || (result >= 0 && result != i);
}
