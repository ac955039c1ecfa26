/* uses.c - which nodes of a graph must run and which values are read, for heads, requested
** gradients and changed states. Computed before the steps are listed (schedule.c), and again when
** it is known which nodes run together (values.c).
*/
#include "pass/passes.h"

static void uses_mark_value(struct uses *u, int v) { u->used[v] = u->outside[v] = 1; }

/* Marks the outputs of a node that the reference has: a monitored program reports them, so they
** need memory even if nothing reads them. */
static void uses_mark_reported(struct uses *u, const struct node *n)
{
  for (int k = 0; n->op && k < n->kind->nreal; k++)
    if (!n->backward || !n->kind->inport[k].mutated) uses_mark_value(u, n->first + k);
}

static void uses_mark_ends(const struct source *s, struct uses *u)
{
  for (int h = 0; h < s->nhead; h++) uses_mark_value(u, value_of(s->g, s->head[h]));
  for (int k = 0; k < s->nend; k++)
    if (s->end[k].node >= 0 && !is_label_end(s, s->end[k]))
      uses_mark_value(u, value_of(s->g, s->end[k]));
  for (int v = 0; v < s->g->nvalue; v++)
    if (s->grad_of[v] >= 0) uses_mark_value(u, v);
  for (int c = 0; c < s->ncopy; c++) uses_mark_value(u, value_of(s->g, s->copy[c].from));
}

static bool uses_is_alive(const struct program *p, const struct uses *u, int i)
{
  const struct node *n = &p->s.g->node[i];
  if (is_known(&p->s, i)) return false;
  if (p->step_of ? p->step_of[i] >= 0 : n->op && changes_state(n)) return true;
  for (int k = 0; k < n->kind->nout; k++)
    if (u->used[n->first + k]) return true;
  return false;
}

/* Marks what an alive node reads. */
static void uses_mark_inputs(const struct program *p, struct uses *u, int i)
{
  const ty_graph *g = p->s.g;
  const struct node *n = &g->node[i];
  const struct fusion *f = p->step_of ? p->fusion[i] : NULL;
  for (int k = 0; f && k < f->n; k++)
    if (f->node[k].operand.node >= 0) uses_mark_value(u, value_of(g, f->node[k].operand));
  if (n->guard) uses_mark_value(u, g->node[n->guard - 1].first);
  for (int k = 0; n->op && k < n->nin; k++) {
    const int v = value_of(g, n->in[k]);
    const bool together = p->step_of && p->step_of[i] >= 0 &&
        p->step_of[i] == p->step_of[n->in[k].node];
    u->used[v] = 1;
    u->outside[v] |= !together;
  }
}

int uses_find(struct program *p, struct uses *u)
{
  const ty_graph *g = p->s.g;
  u->alive = arena_new(&p->arena, (size_t)g->n + 1);
  u->used = arena_new(&p->arena, (size_t)g->nvalue + 1);
  u->outside = arena_new(&p->arena, (size_t)g->nvalue + 1);
  NEED(u->alive && u->used && u->outside, TY_EMEMORY, "out of memory: what values are used");
  uses_mark_ends(&p->s, u);
  for (int i = g->n - 1; i >= 0; i--) {
    u->alive[i] = uses_is_alive(p, u, i);
    if (!u->alive[i]) continue;
    if (p->step_of && p->s.flags & TY_KEEP) uses_mark_reported(u, &g->node[i]);
    uses_mark_inputs(p, u, i);
  }
  return TY_OK;
}

int *count_reads(const struct source *s)
{
  int *n = NEWS(int, s->g->nvalue);
  for (int i = 0; n && i < s->g->n; i++)
    for (int k = 0; !s->summed[i] && k < s->g->node[i].nin; k++)
      n[value_of(s->g, s->g->node[i].in[k])]++;
  for (int h = 0; n && h < s->nhead; h++) n[value_of(s->g, s->head[h])]++;
  return n;
}
