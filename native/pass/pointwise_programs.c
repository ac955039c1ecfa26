/* lower.c - turns planned steps into instructions: kernels, pointwise programs, operands,
** segments.
**
** select chooses the kernel of every step that is not a pointwise program (the first candidate
** that accepts) before memory is planned, because scratch is planned memory. lower then builds
** the pointwise programs and the list of segments; lower_resolve writes pointers, at bind and
** again whenever a pool has moved. An operand is an offset in a device's pool or a bound tensor.
*/
#include "pass/program.h"

/* -- select ------------------------------------------------------------------------------------ */

/* stands for "has a place" until there are pointers */
static char *const wanted = (char *)ALIGN;

/* What its kernel does besides; operands stand behind those of the node, in order. */
static int call_epilogue(struct program *p, struct step *st)
{
  const struct fusion *f = step_fusion(p, st);
  struct epilogue *e = arena_new(&p->arena, sizeof *e);
  int operand = p->s.g->node[st->node].nin;
  NEED(e, TY_EMEMORY, "out of memory: kernels");
  for (int k = 0; k < f->n; k++) {
    const struct fused_node *x = &f->node[k];
    const struct node *n = &p->s.g->node[x->node];
    struct fused_op *to = &e->op[e->n++];
    *to = (struct fused_op){ .kind = x->kind, .operand = x->operand.node < 0 ? -1 : operand++ };
    if (x->kind == PRE_LOSS_GRAD)
      to->loss = n->param;
    else
      to->act = op_act(n->op, n->param);
  }
  st->v.call.epilogue = e;
  return TY_OK;
}

int step_call(struct program *p, struct step *st)
{
  const struct source *s = &p->s;
  const struct node *n = &s->g->node[st->node];
  struct call *c = &st->v.call;
  *c = (struct call){ .op = n->op, .device = st->device, .param = n->param, .nin = st->nin,
    .nout = st->nout };
  c->in = arena_new(&p->arena, sizeof(struct operand) * (size_t)(st->nin + 1));
  c->out = arena_new(&p->arena, sizeof(struct operand) * (size_t)(st->nout + 1));
  NEED(c->in && c->out, TY_EMEMORY, "out of memory: kernels");
  for (int k = 0; k < st->nin; k++)
    c->in[k] = (struct operand){ wanted, s->desc[st->in[k]], NULL, p->value[st->in[k]].block };
  for (int k = 0; k < st->nout; k++) {
    bool read = st->out[k] >= 0;
    c->out[k] = (struct operand){ read ? wanted : NULL, s->desc[n->first + k], NULL,
      read ? p->value[st->out[k]].block : 0 };
    if (read && p->value[st->out[k]].add) c->add |= 1u << k;
  }
  c->trains = p->nforward != p->n;
  c->node = (uint32_t)(n->forward >= 0 ? n->forward : st->node) + 1;
  st->v.backward = n->backward;
  return step_fusion(p, st) ? call_epilogue(p, st) : TY_OK;
}

static int refused(struct program *p, struct step *st, int code)
{
  const struct node *n = &p->s.g->node[st->node];
  fail_node(n->op->name, n->name, n->where);
  return code;
}

static int select_step(struct program *p, struct step *st)
{
  struct text why = { 0 };
  TRY(step_call(p, st));
  if (step_of_host(p, st)) return TY_OK;
  int code = invoke_choose(&st->v, &p->arena, &why);
  if (!code && why.n) st->why = arena_text(&p->arena, why.s);
  text_done(&why);
  if (code) return refused(p, st, code);
  st->scratch = st->v.scratch;
  return TY_OK;
}

int select_program(struct program *p)
{
  for (int t = 0; t < p->n; t++)
    if (p->step[t].kind == STEP_NODE) TRY(select_step(p, &p->step[t]));
  return TY_OK;
}

/* -- pointwise programs ------------------------------------------------------------------------ */

struct builder { struct program *p; struct step *st; struct pw_program *t; int *reg; ty_desc operand[PW_ARGS]; int value[PW_ARGS]; int n; };

static int operand_of(struct builder *b, int v)
{
  for (int k = 0; k < b->n; k++)
    if (b->value[k] == v) return k;
  if (b->n == PW_ARGS) return -1;
  b->operand[b->n] = b->p->s.desc[v];
  b->value[b->n] = v;
  return b->n++;
}

