/* pointwise_programs.c - groups of element-wise nodes, and additions into bound arrays, as
** pointwise programs.
**
** The formulas of a group's members follow one another in one program: the output of a member stays
** in a register, and is stored only where it is read outside. All members compute in one dtype and
** round as their outputs do, so that no bit depends on which nodes were joined (fuse.c).
*/
#include "pass/passes.h"

struct builder {
  struct program *p;
  struct step *st;
  struct pw_program *t;
  int *reg;                                           /* per value: its register, -1 */
  /* operands so far, and the values they are */
  ty_desc operand[PW_ARGS];
  int value[PW_ARGS], n;
};

static int pointwise_add_operand(struct builder *b, int v)
{
  for (int k = 0; k < b->n; k++)
    if (b->value[k] == v) return k;
  if (b->n == PW_ARGS) return -1;
  b->operand[b->n] = b->p->s.desc[v];
  b->value[b->n] = v;
  return b->n++;
}

static int pointwise_load_register(struct builder *b, int v)
{
  if (b->reg[v] < 0) {
    int k = pointwise_add_operand(b, v);
    b->reg[v] = k < 0 ? 0 : pw_load(b->t, k);
  }
  return b->reg[v];
}

/* Binds the letters of a gradient's formulas to the values that it reads: g0 -> g, i0 -> a,
** o0 -> y. */
static void pointwise_bind_letters(struct builder *b, const struct node *n, struct pw_env *env)
{
  const ty_graph *g = b->p->s.g;
  int nothing = pw_number(
      b->t, 0); /* for letters in parts of a formula that the parameters exclude */
  for (int i = 0; i < 26; i++) env->var[i] = nothing;
  if (!n->backward) {
    for (int k = 0; k < n->nin && k < 6; k++)
      env->var[k] = pointwise_load_register(b, value_of(g, n->in[k]));
    return;
  }
  for (int k = 0; n->kind->reads && k < MIN(n->kind->reads->n, n->nin); k++) {
    const struct read *r = &n->kind->reads->read[k];
    env->var[formula_letter(r->kind, r->k) - 'a'] = pointwise_load_register(
        b, value_of(g, n->in[k]));
  }
}

/* Stores a value: `computed`, which the store converts, or, where it is added, `reg`, which is
** converted already. */
static int pointwise_store_value(struct builder *b, int v, int computed, int reg)
{
  const struct value *x = &b->p->value[v];
  if (x->kind == V_NONE) return TY_OK;
  for (int k = 0; k < b->st->nout; k++)
    if (b->st->out[k] == v) {
      int operand = pointwise_add_operand(b, v);
      NEED(operand >= 0, TY_EUNSUPPORTED, "pointwise program: too many operands");
      if (x->add) {
        struct pw_env env = { .var = { pw_load(b->t, operand), reg } };
        TRY(pw_formula(b->t, "a + b", &env, &reg));
      }
      pw_store(b->t, operand, x->add ? reg : computed);
    }
  return TY_OK;
}

static bool pointwise_is_narrow(int dtype)
{
  return dtype != TY_F32 && dtype != TY_F64 && dtype != TY_I32 && dtype != TY_I64;
}

static int pointwise_add_member(struct builder *b, int node, int dtype)
{
  const struct source *s = &b->p->s;
  const struct node *n = &s->g->node[node];
  struct pw_env env = formula_env(n->op, n->kind->param, 0);
  pointwise_bind_letters(b, n, &env);
  for (int k = 0; k < n->kind->nout; k++) {
    int v = n->first + k, computed, reg;
    struct pw_env e = env;
    TRY(pw_formula(b->t, formula_of(n, k), &e, &computed));
    reg = computed;
    if (pointwise_is_narrow(s->desc[v].dtype) || s->desc[v].dtype != dtype)
      reg = pw_cast(b->t, reg, s->desc[v].dtype);
    b->reg[v] = reg;
    TRY(pointwise_store_value(b, v, computed, reg));
  }
  return TY_OK;
}

/* Adds the reduction that ends the program. It reduces its operand in the loop. */
static int pointwise_add_end(struct builder *b, int node)
{
  const struct source *s = &b->p->s;
  const struct node *n = &s->g->node[node];
  const int reg = pointwise_load_register(b, value_of(s->g, n->in[0])),
            operand = pointwise_add_operand(b, n->first);
  NEED(operand >= 0, TY_EUNSUPPORTED, "pointwise program: too many operands");
  b->operand[operand] = *space_of(s, node);
  b->st->end->operand = operand;
  pw_store(b->t, operand, reg);
  return TY_OK;
}

