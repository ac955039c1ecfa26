/* order.c - products with the same weight one after another.
**
** A network of cells, step after step, is built step by step: every step of it goes through the weights of all layers,
** more than a cache holds. Here the forward steps of a program with gradients are put in another order: behind a product
** comes the next one with its weight, unless a product with another weight would have to come first. So a layer goes
** through all of its time before the next layer begins, as in a fused recurrent operator, and its weight stays near.
** Without gradients the order stays: values would live longer. So it does where steps change states, are skipped, run in
** the front end or on several devices, and in programs that are not to be changed.
*/
#include "program.h"

enum { NEAR = 64 };                                   /* steps that may come forward with a product */
struct order {
  struct program *p;
  int *weight, *next;                                 /* per step: of a product, its weight's node, else -1; the next one with it */
  int *writer;                                        /* per root: the step that makes it, -1 */
  int *to, n;                                         /* per step: its new place, -1: not placed yet; steps placed */
  int list[NEAR], nlist;                              /* what has to come before a product */
};

static int weight_of(const struct program *p, const struct step *st)
{
  if (st->kind != STEP_NODE || st->nin < 2) return -1;
  const struct node *n = &p->s.g->node[st->node];
  const struct kernel *k = op_kernels(n->op, true);
  return k && k->flags & K_JOIN && !p->s.g->node[n->in[1].node].op ? n->in[1].node : -1;
}

static bool may_move(const struct program *p, const struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  if (st->guard >= 0 || st->device != p->step[0].device || step_of_host(p, st)) return false;
  for (int k = 0; k < n->nin; k++) if (n->inport && n->inport[k].mutated) return false;
  return true;
}

/* Notes weights and makers; is there anything to put in order, and may it be? */
static bool look(struct order *o)
{
  struct program *p = o->p;
  int *last = o->to, found = 0;                       /* per node: the last product with this weight */
  for (int i = 0; i < p->s.g->n; i++) last[i] = -1;
  for (int v = 0; v < p->s.g->nvalue; v++) o->writer[v] = -1;
  for (int t = 0; t < p->nforward; t++) {
    const struct step *st = &p->step[t];
    if (!may_move(p, st)) return false;
    for (int k = 0; k < st->nout; k++) {
      int root = st->out[k] < 0 ? -1 : p->value[st->out[k]].root;
      if (root >= 0 && o->writer[root] >= 0) return false;
      if (root >= 0) o->writer[root] = t;
    }
    int w = o->weight[t] = weight_of(p, st);
    o->next[t] = -1;
    if (w >= 0 && last[w] >= 0) o->next[last[w]] = t, found++;
    if (w >= 0) last[w] = t;
  }
  return found > 1;
}

/* Puts step t and what it needs on the list, what it needs first. False: too much, or a product with another weight. */
static bool gather(struct order *o, int t, int weight)
{
  const struct step *st = &o->p->step[t];
  for (int i = 0; i < o->nlist; i++) if (o->list[i] == t) return true;
  if (o->weight[t] >= 0 && o->weight[t] != weight) return false;
  for (int k = 0; k < st->nin; k++) {
    int maker = o->writer[o->p->value[st->in[k]].root];
    if (maker >= 0 && o->to[maker] < 0 && !gather(o, maker, weight)) return false;
  }
  if (o->nlist == NEAR) return false;
  o->list[o->nlist++] = t;
  return true;
}

static void place(struct order *o, int t)
{
  if (o->to[t] < 0) o->to[t] = o->n++;
}

static void place_all(struct order *o)
{
  struct program *p = o->p;
  for (int t = 0; t < p->nforward; t++) o->to[t] = -1;
  for (int t = 0; t < p->nforward; t++) {
    place(o, t);
    for (int u = o->next[t]; u >= 0; u = o->next[u]) {
      o->nlist = 0;
      if (o->to[u] < 0 && !gather(o, u, o->weight[u])) break;
      for (int i = 0; i < o->nlist; i++) place(o, o->list[i]);
    }
  }
}

static int move_steps(struct order *o)
{
  struct program *p = o->p;
  struct step *old = NEWS(struct step, p->nforward);
  NEED(old, TY_EMEMORY, "out of memory: plan");
  memcpy(old, p->step, sizeof *old * (size_t)p->nforward);
  for (int t = 0; t < p->nforward; t++) p->step[o->to[t]] = old[t];
  for (int i = 0; i < p->s.g->n; i++) if (p->step_of[i] >= 0 && p->step_of[i] < p->nforward) p->step_of[i] = o->to[p->step_of[i]];
  mem_free(old);
  return TY_OK;
}

int order_program(struct program *p)
{
  int n = MAX(p->s.g->n, p->s.g->nvalue) + 1;
  if (p->nforward == p->n || p->s.flags & (TY_NOSHARE | TY_KEEP | TY_NOFUSE)) return TY_OK;
  struct order o = { .p = p, .weight = NEWS(int, n), .next = NEWS(int, n), .writer = NEWS(int, n), .to = NEWS(int, n) };
  int code = o.weight && o.next && o.writer && o.to ? TY_OK : fail(TY_EMEMORY, "out of memory: plan");
  if (!code && look(&o)) {
    place_all(&o);
    code = move_steps(&o);
  }
  mem_free(o.weight); mem_free(o.next); mem_free(o.writer); mem_free(o.to);
  return code;
}
