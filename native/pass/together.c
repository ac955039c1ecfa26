/* together.c - what the steps of a segment do together: the first of them before it runs, the last
** one after it (struct together in kernel/kernel.h). Weights of convolutions get their channels
** last so, and gradients get theirs back, in one launch for all.
**
** A step takes part where it always runs; before, where the operand is a bound array that the
** program does not write; after, where nothing else in the program reads or writes the bound array
** that gets the result.
*/
#include "pass/passes.h"

/* Returns whether a step's kernel runs in each run of its segment, over the operands themselves. */
static bool together_always_runs(const struct step *st)
{
  return st->kind == STEP_NODE && st->v.kernel && st->guard < 0 && !st->fused_norm &&
      !st->fused_into && !st->v.cpu_fallback && !st->v.half;
}

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

static bool together_finishes_output(const struct program *p, const struct step *st, int t)
{
  const struct together *x = st->v.kernel->after;
  const int v = x && x->operand < st->nout ? st->out[x->operand] : -1;
  if (v < 0 || p->value[v].root != v || p->value[v].kind != V_BOUND || p->value[v].add ||
      p->value[v].pinned || !x->takes(&st->v.call))
    return false;
  return !together_is_touched(p, v, t);
}

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

/* Lists for a segment what its kernels do together before it, and after it: the first kernel that
** does something so decides what. */
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
