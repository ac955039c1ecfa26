/* group_weights.c - orders steps so that products with the same weight follow each other.
**
** An unrolled recurrent network is built time step by time step, and each of these reads the
** weights of all layers, more than a cache holds. This pass reorders the steps of a program with
** gradients, forward and backward: a product is followed by the next one with the same weight,
** unless a product with another weight would have to come between. So a layer runs all its time
** steps before the next layer begins, as in a fused recurrent operator, and its weight stays in the
** cache. The order stays as it is in programs without gradients, where values would live longer;
** where steps change states, have guards, run in the front end or on several devices; and in
** programs with TY_NOFUSE, TY_NOSHARE or TY_KEEP.
*/
#include "pass/passes.h"

/* steps that are moved forward with one product, at most */
enum { NEAR = 64 };
struct order {
  struct program *p;
  int from, end;                                      /* the steps to be put in order */
  int *weight;                                        /* per step: a product's weight node, -1 */
  int *next;                                          /* per step: the next product with it, -1 */
  int *last;                                          /* per node: its last product */
  /* per step: the step before it that writes what it adds to, -1 */
  int *sum;
  /* per root: the last step that writes it, -1 */
  int *writer;
  uint8_t *read;                                      /* per root: a step reads it */
  /* per step: its new index, -1: not emitted yet */
  int *to;
  int n;                                              /* the next new index */
  int list[NEAR];                                     /* steps that must precede a product */
  int nlist;
};

static int group_find_weight(const struct program *p, const struct step *st)
{
  const struct node *n = &p->s.g->node[st->node],
                    *f = n->forward >= 0 ? &p->s.g->node[n->forward] : n;
  if (st->kind != STEP_NODE || f->nin < 2 || n->mirror) return -1;
  return batches_sums(f->op, st->device) && !p->s.g->node[f->in[1].node].op ? f->in[1].node : -1;
}

static bool group_may_move(const struct program *p, const struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  return st->guard < 0 && st->device == p->step[0].device && !step_is_front_end(p, st) &&
      !changes_state(n);
}

/* Notes what step t reads and writes. A step that adds to a sum depends on the one that did so
** before. Returns false where a step writes what has been read. */
static bool group_note_values(struct order *o, int t)
{
  const struct program *p = o->p;
  const struct step *st = &p->step[t];
  o->sum[t] = -1;
  for (int k = 0; k < st->nin; k++) o->read[p->value[st->in[k]].root] = 1;
  for (int k = 0; k < st->nout; k++) {
    if (st->out[k] < 0) continue;
    int root = p->value[st->out[k]].root, before = o->writer[root];
    if (o->read[root]) return false;
    if (before >= o->from) o->sum[t] = MAX(o->sum[t], before);
    o->writer[root] = t;
  }
  return true;
}

/* Notes weights and writers. Returns whether there are products to move, and steps may be moved. */
static bool group_find_weights(struct order *o)
{
  struct program *p = o->p;
  int found = 0;
  for (int i = 0; i < p->s.g->n; i++) o->last[i] = -1;
  for (int v = 0; v < p->s.g->nvalue; v++) o->writer[v] = -1;
  memset(o->read, 0, (size_t)p->s.g->nvalue);
  for (int t = o->from; t < o->end; t++) {
    if (!group_note_values(o, t)) return false;
    int w = o->weight[t] = group_find_weight(p, &p->step[t]);
    o->next[t] = -1;
    if (w < 0) continue;
    if (o->last[w] >= 0) {
      o->next[o->last[w]] = t;
      found++;
    }
    o->last[w] = t;
  }
  return found > 1;
}

static bool group_gather_step(struct order *o, int t, int weight);

static bool group_gather_maker(struct order *o, int t, int weight)
{
  return t < 0 || o->to[t] >= 0 || group_gather_step(o, t, weight);
}

/* Adds step t to the list, after the steps that it needs. Returns false where these are too many,
** or one is a product with another weight. */
static bool group_gather_step(struct order *o, int t, int weight)
{
  const struct step *st = &o->p->step[t];
  for (int i = 0; i < o->nlist; i++)
    if (o->list[i] == t) return true;
  if (o->weight[t] >= 0 && o->weight[t] != weight) return false;
  if (!group_gather_maker(o, o->sum[t], weight)) return false;
  for (int k = 0; k < st->nin; k++)
    if (!group_gather_maker(o, o->writer[o->p->value[st->in[k]].root], weight)) return false;
  if (o->nlist == NEAR) return false;
  o->list[o->nlist++] = t;
  return true;
}

static void group_emit_step(struct order *o, int t)
{
  if (o->to[t] < 0) o->to[t] = o->n++;
}

static void group_emit_all(struct order *o)
{
  for (int t = o->from; t < o->end; t++) o->to[t] = -1;
  o->n = o->from;
  for (int t = o->from; t < o->end; t++) {
    group_emit_step(o, t);
    for (int u = o->next[t]; u >= 0; u = o->next[u]) {
      o->nlist = 0;
      if (o->to[u] < 0 && !group_gather_step(o, u, o->weight[u])) break;
      for (int i = 0; i < o->nlist; i++) group_emit_step(o, o->list[i]);
    }
  }
}

static int group_move_steps(struct order *o)
{
  struct program *p = o->p;
  size_t n = (size_t)(o->end - o->from);
  struct step *old = NEWS(struct step, n);
  NEED(old, TY_EMEMORY, "out of memory: plan");
  memcpy(old, p->step + o->from, sizeof *old * n);
  for (int t = o->from; t < o->end; t++) p->step[o->to[t]] = old[t - o->from];
  for (int i = 0; i < p->s.g->n; i++)
    if (p->step_of[i] >= o->from && p->step_of[i] < o->end) p->step_of[i] = o->to[p->step_of[i]];
  mem_free(old);
  return TY_OK;
}

static int group_order_part(struct order *o, int from, int end)
{
  o->from = from;
  o->end = end;
  if (!group_find_weights(o)) return TY_OK;
  group_emit_all(o);
  return group_move_steps(o);
}

/* Orders forward and backward steps, except the copies into bound arrays at the end. */
static int group_order_both(struct order *o)
{
  struct program *p = o->p;
  int end = p->nforward;
  while (end < p->n && (p->step[end].kind == STEP_NODE || p->step[end].kind == STEP_POINTWISE))
    end++;
  for (int t = 0; t < end; t++)
    if (!group_may_move(p, &p->step[t])) return TY_OK;
  TRY(group_order_part(o, 0, p->nforward));
  return group_order_part(o, p->nforward, end);
}

int pass_group_weights(struct program *p)
{
  int n = MAX(p->s.g->n, p->s.g->nvalue) + 1;
  if (p->nforward == p->n || p->s.flags & (TY_NOSHARE | TY_KEEP | TY_NOFUSE)) return TY_OK;
  struct order o = { .p = p,
    .weight = NEWS(int, n),
    .next = NEWS(int, n),
    .last = NEWS(int, n),
    .sum = NEWS(int, n),
    .writer = NEWS(int, n),
    .to = NEWS(int, n),
    .read = NEWS(uint8_t, n) };
  bool enough = o.weight && o.next && o.last && o.sum && o.writer && o.to && o.read;
  int code = enough ? group_order_both(&o) : fail(TY_EMEMORY, "out of memory: plan");
  mem_free(o.weight);
  mem_free(o.next);
  mem_free(o.sum);
  mem_free(o.writer);
  mem_free(o.to);
  mem_free(o.last);
  mem_free(o.read);
  return code;
}