static int register_of(struct builder *b, int v)
{
  if (b->reg[v] < 0) {
    int k = operand_of(b, v);
    b->reg[v] = k < 0 ? 0 : pw_load(b->t, k);
  }
  return b->reg[v];
}

/* Letters of a gradient's formulas, from what it reads: g0 -> g, i0 -> a, o0 -> y. */
static void bind_letters(struct builder *b, const struct node *n, struct pw_env *env)
{
  const ty_graph *g = b->p->s.g;
  int nothing = pw_number(
      b->t, 0); /* for letters in parts of a formula that the parameters exclude */
  for (int i = 0; i < 26; i++) env->var[i] = nothing;
  if (!n->backward) {
    for (int k = 0; k < n->nin && k < 6; k++) env->var[k] = register_of(b, value_of(g, n->in[k]));
    return;
  }
  for (int k = 0; n->reads && k < MIN(n->reads->n, n->nin); k++) {
    const struct read *r = &n->reads->read[k];
    env->var[formula_letter(r->kind, r->k) - 'a'] = register_of(b, value_of(g, n->in[k]));
  }
}

static int store(struct builder *b, int v, int reg)
{
  const struct value *x = &b->p->value[v];
  if (x->kind == V_NONE) return TY_OK;
  for (int k = 0; k < b->st->nout; k++)
    if (b->st->out[k] == v) {
      int operand = operand_of(b, v);
      NEED(operand >= 0, TY_EUNSUPPORTED, "pointwise program: too many operands");
      if (x->add) {
        struct pw_env env = { .var = { pw_load(b->t, operand), reg } };
        TRY(pw_formula(b->t, "a + b", &env, &reg));
      }
      pw_store(b->t, operand, reg);
    }
  return TY_OK;
}

static bool narrow(int dtype)
{
  return dtype != TY_F32 && dtype != TY_F64 && dtype != TY_I32 && dtype != TY_I64;
}

static int add_member(struct builder *b, int node, int dtype)
{
  const struct source *s = &b->p->s;
  const struct node *n = &s->g->node[node];
  struct pw_env env = formula_env(n->op, n->param, 0);
  bind_letters(b, n, &env);
  for (int k = 0; k < n->nout; k++) {
    int v = n->first + k, reg;
    struct pw_env e = env;
    TRY(pw_formula(b->t, formula_of(n, k), &e, &reg));
    if (narrow(s->desc[v].dtype) || s->desc[v].dtype != dtype)
      reg = pw_cast(b->t, reg, s->desc[v].dtype);
    b->reg[v] = reg;
    TRY(store(b, v, reg));
  }
  return TY_OK;
}

static int step_dtype(struct program *p, const struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  ty_desc d[16];
  int k = 0;
  for (int j = 0; j < n->nin && k < 8; j++) d[k++] = p->s.desc[value_of(p->s.g, n->in[j])];
  for (int j = 0; j < n->nout && k < 16; j++) d[k++] = p->s.desc[n->first + j];
  return pw_dtype(d, k);
}

static int finish_program(struct builder *b, const ty_desc *space)
{
  struct step *st = b->st;
  TRY(pw_seal(b->t));
  st->loop = arena_new(&b->p->arena, sizeof *st->loop);
  NEED(st->loop, TY_EMEMORY, "out of memory: pointwise program");
  TRY(pw_loop_make(st->loop, space, b->operand, b->n));
  int *values = arena_new(&b->p->arena, sizeof(int) * (size_t)(b->n + 1));
  st->operand = arena_new(&b->p->arena, sizeof(void *) * (size_t)(b->n + 1));
  NEED(values && st->operand, TY_EMEMORY, "out of memory: tapes");
  memcpy(values, b->value, sizeof(int) * (size_t)b->n);
  st->pw_value = values;
  st->npw = b->n;
  st->pw = b->t;
  return TY_OK;
}

static int build_program(struct program *p, struct step *st, int *reg)
{
  int dtype = step_dtype(p, st);
  struct builder b = { .p = p, .st = st, .t = pw_new(dtype), .reg = reg };
  NEED(b.t, TY_EMEMORY, "out of memory: tapes");
  int code = TY_OK;
  for (int k = 0; k < st->nin; k++) operand_of(&b, st->in[k]);
  for (int k = 0; !code && k < st->nmember; k++)
    code = add_member(&b, p->member[st->member + k], dtype);
  if (!code) code = finish_program(&b, &p->s.desc[p->s.g->node[st->node].first]);
  for (int k = 0; k < st->nin; k++) reg[st->in[k]] = -1;
  for (int k = 0; k < st->nmember; k++) {
    const struct node *n = &p->s.g->node[p->member[st->member + k]];
    for (int j = 0; j < n->nout; j++) reg[n->first + j] = -1;
    for (int j = 0; j < n->nin; j++) reg[value_of(p->s.g, n->in[j])] = -1;
  }
  if (code)
    pw_free(b.t),
        fail_node(p->s.g->node[st->node].op->name, p->s.g->node[st->node].name,
            p->s.g->node[st->node].where);
  return code;
}

