/* values.c - where the bytes of each value are, and which values each step reads and writes.
**
** The bytes of a value are those of a bound array or in the pool of its device; a value inside a
** pointwise program, or one that nothing reads, has none. Values that share bytes, such as views
** and gradients that an identity passes on, have one root.
*/
#include "pass/passes.h"

/* Fails where a node's output is larger than any machine's memory, before bytes are summed up. */
static int values_check_sizes(const struct source *s)
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

static void values_find_roots(struct program *p, const struct uses *u)
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
        .bytes = (int64_t)align_up(desc_bytes(&s->desc[v]), ALIGN),
        .offset = -1,
        .reader = -1 };
      if (!n->op || is_known(s, i)) {
        x->bound = n->op ? s->known[v] : s->bound[i];
        x->kind = x->bound < 0 ? V_NONE : V_BOUND;
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
      if (!u->used[v] || (!u->outside[v] && p->group[i] >= 0)) continue;
      if (k == 0 && value_is_internal(p, i)) continue;
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

static void values_add_once(int *list, int *n, int v)
{
  for (int i = 0; i < *n; i++)
    if (list[i] == v) return;
  list[(*n)++] = v;
}

static int values_list_program(struct program *p, struct step *st, int index)
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
      if (p->step_of[n->in[j].node] != index)
        values_add_once(st->in, &st->nin, value_of(g, n->in[j]));
    for (int j = 0; j < n->kind->nout; j++)
      if (p->value[n->first + j].kind != V_NONE && p->value[n->first + j].root == n->first + j)
        st->out[st->nout++] = n->first + j;
  }
  return TY_OK;
}

static int values_list_node(struct program *p, struct step *st)
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
  if (fusion_kept(f) >= 0) {
    const int v = g->node[fusion_kept(f)].first;
    st->out[st->nout++] = p->value[v].kind != V_NONE ? v : -1;
  }
  for (int k = 0; f && k < f->n; k++) {
    const struct fused_node *x = &f->node[k];
    if (fused_before(x->kind)) st->in[0] = value_of(g, g->node[x->node].in[0]);
    if (x->operand.node >= 0) st->in[st->nin++] = value_of(g, x->operand);
  }
  return TY_OK;
}

static int values_list_steps(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->kind == STEP_POINTWISE)
      TRY(values_list_program(p, st, t));
    else if (st->kind == STEP_NODE)
      TRY(values_list_node(p, st));
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

static int values_find_devices(struct program *p)
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
  struct uses u;
  p->value = arena_new(&p->arena, sizeof *p->value * (size_t)(p->s.g->nvalue + 1));
  NEED(p->value, TY_EMEMORY, "out of memory: plan");
  TRY(values_check_sizes(&p->s));
  TRY(uses_find(p, &u));
  values_find_roots(p, &u);
  TRY(values_list_steps(p));
  return values_find_devices(p);
}
