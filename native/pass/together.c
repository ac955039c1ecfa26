/* together.c - work that several steps of a segment share (struct together in kernel/kernel.h): one
** call before the first of them prepares an input of each, or one call after the last of them
** finishes an output of each. So the weights of all convolutions are stored with channels last in
** one launch, and their gradients are stored back in one.
**
** A step takes part only if it runs in every run of its segment. An input is prepared together if
** it is a bound array that the program does not write, an output is finished together if it goes to
** a bound array that no other step reads or writes.
*/
#include "pass/passes.h"

/* Returns whether a step's kernel runs in each run of its segment, over the operands themselves. */
static bool together_always_runs(const struct step *st)
{
  return st->kind == STEP_NODE && st->v.kernel && st->guard < 0 && !st->fused_norm &&
      !st->fused_into && !st->v.cpu_fallback && !st->v.half;
}

/* Returns whether the input that a step's kernel prepares can be prepared before the segment. */
static bool together_prepares_input(const struct program *p, const struct step *st)
{
  const struct together *t = st->v.kernel->before;
  if (!t || !st->v.state || !t->takes(&st->v.call)) return false;
  const struct value *r = &p->value[p->value[st->in[t->operand]].root];
  return r->kind == V_BOUND && r->first < 0;
}

/* Returns whether a step other than t reads or writes the bound array of value v. */
static bool together_is_touched(const struct program *p, int v, int t)
{
  const int bound = p->value[v].bound;
  for (int k = 0; k < p->n; k++) {
    const struct step *st = &p->step[k];
    bool touches = st->bound == bound;
    for (int i = 0; i < st->nin; i++) {
      const struct value *r = &p->value[p->value[st->in[i]].root];
      touches |= r->kind == V_BOUND && r->bound == bound;
    }
    for (int i = 0; i < st->nout && k != t; i++) {
      const struct value *r = st->out[i] < 0 ? NULL : &p->value[p->value[st->out[i]].root];
      touches |= r && r->kind == V_BOUND && r->bound == bound;
    }
    if (touches) return true;
  }
  return false;
}

/* Returns whether the output that the kernel of step t finishes can be finished after the
** segment. */
static bool together_finishes_output(const struct program *p, const struct step *st, int t)
{
  const struct together *x = st->v.kernel->after;
  const int v = x && x->operand < st->nout ? st->out[x->operand] : -1;
  if (v < 0 || p->value[v].root != v || p->value[v].kind != V_BOUND || p->value[v].add ||
      p->value[v].pinned || !x->takes(&st->v.call))
    return false;
  return !together_is_touched(p, v, t);
}

/* Makes an empty list with room for `most` steps; NULL: out of memory. */
static struct joined *together_begin_list(struct program *p, const struct together *does, int most)
{
  struct joined *j = arena_new(&p->arena, sizeof *j);
  if (!j) return NULL;
  *j = (struct joined){ does, 0, arena_new(&p->arena, sizeof(int) * (size_t)most),
    arena_new(&p->arena, sizeof(struct call *) * (size_t)most) };
  return j->step && j->call ? j : NULL;
}

static int together_add_step(struct program *p, struct joined *j, int t)
{
  NEED(j, TY_EMEMORY, "out of memory: segments");
  j->step[j->n] = t;
  j->call[j->n++] = &p->step[t].v.call;
  return TY_OK;
}

/* Lists the steps of a segment that share work before it, and after it. A segment has one shared
** work of each kind: that of the first kernel that has any. */
static int together_join_segment(struct program *p, const struct segment *g)
{
  struct joined *before = NULL, *after = NULL;
  for (int t = g->first; t < g->last; t++) {
    struct step *st = &p->step[t];
    if (!together_always_runs(st)) continue;
    const struct kernel *k = st->v.kernel;
    if (together_prepares_input(p, st) && (!before || before->does == k->before)) {
      if (!before) st->before = before = together_begin_list(p, k->before, g->last - t);
      TRY(together_add_step(p, before, t));
      st->v.call.prepared = true;
    }
    if (together_finishes_output(p, st, t) && (!after || after->does == k->after)) {
      if (!after) after = together_begin_list(p, k->after, g->last - t);
      TRY(together_add_step(p, after, t));
      st->v.call.finished_later = true;
    }
  }
  if (after) p->step[after->step[after->n - 1]].after = after;
  return TY_OK;
}

int join_calls(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    st->before = st->after = NULL;
    st->v.call.prepared = st->v.call.finished_later = false;
  }
  if (p->s.flags & TY_NOFUSE) return TY_OK;           /* its steps may run alone */
  for (int i = 0; i < p->nsegment; i++) TRY(together_join_segment(p, &p->segment[i]));
  return TY_OK;
}