/* bound array += value */
static int build_addition(struct program *p, struct step *st)
{
  const ty_desc *d = &p->s.desc[st->in[0]];
  struct builder b = { .p = p, .st = st, .t = pw_new(pw_dtype(d, 1)), .n = 2 };
  NEED(b.t, TY_EMEMORY, "out of memory: tapes");
  b.operand[0] = b.operand[1] = *d;
  b.value[0] = -1;
  b.value[1] = st->in[0];
  struct pw_env env = { .var = { pw_load(b.t, 0), pw_load(b.t, 1) } };
  int reg, code = pw_formula(b.t, "a + b", &env, &reg);
  if (!code) pw_store(b.t, 0, reg), code = finish_program(&b, d);
  if (code) pw_free(b.t);
  return code;
}

/* -- segments ---------------------------------------------------------------------------------- */

static int segment_of(const struct program *p, int t)
{
  for (int i = 0; i < p->nsegment; i++)
    if (p->segment[i].first <= t && t < p->segment[i].last) return i;
  return -1;
}

static int cut_segments(struct program *p)
{
  p->segment = arena_new(&p->arena, sizeof *p->segment * (size_t)(p->n + 2));
  NEED(p->segment, TY_EMEMORY, "out of memory: segments");
  for (int t = 0; t < p->n; t++) {
    bool fresh = t == 0 || t == p->nforward || p->step[t].device != p->step[t - 1].device;
    if (fresh || step_of_host(p, &p->step[t]) || step_of_host(p, &p->step[t - 1])) {
      struct segment *g = &p->segment[p->nsegment++];
      *g = (struct segment){ .device = p->step[t].device,
        .slot = program_slot(p, p->step[t].device),
        .first = t,
        .last = t + 1 };
      for (int i = 0; i < MAX_DEVICES; i++) g->wait[i] = -1;
    }
    else
      p->segment[p->nsegment - 1].last = t + 1;
    if (t < p->nforward) p->nsegment_forward = p->nsegment;
  }
  for (int t = 0; t < p->n && p->ndevice > 1; t++) { /* what a step reads from another device */
    struct segment *here = &p->segment[segment_of(p, t)];
    for (int k = 0; k < p->step[t].nin; k++) {
      const struct value *x = &p->value[p->value[p->step[t].in[k]].root];
      if (x->kind == V_NONE || x->first < 0 || x->device == p->step[t].device) continue;
      int slot = program_slot(p, x->device);
      here->wait[slot] = MAX(here->wait[slot], segment_of(p, x->last_write));
    }
  }
  return TY_OK;
}

/* -- state: steps that pack one bound array alike keep one copy -------------------------------- */

static bool packs_alike(const struct program *p, const struct step *a, const struct step *b)
{
  const struct kernel *k = a->v.kernel;
  return k == b->v.kernel && a->device == b->device &&
      desc_same_shape(&p->s.desc[a->in[k->packs - 1]], &p->s.desc[b->in[k->packs - 1]]);
}

static int find_keepers(struct program *p)
{
  int *first = NEWS(int,
      2 * p->s.g->nvalue); /* per root, forward and backward: the first step that packs it, + 1 */
  NEED(first, TY_EMEMORY, "out of memory: states");
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->kind != STEP_NODE || !st->v.kernel || !st->v.kernel->packs) continue;
    int root = p->value[st->in[st->v.kernel->packs - 1]].root,
        *at = &first[2 * root + st->v.backward];
    if (p->value[root].kind != V_BOUND || p->value[root].first >= 0)
      continue; /* the program writes it */
    if (!*at)
      *at = t + 1;
    else if (packs_alike(p, &p->step[*at - 1], st))
      st->keeper = *at - 1, p->step[*at - 1].lends = true;
  }
  mem_free(first);
  return TY_OK;
}

