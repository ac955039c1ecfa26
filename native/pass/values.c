/* values.c - where each value will lie, and what each step reads and writes.
**
** A value is a bound array, nothing (inside a pointwise program, or unread), or has bytes in its
** device's pool. Values that share bytes, as views do and gradients that pass through, have one
** root.
*/
#include "pass/passes.h"

static int64_t value_bytes(const struct source *s, int v)
{
  return (int64_t)align_up(desc_bytes(&s->desc[v]), ALIGN);
}

/* A node's output that no machine holds is refused before its bytes are summed up. */
static int check_sizes(const struct source *s)
{
  for (int i = 0; i < s->g->n; i++) {
    const struct node *n = &s->g->node[i];
    for (int k = 0; n->op && k < n->kind->nout; k++) {
      int code = desc_check_size(&s->desc[n->first + k]);
      if (!code) continue;
      fail_node(n->op->name, n->name, n->where);
      return code;
    }
  }
  return TY_OK;
}

/* -- what has bytes ---------------------------------------------------------------------------- */

/* per value: somebody reads it; somebody beyond its pointwise program does */
struct marks { uint8_t *used, *outside; };

/* Monitored programs report every output that the reference has: it needs a place although
** nobody reads it. */
static void keep_output(struct marks *m, const struct node *n, int k)
{
  if (!n->op || (n->backward && n->kind->inport[k].mutated)) return;
  m->used[n->first + k] = m->outside[n->first + k] = 1;
}

static void use_operand(struct marks *m, const ty_graph *g, ty_entry e)
{
  if (e.node >= 0) m->used[value_of(g, e)] = m->outside[value_of(g, e)] = 1;
}

static int mark_values(struct program *p, struct marks *m)
{
  const struct source *s = &p->s;
  const ty_graph *g = s->g;
  m->used = arena_new(&p->arena, (size_t)g->nvalue + 1);
  m->outside = arena_new(&p->arena, (size_t)g->nvalue + 1);
  NEED(m->used && m->outside, TY_EMEMORY, "out of memory: plan");
  for (int h = 0; h < s->nhead; h++)
    m->used[value_of(g, s->head[h])] = m->outside[value_of(g, s->head[h])] = 1;
  for (int k = 0; k < s->nend; k++)
    if (s->end[k].node >= 0 && !is_label_end(s, s->end[k]))
      m->used[value_of(g, s->end[k])] = m->outside[value_of(g, s->end[k])] = 1;
  for (int v = 0; v < g->nvalue; v++)
    if (s->grad_of[v] >= 0) m->used[v] = m->outside[v] = 1;
  for (int i = g->n - 1; i >= 0; i--) {
    const struct node *n = &g->node[i];
    bool runs = p->step_of[i] >= 0;
    for (int k = 0; k < n->kind->nout && !runs; k++)
      runs = m->used[n->first + k]; /* a view that somebody reads */
    if (p->s.flags & TY_KEEP && runs)
      for (int k = 0; k < n->kind->nreal; k++) keep_output(m, n, k);
    for (int k = 0; runs && p->fusion[i] && k < p->fusion[i]->n; k++)
      use_operand(m, g, p->fusion[i]->node[k].operand);
    if (runs && n->guard)
      m->used[g->node[n->guard - 1].first] = m->outside[g->node[n->guard - 1].first] = 1;
    for (int k = 0; runs && n->op && k < n->nin; k++) {
      int v = value_of(g, n->in[k]), from = n->in[k].node;
      m->used[v] = 1;
      m->outside[v] |= p->step_of[i] < 0 || p->step_of[i] != p->step_of[from];
    }
  }
  return TY_OK;
}

static void find_roots(struct program *p, const struct marks *m)
{
  const struct source *s = &p->s;
  for (int i = 0; i < s->g->n; i++) {
    const struct node *n = &s->g->node[i];
    for (int k = 0; k < n->kind->nout; k++) {
      int v = n->first + k, in;
      struct value *x = &p->value[v];
      *x = (struct value){ .kind = V_NONE,
        .root = v,
        .bound = -1,
        .first = -1,
        .last = -1,
        .device = s->device[i],
        .bytes = value_bytes(s, v),
        .offset = -1,
        .reader = -1 };
      if (!n->op) {
        x->kind = V_BOUND;
        x->bound = s->bound[i];
        continue;
      }
      if (s->grad_of[v] >= 0) {
        x->kind = V_BOUND;
        x->bound = s->grad_of[v];
        x->add = s->grad_req[v] == TY_ADD;
        continue;
      }
      if (s->into && s->into[v] >= 0) { /* added to a sum that is there already */
        int r = p->value[s->into[v]].root;
        x->root = r;
        x->kind = p->value[r].kind;
        x->bound = p->value[r].bound;
        x->add = true;
        continue;
      }
      if (!m->used[v] || (!m->outside[v] && p->group[i] >= 0)) continue;
      if (k == 0 && value_lies_inside(p, i)) continue;
      if ((in = view_of(s, i, k)) >= 0 &&
          (p->step_of[i] < 0 || p->step_of[n->in[in].node] != p->step_of[i])) {
        int r = p->value[value_of(s->g, n->in[in])].root;
        x->root = r;
        x->kind = p->value[r].kind;
        x->bound = p->value[r].bound;
        continue;
      }
      if (p->step_of[i] >= 0) x->kind = V_POOL;
    }
  }
}

