/* liveness.c - the lifetimes of values: the steps from which and to which their bytes are in use.
**
** A result gets the bytes of an input whose last use is the same step, where the operator allows
** it. Heads live to the end, and so do values that another device reads, since its queue is not
** ordered with this one. After this pass roots are final.
*/
#include "pass/passes.h"

static void liveness_extend_use(struct program *p, int v, int t)
{
  struct value *r = &p->value[p->value[v].root];
  r->last = MAX(r->last, t);
}

static void liveness_find_all(struct program *p)
{
  const struct source *s = &p->s;
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    for (int k = 0; k < st->nin; k++) {
      struct value *x = &p->value[st->in[k]];
      x->nread++;
      x->reader = t;
      liveness_extend_use(p, st->in[k], p->value[x->root].device == st->device ? t : p->n);
    }
    if (st->guard >= 0) liveness_extend_use(p, st->guard, t);
    for (int k = 0; k < st->nout; k++) {
      if (st->out[k] < 0) continue;
      struct value *x = &p->value[st->out[k]];
      x->first = t;
      x->device = st->device;
      p->value[x->root].last_write = t;
      liveness_extend_use(p, st->out[k], t);
    }
  }
  for (int h = 0; h < s->nhead; h++) {
    int r = p->value[value_of(s->g, s->head[h])].root;
    p->value[r].pinned = true;
    p->value[r].last = p->n;
  }
}

static int liveness_find_root(const struct program *p, int v)
{
  while (p->value[v].root != v) v = p->value[v].root;
  return v;
}

/* -- results in the place of dying inputs ------------------------------------------------------ */

static bool liveness_may_take(
    const struct program *p, const struct step *st, int t, int out, int in)
{
  const struct source *s = &p->s;
  int v = st->out[out], u = st->in[in], r = liveness_find_root(p, u);
  const struct value *x = &p->value[v], *y = &p->value[r];
  if (y->kind != V_POOL || y->pinned || y->last != t || y->first >= t || y->device != x->device ||
      y->bytes != x->bytes)
    return false;
  if (desc_bytes(&s->desc[u]) != desc_bytes(&s->desc[v])) return false;
  if (st->end && v == s->g->node[st->node].first) return false;
  if (st->kind == STEP_POINTWISE)
    return s->desc[u].dtype == s->desc[v].dtype && desc_same_shape(&s->desc[u], &s->desc[v]);
  const struct fusion *f = step_fusion(p, st);
  if (fusion_has(f, PRE_ACT_GRAD) || fusion_has(f, POST_ACT_GRAD) ||
      fusion_has(f, POST_DATA_GRAD))
    return false;
  return step_in_place(p, st, out, in);
}

/* Returns whether no other input of the step has the same bytes, which an operator that is not
** element-wise would then overwrite too early. */
static bool liveness_is_read_once(const struct program *p, const struct step *st, int in)
{
  if (st->kind == STEP_POINTWISE) return true;
  for (int k = 0; k < st->nin; k++)
    if (k != in && liveness_find_root(p, st->in[k]) == liveness_find_root(p, st->in[in]))
      return false;
  return true;
}

/* Returns a root whose last use is this step, -1: none. Of several, in forward, the one written
** longest ago, as the newest may never be written at all (fold_batchnorm.c). */
static int liveness_find_reusable_root(
    const struct program *p, const struct step *st, int t, int out)
{
  int best = -1;
  for (int j = 0; j < st->nin; j++) {
    int r = liveness_find_root(p, st->in[j]);
    if (r == st->out[out] || !liveness_may_take(p, st, t, out, j) ||
        !liveness_is_read_once(p, st, j))
      continue;
    if (best < 0 || (t < p->nforward && p->value[r].last_write < p->value[best].last_write))
      best = r;
  }
  return best;
}

static void liveness_share_in_place(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->kind == STEP_NODE && !p->s.g->node[st->node].kind->in_place &&
        fusion_kept(step_fusion(p, st)) < 0)
      continue;
    for (int k = 0; k < st->nout; k++) {
      int v = st->out[k];
      if (v < 0 || p->value[v].kind != V_POOL || p->value[v].root != v || p->value[v].add) continue;
      int r = liveness_find_reusable_root(p, st, t, k);
      if (r < 0) continue;
      p->value[r].last = p->value[v].last;
      /* of an unread output: after t, so that no other output of this step takes the bytes, too */
      if (p->value[r].last == t) p->value[r].last = t + 1;
      p->value[v].root = r;
      p->value[r].pinned = p->value[v].pinned;
      p->value[r].last_write = t;
    }
  }
}

int pass_liveness(struct program *p)
{
  liveness_find_all(p);
  if (!(p->s.flags & TY_NOSHARE)) liveness_share_in_place(p);
  for (int v = 0; v < p->s.g->nvalue; v++) /* views follow a value that moved to other bytes */
    p->value[v].root = liveness_find_root(p, v);
  return TY_OK;
}
