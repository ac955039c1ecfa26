/* schedule.c - the steps of a program in the order they run.
**
** Only what is alive gets a step (uses.c). Order is index order (the order of building, then of the
** gradient pass), a group runs at its last member; so the steps of the forward part come first.
** Nodes that only rename bytes (views) get no step. Copies and additions into bound gradient arrays
** come last, in the order of the nodes that compute the gradients, since bound arrays may overlap.
*/
#include "pass/passes.h"

/* -- steps ------------------------------------------------------------------------------------- */

/* last, start: per group leader */
struct build { struct program *p; struct uses u; int cap, *last, *start; };

static struct step *schedule_add_step(struct build *b, int kind, int node, int device)
{
  struct program *p = b->p;
  if (p->n == b->cap) return NULL;
  struct step *st = &p->step[p->n++];
  *st = (struct step){ .kind = kind,
    .node = node,
    .device = device,
    .bound = -1,
    .scratch_at = -1,
    .guard = -1,
    .state_of = -1 };
  int guard = node >= 0 ? p->s.g->node[node].guard - 1 : -1;
  if (guard >= 0 && p->s.device[guard] == device) st->guard = p->s.g->node[guard].first;
  return st;
}

static bool schedule_is_view_node(const struct source *s, int i, const uint8_t *used)
{
  const struct node *n = &s->g->node[i];
  for (int k = 0; k < n->kind->nout; k++)
    if (used[n->first + k] && view_of(s, i, k) < 0) return false;
  return true;
}

/* Drops views at the end of a group from its members: they have no reader inside, and the last
** member of a group runs it. */
static void schedule_drop_last_views(struct build *b)
{
  struct program *p = b->p;
  for (int i = p->s.g->n - 1; i >= 0; i--) {
    if (!b->u.alive[i] || p->group[i] < 0) continue;
    int *last = &b->last[p->group[i]];
    if (*last == 0 && !changes_state(&p->s.g->node[i]) &&
        schedule_is_view_node(&p->s, i, b->u.used))
      p->group[i] = -1;
    else
      *last = MAX(*last, i);
  }
}

/* Lists the members of each group in program.member, in index order. */
static int schedule_list_groups(struct build *b)
{
  struct program *p = b->p;
  int n = p->s.g->n, *at = NEWS(int, n + 1), total = 0;
  NEED(at, TY_EMEMORY, "out of memory: schedule");
  schedule_drop_last_views(b);
  for (int i = 0; i < n; i++)
    if (b->u.alive[i] && p->group[i] >= 0) at[p->group[i]]++;
  for (int i = 0; i < n; i++) {
    b->start[i] = total;
    total += at[i];
    at[i] = b->start[i];
  }
  b->start[n] = total;
  for (int i = 0; i < n; i++)
    if (b->u.alive[i] && p->group[i] >= 0) p->member[at[p->group[i]]++] = i;
  mem_free(at);
  return TY_OK;
}

static int schedule_add_group(struct build *b, int i)
{
  struct program *p = b->p;
  struct step *st = schedule_add_step(b, STEP_POINTWISE, i, p->s.device[i]);
  NEED(st, TY_EINTERNAL, "schedule: too few steps counted");
  st->member = b->start[p->group[i]];
  st->nmember = b->start[p->group[i] + 1] - st->member;
  for (int k = 0; k < st->nmember; k++) p->step_of[p->member[st->member + k]] = p->n - 1;
  return TY_OK;
}

static int schedule_add_node(struct build *b, int i)
{
  struct program *p = b->p;
  struct step *st = schedule_add_step(b, STEP_NODE, i, p->s.device[i]);
  NEED(st, TY_EINTERNAL, "schedule: too few steps counted");
  p->step_of[i] = p->n - 1;
  for (int k = 0; p->fusion[i] && k < p->fusion[i]->n; k++) {
    const struct fused_node *x = &p->fusion[i]->node[k];
    if (fused_after(x->kind) || fused_kept(x->kind)) p->step_of[x->node] = p->n - 1;
  }
  return TY_OK;
}

/* Compares copies by the node that makes the gradient, then in the order of arguments. */
static int schedule_compare_copies(const void *a, const void *b)
{
  const struct grad_copy *x = *(const struct grad_copy *const *)a;
  const struct grad_copy *y = *(const struct grad_copy *const *)b;
  if (x->from.node != y->from.node) return x->from.node < y->from.node ? -1 : 1;
  return x < y ? -1 : 1;
}

static int schedule_add_copies(struct build *b)
{
  struct program *p = b->p;
  const int n = p->s.ncopy;
  const struct grad_copy **order = arena_new(&p->arena, sizeof *order * (size_t)(n + 1));
  NEED(order, TY_EMEMORY, "out of memory: schedule");
  for (int c = 0; c < n; c++) order[c] = &p->s.copy[c];
  qsort(order, (size_t)n, sizeof *order, schedule_compare_copies);
  for (int c = 0; c < n; c++) {
    const struct grad_copy *g = order[c];
    int device = p->s.device[g->from.node];
    struct step *st = schedule_add_step(b, g->req == TY_ADD ? STEP_ADD : STEP_COPY, -1, device);
    NEED(st, TY_EINTERNAL, "schedule: too few steps counted");
    st->from = g->from;
    st->bound = g->bound;
  }
  return TY_OK;
}

static int schedule_build_steps(struct build *b)
{
  struct program *p = b->p;
  const struct source *s = &p->s;
  TRY(schedule_list_groups(b));
  for (int i = 0; i <= s->g->n; i++) {
    if (i == s->forward) p->nforward = p->n;
    if (i == s->g->n) break;
    const struct node *n = &s->g->node[i];
    if (!b->u.alive[i] || !n->op || p->taken_by[i] >= 0 ||
        (!changes_state(n) && schedule_is_view_node(s, i, b->u.used)))
      continue;
    if (p->group[i] < 0)
      TRY(schedule_add_node(b, i));
    else if (b->last[p->group[i]] == i)
      TRY(schedule_add_group(b, i));
  }
  return schedule_add_copies(b); /* at the end: bound arrays may overlap */
}

int pass_schedule(struct program *p)
{
  const struct source *s = &p->s;
  int n = s->g->n, nop = 0;
  for (int i = 0; i < n; i++) nop += s->g->node[i].op != NULL;
  struct build b = { .p = p,
    .cap = nop + s->ncopy + 1,
    .last = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1)),
    .start = arena_new(&p->arena, sizeof(int) * (size_t)(n + 2)) };
  TRY(uses_find(p, &b.u));
  p->step = arena_new(&p->arena, sizeof *p->step * (size_t)b.cap);
  p->member = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  p->step_of = arena_new(&p->arena, sizeof(int) * (size_t)(n + 1));
  NEED(b.last && b.start && p->step && p->member && p->step_of, TY_EMEMORY,
      "out of memory: schedule");
  for (int i = 0; i < n; i++) p->step_of[i] = -1;
  return schedule_build_steps(&b);
}