/* -- what each step reads and writes ----------------------------------------------------------- */

static void add_once(int *list, int *n, int v)
{
  for (int i = 0; i < *n; i++)
    if (list[i] == v) return;
  list[(*n)++] = v;
}

static int list_program(struct program *p, struct step *st, int index)
{
  const ty_graph *g = p->s.g;
  int nin = 0, nout = 0;
  for (int k = 0; k < st->nmember; k++)
    nin += g->node[p->member[st->member + k]].nin,
        nout += g->node[p->member[st->member + k]].kind->nout;
  st->in = arena_new(&p->arena, sizeof(int) * (size_t)(nin + 1));
  st->out = arena_new(&p->arena, sizeof(int) * (size_t)(nout + 1));
  NEED(st->in && st->out, TY_EMEMORY, "out of memory: plan");
  for (int k = 0; k < st->nmember; k++) {
    const struct node *n = &g->node[p->member[st->member + k]];
    for (int j = 0; j < n->nin; j++)
      if (p->step_of[n->in[j].node] != index) add_once(st->in, &st->nin, value_of(g, n->in[j]));
    for (int j = 0; j < n->kind->nout; j++)
      if (p->value[n->first + j].kind != V_NONE && p->value[n->first + j].root == n->first + j)
        st->out[st->nout++] = n->first + j;
  }
  return TY_OK;
}

static int list_node(struct program *p, struct step *st)
{
  const ty_graph *g = p->s.g;
  const struct node *n = &g->node[st->node];
  st->in = arena_new(&p->arena, sizeof(int) * (size_t)(n->nin + MOST_FUSED));
  st->out = arena_new(&p->arena, sizeof(int) * (size_t)(n->kind->nout + 1));
  NEED(st->in && st->out, TY_EMEMORY, "out of memory: plan");
  st->nin = n->nin;
  st->nout = n->kind->nout;
  for (int k = 0; k < n->nin; k++) st->in[k] = value_of(g, n->in[k]);
  for (int k = 0; k < n->kind->nout; k++) {
    int v = n->first + k;
    bool own = p->value[v].root == v || (p->s.into && p->s.into[v] >= 0);
    st->out[k] = p->value[v].kind != V_NONE && own ? v : -1;
  }
  const struct fusion *f = step_fusion(p, st);
  if (fusion_result(f) >= 0) st->out[0] = g->node[fusion_result(f)].first;
  for (int k = 0; f && k < f->n; k++) {
    const struct fused_node *x = &f->node[k];
    if (!fused_behind(x->kind)) st->in[0] = value_of(g, g->node[x->node].in[0]);
    if (x->operand.node >= 0) st->in[st->nin++] = value_of(g, x->operand);
  }
  return TY_OK;
}

static int list_steps(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->kind == STEP_POINTWISE)
      TRY(list_program(p, st, t));
    else if (st->kind == STEP_NODE)
      TRY(list_node(p, st));
    else {
      st->in = arena_new(&p->arena, sizeof(int));
      NEED(st->in, TY_EMEMORY, "out of memory: plan");
      st->in[0] = value_of(p->s.g, st->from);
      st->nin = 1;
    }
  }
  return TY_OK;
}

/* -- devices ----------------------------------------------------------------------------------- */

static int find_devices(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    if (program_slot(p, p->step[t].device) >= 0) continue;
    NEED(p->ndevice < MAX_DEVICES, TY_EDEVICE, "one executor may use %d devices at most",
        MAX_DEVICES);
    p->device[p->ndevice++] = p->step[t].device;
  }
  return TY_OK;
}

int pass_values(struct program *p)
{
  struct marks m;
  p->value = arena_new(&p->arena, sizeof *p->value * (size_t)(p->s.g->nvalue + 1));
  NEED(p->value, TY_EMEMORY, "out of memory: plan");
  TRY(check_sizes(&p->s));
  TRY(mark_values(p, &m));
  find_roots(p, &m);
  TRY(list_steps(p));
  return find_devices(p);
}