static int give_state(struct program *p, struct step *st)
{
  if (!st->v.state) return TY_OK;
  if (st->keeper >= 0) {
    st->v.call.state = p->step[st->keeper].state;
    return TY_OK;
  }
  if (st->v.kernel->flags & K_REUSED && !st->lends) return TY_OK;
  st->state = st->v.call.state = mem_new(st->v.state);
  return st->state ? TY_OK : TY_EMEMORY;
}

int lower_program(struct program *p)
{
  int *reg = NEWS(int, p->s.g->nvalue), code = TY_OK;
  NEED(reg, TY_EMEMORY, "out of memory: tapes");
  code = find_keepers(p);
  for (int v = 0; v < p->s.g->nvalue; v++) reg[v] = -1;
  for (int t = 0; t < p->n && !code; t++) {
    struct step *st = &p->step[t];
    if (st->kind == STEP_POINTWISE)
      code = build_program(p, st, reg);
    else if (st->kind == STEP_ADD)
      code = build_addition(p, st);
    if (!code) code = give_state(p, st);
  }
  mem_free(reg);
  TRY(code);
  return cut_segments(p);
}

/* -- pointers ---------------------------------------------------------------------------------- */

static void *pointer(const struct program *p, const struct bases *b, int v)
{
  const struct value *x = &p->value[v], *r = &p->value[x->root];
  if (r->kind == V_BOUND) return b->bound[r->bound];
  if (r->kind != V_POOL) return NULL;
  return b->pool[program_slot(p, r->device)] + r->offset;
}

static void resolve_node(struct program *p, struct step *st, const struct bases *b)
{
  struct call *c = &st->v.call;
  for (int k = 0; k < c->nin; k++) {
    const struct value *r = &p->value[p->value[st->in[k]].root];
    c->in[k].p = pointer(p, b, st->in[k]);
    c->in[k].version = r->kind == V_BOUND && r->first < 0
        ? b->version[program_slot(p, st->device)] + r->bound
        : NULL;
  }
  for (int k = 0; k < c->nout; k++)
    c->out[k].p = st->out[k] >= 0 ? pointer(p, b, st->out[k]) : NULL;
  if (st->fold) st->fold->out.p = pointer(p, b, st->fold->target);
  int slot = program_slot(p, st->device);
  c->tmp = st->scratch ? b->pool[slot] + st->scratch_at : NULL;
  c->run = &p->run[slot];
}

void lower_resolve(struct program *p, const struct bases *b)
{
  for (int t = 0; t < p->n; t++) {
    struct step *st = &p->step[t];
    st->guard_at = st->guard >= 0 ? pointer(p, b, st->guard) : NULL;
    if (st->kind == STEP_NODE) resolve_node(p, st, b);
    for (int k = 0; k < st->npw; k++)
      st->operand[k] = st->pw_value[k] < 0 ? b->bound[st->bound] : pointer(p, b, st->pw_value[k]);
    if (st->kind == STEP_COPY)
      st->copy_from = pointer(p, b, st->in[0]), st->copy_to = b->bound[st->bound];
  }
}

/* -- running ----------------------------------------------------------------------------------- */

bool step_skipped(const struct step *s)
{
  uint8_t runs = 1;
  if (!s->guard_at) return false;
  if (device_kind(s->device) != TY_GPU) return !*s->guard_at;
  if (device_copy(TY_CPU, &runs, s->device, s->guard_at, 1) || device_finish(s->device))
    return false; /* the device has failed, as its next task says */
  return !runs;
}

int program_run_step(struct program *p, struct step *st)
{
  bool done = step_skipped(st) || (st->folded && st->folded->done);
  if (!done && st->fold) TRY(fold_run(p, st, &done));
  if (done) return TY_OK;
  switch (st->kind) {
  case STEP_POINTWISE:
  case STEP_ADD: return pw_run(st->device, st->pw, st->loop, st->operand);
  case STEP_COPY:
    return device_copy(st->device, st->copy_to, st->device, st->copy_from,
        desc_bytes(&p->s.desc[st->in[0]]));
  default: return invoke_run(&st->v);
  }
}

void program_free(struct program *p)
{
  if (!p) return;
  for (int t = 0; p->step && t < p->n; t++) {
    struct step *st = &p->step[t];
    if (st->pw) pw_free(st->pw);
    if (st->state && st->v.kernel && st->v.kernel->done) st->v.kernel->done(st->state);
    mem_free(st->state);
  }
  struct arena a = p->arena;
  arena_done(&a);
}