static int pointwise_find_step_dtype(struct program *p, const struct step *st)
{
  const struct node *n = &p->s.g->node[st->node];
  ty_desc d[16];
  int k = 0;
  for (int j = 0; j < n->nin && k < 8; j++) d[k++] = p->s.desc[value_of(p->s.g, n->in[j])];
  for (int j = 0; j < n->kind->nout && k < 16; j++) d[k++] = p->s.desc[n->first + j];
  return pw_dtype(d, k);
}

static int pointwise_finish_program(struct builder *b, const ty_desc *space)
{
  struct step *st = b->st;
  struct pw_loop loop;
  TRY(pw_seal(b->t));
  TRY(pw_loop_make(&loop, space, b->operand, b->n));
  st->loop = arena_new(&b->p->arena, pw_loop_bytes(b->n));
  int *values = arena_new(&b->p->arena, sizeof(int) * (size_t)(b->n + 1));
  st->operand = arena_new(&b->p->arena, sizeof(void *) * (size_t)(b->n + 1));
  NEED(st->loop && values && st->operand, TY_EMEMORY, "out of memory: pointwise programs");
  memcpy(st->loop, &loop, pw_loop_bytes(b->n));
  memcpy(values, b->value, sizeof(int) * (size_t)b->n);
  st->pw_value = values;
  st->npw = b->n;
  st->pw = b->t;
  return TY_OK;
}

static int pointwise_build_program(struct program *p, struct step *st, int *reg)
{
  int dtype = pointwise_find_step_dtype(p, st);
  struct builder b = { .p = p, .st = st, .t = pw_new(dtype), .reg = reg };
  NEED(b.t, TY_EMEMORY, "out of memory: pointwise programs");
  int code = TY_OK;
  for (int k = 0; k < st->nin; k++) pointwise_add_operand(&b, st->in[k]);
  for (int k = 0; !code && k < st->nmember; k++) {
    const int node = p->member[st->member + k];
    code = st->end && node == st->node ? pointwise_add_end(&b, node)
                                       : pointwise_add_member(&b, node, dtype);
  }
  if (!code) code = pointwise_finish_program(&b, space_of(&p->s, st->node));
  for (int k = 0; k < st->nin; k++) reg[st->in[k]] = -1;
  for (int k = 0; k < st->nmember; k++) {
    const struct node *n = &p->s.g->node[p->member[st->member + k]];
    for (int j = 0; j < n->kind->nout; j++) reg[n->first + j] = -1;
    for (int j = 0; j < n->nin; j++) reg[value_of(p->s.g, n->in[j])] = -1;
  }
  if (code)
    pw_free(b.t),
        fail_node(p->s.g->node[st->node].op->name, p->s.g->node[st->node].name,
            p->s.g->node[st->node].where);
  return code;
}

/* Builds the program of STEP_ADD: bound array += value. */
static int pointwise_build_addition(struct program *p, struct step *st)
{
  const ty_desc *d = &p->s.desc[st->in[0]];
  struct builder b = { .p = p, .st = st, .t = pw_new(pw_dtype(d, 1)), .n = 2 };
  NEED(b.t, TY_EMEMORY, "out of memory: pointwise programs");
  b.operand[0] = b.operand[1] = *d;
  b.value[0] = -1;
  b.value[1] = st->in[0];
  struct pw_env env = { .var = { pw_load(b.t, 0), pw_load(b.t, 1) } };
  int reg, code = pw_formula(b.t, "a + b", &env, &reg);
  if (!code) pw_store(b.t, 0, reg), code = pointwise_finish_program(&b, d);
  if (code) pw_free(b.t);
  return code;
}

int pass_pointwise(struct program *p)
{
  int *reg = NEWS(int, p->s.g->nvalue), code = TY_OK;
  NEED(reg, TY_EMEMORY, "out of memory: pointwise programs");
  for (int v = 0; v < p->s.g->nvalue; v++) reg[v] = -1;
  for (int t = 0; t < p->n && !code; t++) {
    if (p->step[t].kind == STEP_POINTWISE) code = pointwise_build_program(p, &p->step[t], reg);
    if (p->step[t].kind == STEP_ADD) code = pointwise_build_addition(p, &p->step[t]);
  }
  mem_free(reg);
  return code;
}
