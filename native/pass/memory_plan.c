/* memory_plan.c - a place for every value: aliases, results written over dying inputs,
** lifetimes, offsets.
**
** A value is bound (a bound array), nothing (inside a pointwise program, or unread), or has
** bytes in its device's pool. Values that share bytes have one root. Order of work: list what
** each step reads and writes; find roots (views and bound arrays); find lifetimes; let results
** take the place of inputs that die at the same step; fit offsets (memory_fit.c). A step's
** scratch is one more item that lives for that step only. Heads live to the end, and so do
** values that another device reads (its queue runs at its own pace). Sizes are rounded to ALIGN.
*/
#include "pass/program.h"

int program_slot(const struct program *p, int device)
{
  for (int i = 0; i < p->ndevice; i++)
    if (p->device[i] == device) return i;
  return -1;
}

static int64_t value_bytes(const struct source *s, int v)
{
  return (int64_t)align_up(desc_bytes(&s->desc[v]), ALIGN);
}

/* A node's output that no machine holds is refused before its bytes are summed up. */
static int check_sizes(const struct source *s)
{
  for (int i = 0; i < s->g->n; i++) {
    const struct node *n = &s->g->node[i];
    for (int k = 0; n->op && k < n->nout; k++) {
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
  if (!n->op || (n->backward && n->inport[k].mutated)) return;
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
    for (int k = 0; k < n->nout && !runs; k++)
      runs = m->used[n->first + k]; /* a view that somebody reads */
    if (p->s.flags & TY_KEEP && runs)
      for (int k = 0; k < n->nreal; k++) keep_output(m, n, k);
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
    for (int k = 0; k < n->nout; k++) {
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
    nin += g->node[p->member[st->member + k]].nin, nout += g->node[p->member[st->member + k]].nout;
  st->in = arena_new(&p->arena, sizeof(int) * (size_t)(nin + 1));
  st->out = arena_new(&p->arena, sizeof(int) * (size_t)(nout + 1));
  NEED(st->in && st->out, TY_EMEMORY, "out of memory: plan");
  for (int k = 0; k < st->nmember; k++) {
    const struct node *n = &g->node[p->member[st->member + k]];
    for (int j = 0; j < n->nin; j++)
      if (p->step_of[n->in[j].node] != index) add_once(st->in, &st->nin, value_of(g, n->in[j]));
    for (int j = 0; j < n->nout; j++)
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
  st->out = arena_new(&p->arena, sizeof(int) * (size_t)(n->nout + 1));
  NEED(st->in && st->out, TY_EMEMORY, "out of memory: plan");
  st->nin = n->nin;
  st->nout = n->nout;
  for (int k = 0; k < n->nin; k++) st->in[k] = value_of(g, n->in[k]);
  for (int k = 0; k < n->nout; k++) {
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

/* -- lifetimes --------------------------------------------------------------------------------- */

static void extend(struct program *p, int v, int t)
{
  struct value *r = &p->value[p->value[v].root];
  r->last = MAX(r->last, t);
}

static void find_liveness(struct program *p)
{
  const struct source *s = &p->s;
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    for (int k = 0; k < st->nin; k++) {
      struct value *x = &p->value[st->in[k]];
      x->nread++;
      x->reader = t;
      extend(p, st->in[k], p->value[x->root].device == st->device ? t : p->n);
    }
    if (st->guard >= 0) extend(p, st->guard, t);
    for (int k = 0; k < st->nout; k++) {
      if (st->out[k] < 0) continue;
      struct value *x = &p->value[st->out[k]];
      x->first = t;
      x->device = st->device;
      p->value[x->root].last_write = t;
      extend(p, st->out[k], t);
    }
  }
  for (int h = 0; h < s->nhead; h++) {
    int r = p->value[value_of(s->g, s->head[h])].root;
    p->value[r].pinned = true;
    p->value[r].last = p->n;
  }
}

static int root_of(const struct program *p, int v)
{
  while (p->value[v].root != v) v = p->value[v].root;
  return v;
}

/* -- results in the place of dying inputs ------------------------------------------------------ */

static bool may_take(const struct program *p, const struct step *st, int t, int out, int in)
{
  const struct source *s = &p->s;
  int v = st->out[out], u = st->in[in], r = root_of(p, u);
  const struct value *x = &p->value[v], *y = &p->value[r];
  if (y->kind != V_POOL || y->pinned || y->last != t || y->first >= t || y->device != x->device ||
      y->bytes != x->bytes)
    return false;
  if (desc_bytes(&s->desc[u]) != desc_bytes(&s->desc[v])) return false;
  if (st->kind == STEP_POINTWISE)
    return s->desc[u].dtype == s->desc[v].dtype && desc_same_shape(&s->desc[u], &s->desc[v]);
  const struct fusion *f = step_fusion(p, st);
  if (fusion_has(f, PRE_ACT_GRAD) || fusion_has(f, POST_ACT_GRAD)) return false;
  return step_in_place(p, st, out, in);
}

/* The same bytes must not be read through another input of the step by an operator that is not
** element-wise. */
static bool read_once(const struct program *p, const struct step *st, int in)
{
  if (st->kind == STEP_POINTWISE) return true;
  for (int k = 0; k < st->nin; k++)
    if (k != in && root_of(p, st->in[k]) == root_of(p, st->in[in])) return false;
  return true;
}

/* A root that dies here: of several, forward, the one written longest ago, as the newest may
** never be written at all (fold_batchnorm.c). -1: none */
static int place_for(const struct program *p, const struct step *st, int t, int out)
{
  int best = -1;
  for (int j = 0; j < st->nin; j++) {
    int r = root_of(p, st->in[j]);
    if (r == st->out[out] || !may_take(p, st, t, out, j) || !read_once(p, st, j)) continue;
    if (best < 0 || (t < p->nforward && p->value[r].last_write < p->value[best].last_write))
      best = r;
  }
  return best;
}

static void share_in_place(struct program *p)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    for (int k = 0; k < st->nout; k++) {
      int v = st->out[k];
      if (v < 0 || p->value[v].kind != V_POOL || p->value[v].root != v || p->value[v].add) continue;
      int r = place_for(p, st, t, k);
      if (r < 0) continue;
      p->value[r].last =
          p->value[v].last; /* now > t unless unread: nobody else takes it at this step */
      if (p->value[r].last == t) p->value[r].last = t + 1;
      p->value[v].root = r;
      p->value[r].pinned = p->value[v].pinned;
      p->value[r].last_write = t;
    }
  }
}

/* Views of a value that moved into another's place follow it. */
static void follow_roots(struct program *p)
{
  for (int v = 0; v < p->s.g->nvalue; v++) p->value[v].root = root_of(p, v);
}

/* -- offsets ----------------------------------------------------------------------------------- */

/* value >= 0: a root; < 0: scratch of step -1 - value */
struct items { int n, *first, *last, *value; int64_t *bytes, *offset; };

static void add_item(struct items *q, int value, int64_t bytes, int first, int last, int64_t kept)
{
  q->value[q->n] = value;
  q->bytes[q->n] = bytes;
  q->first[q->n] = first;
  q->last[q->n] = last;
  q->offset[q->n] = kept;
  q->n++;
}

static int64_t kept_place(int v, const struct fixed *fixed, int n)
{
  for (int i = 0; i < n; i++)
    if (fixed[i].value == v) return fixed[i].offset;
  return -1;
}

static void gather(
    const struct program *p, int slot, struct items *q, const struct fixed *fixed, int nfixed)
{
  bool apart = p->s.flags & TY_NOSHARE; /* everything lives all the time */
  for (int v = 0; v < p->s.g->nvalue; v++) {
    const struct value *x = &p->value[v];
    if (x->kind != V_POOL || x->root != v || x->device != p->device[slot] || !x->bytes) continue;
    add_item(
        q, v, x->bytes, apart ? 0 : x->first, apart ? p->n : x->last, kept_place(v, fixed, nfixed));
  }
  for (int t = 0; t < p->n; t++)
    if (p->step[t].scratch && p->step[t].device == p->device[slot])
      add_item(q, -1 - t, (int64_t)align_up(p->step[t].scratch, ALIGN), apart ? 0 : t,
          apart ? p->n : t, -1);
}

static void note_places(struct program *p, const struct items *q)
{
  for (int i = 0; i < q->n; i++)
    if (q->value[i] >= 0)
      p->value[q->value[i]].offset = q->offset[i];
    else
      p->step[-1 - q->value[i]].scratch_at = q->offset[i];
}

static int64_t unshared_bytes(const struct program *p, int device)
{
  int64_t sum = 0;
  for (int t = 0; t < p->n; t++) {
    const struct step *st = &p->step[t];
    if (st->device != device) continue;
    for (int k = 0; k < st->nout; k++)
      if (st->out[k] >= 0 && p->value[st->out[k]].kind == V_POOL) sum += p->value[st->out[k]].bytes;
    sum += (int64_t)align_up(st->scratch, ALIGN);
  }
  return sum;
}

static int fit_device(struct program *p, int slot, const struct fixed *fixed, int nfixed)
{
  size_t cap = (size_t)(p->s.g->nvalue + p->n + 1);
  struct items q = { 0, NEWS(int, cap), NEWS(int, cap), NEWS(int, cap), NEWS(int64_t, cap),
    NEWS(int64_t, cap) };
  bool room = q.first && q.last && q.value && q.bytes && q.offset;
  int code = room ? TY_OK : fail(TY_EMEMORY, "out of memory: plan");
  if (room) gather(p, slot, &q, fixed, nfixed);
  if (!code)
    code = plan_offsets(q.n, q.bytes, q.first, q.last, q.offset, &p->pool[slot], &p->bound[slot]);
  if (!code) note_places(p, &q);
  p->unshared[slot] = unshared_bytes(p, p->device[slot]);
  mem_free(q.first);
  mem_free(q.last);
  mem_free(q.value);
  mem_free(q.bytes);
  mem_free(q.offset);
  return code;
}

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

/* Values, roots and what each step reads and writes: what select needs. */
int plan_values(struct program *p)
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

/* Lifetimes and in-place decisions: after this, roots are final. */
int plan_liveness(struct program *p)
{
  find_liveness(p);
  if (!(p->s.flags & TY_NOSHARE)) share_in_place(p);
  follow_roots(p);
  return TY_OK;
}

int plan_program(struct program *p, const struct fixed *fixed, int nfixed)
{
  for (int i = 0; i < p->ndevice; i++) TRY(fit_device(p, i, fixed, nfixed));
  for (int v = 0; v < p->s.g->nvalue; v++) p->value[v].offset = p->value[p->value[v].root].offset;
  return TY_OK;
}
