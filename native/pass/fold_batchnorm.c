/* fold_batchnorm.c - lets a product compute the normalisation with fixed statistics after it, and
** the sum after that.
**
** With fixed statistics, a normalisation is a linear function a x + d per channel. The product
** before it can multiply the rows of its weight by a, once per version of the arrays, and start
** its sums from d; then it can add the other operand of a residual sum whose result would be
** written over that operand, and apply the activation. This saves two passes over memory.
**
** Whether statistics are fixed is known only in a run: the steps stay in the program, and are
** skipped in runs in which the product has done their work. This is done in programs without
** gradients, since gradients need the values between, and where the results have the same bytes, so
** that no other step sees bytes that are written early. Results are rounded differently.
*/
#include "pass/passes.h"

/* -- which steps ------------------------------------------------------------------------------- */

/* Returns step t if it is of this kind, always runs, and runs on the device of the first one; else
** NULL. */
static struct step *fold_find_next_step(
    struct program *p, const struct step *first, int t, int kind)
{
  struct step *st = t < p->n ? &p->step[t] : NULL;
  return st && st->kind == kind && st->guard < 0 && st->device == first->device &&
          !step_is_front_end(p, st)
      ? st
      : NULL;
}

static bool fold_is_read_only_by(const struct program *p, int v, int t)
{
  const struct value *x = &p->value[v];
  return x->kind == V_POOL && !x->pinned && x->nread == 1 && x->reader == t;
}

static bool fold_is_product(const struct program *p, const struct step *st)
{
  if (st->kind != STEP_NODE || step_is_front_end(p, st) || st->guard >= 0 || step_fusion(p, st) ||
      st->v.cpu_fallback)
    return false;
  return st->v.kernel->fuses & CAN(POST_SCALE) && !st->v.half;
}

/* Returns whether a step normalises v and its result has the bytes of the product's. */
static bool fold_is_normalisation(const struct program *p, const struct step *st, int v, int t)
{
  if (!st->v.kernel->affine || st->v.cpu_fallback || st->v.half) return false;
  if (st->in[0] != v || !fold_is_read_only_by(p, v, t)) return false;
  for (int k = 1; k < st->nout; k++)
    if (st->out[k] >= 0) return false;
  return p->value[st->out[0]].root == p->value[v].root;
}

/* Returns whether a step is v + another value, in the bytes of the other; *relu: it is relu of
** that. */
static bool fold_is_addition(
    const struct program *p, const struct step *st, int v, int t, bool *relu)
{
  const struct source *s = &p->s;
  const struct node *sum = &s->g->node[p->member[st->member]];
  if (st->nin != 2 || st->nout != 1 || st->nmember > 2 || !fold_is_read_only_by(p, v, t))
    return false;
  if (sum->nin != 2 || !(sum->op->flags & OP_SUM) || sum->backward) return false;
  int other = st->in[0] == v ? st->in[1] : st->in[0];
  const struct value *x = &p->value[v], *y = &p->value[other];
  if (!desc_same_shape(&s->desc[v], &s->desc[other]) || s->desc[other].dtype != s->desc[v].dtype ||
      y->block != x->block)
    return false;
  if (p->value[st->out[0]].root != y->root || y->root == x->root) return false;
  *relu = st->nmember == 2;
  if (!*relu) return true;
  const struct node *last = &s->g->node[p->member[st->member + 1]];
  return !last->backward && op_act(last->op, last->kind->param) == ACT_RELU &&
      s->desc[last->first].dtype == s->desc[v].dtype;
}

/* Returns whether the product would overwrite one of its operands. */
static bool fold_overwrites_operand(const struct program *p, const struct step *st, int v)
{
  for (int k = 0; k < st->nin; k++)
    if (p->value[st->in[k]].root == p->value[v].root) return true;
  return false;
}

/* -- taking them over -------------------------------------------------------------------------- */

/* Returns the epilogue of a product; the scaling is the fold's. */
static struct epilogue fold_make_epilogue(bool sum, bool relu)
{
  struct epilogue e = { 1, { { .kind = POST_SCALE, .operand = -1 } } };
  if (sum) e.op[e.n++] = (struct fused_op){ .kind = POST_ACCUMULATE, .operand = -1 };
  if (relu) e.op[e.n++] = (struct fused_op){ .kind = POST_ACT, .operand = -1, .act = ACT_RELU };
  return e;
}

static struct call fold_make_call(const struct step *st, struct fused_norm *f)
{
  struct call c = st->v.call;
  f->epilogue.op[0].scaling = &f->scaling;
  c.epilogue = &f->epilogue;
  c.out = &f->out;
  return c;
}

/* Returns whether the product's kernel can do the normalisation, and reserves the scratch that it
** needs for it. */
static bool fold_kernel_accepts(struct step *st, struct fused_norm *f)
{
  const struct kernel *k = st->v.kernel;
  struct call c = fold_make_call(st, f);
  if (k->refuse && k->refuse(&c)) return false;
  size_t scratch = k->scratch ? align_up(k->scratch(&c), ALIGN) : 0;
  st->scratch = MAX(st->scratch, scratch);
  return true;
}

static int fold_take_steps(struct program *p, int t, struct fused_norm *f)
{
  struct step *st = &p->step[t];
  const size_t n = (size_t)p->s.desc[st->out[0]].dim[1];
  st->fused_norm = arena_new(&p->arena, sizeof *f);
  f->scaling.scale = arena_new(&p->arena, n * sizeof(float));
  f->scaling.shift = arena_new(&p->arena, n * sizeof(float));
  f->a = arena_new(&p->arena, n * sizeof(double));
  f->d = arena_new(&p->arena, n * sizeof(double));
  NEED(st->fused_norm && f->scaling.scale && f->scaling.shift && f->a && f->d, TY_EMEMORY,
      "out of memory: folding");
  *st->fused_norm = *f;
  p->step[f->norm].fused_into = st->fused_norm;
  if (f->sum >= 0) p->step[f->sum].fused_into = st->fused_norm;
  return TY_OK;
}

static int fold_try_step(struct program *p, int t)
{
  struct step *st = &p->step[t], *norm = fold_find_next_step(p, st, t + 1, STEP_NODE),
              *sum = fold_find_next_step(p, st, t + 2, STEP_POINTWISE);
  if (!norm || !fold_is_product(p, st) || !fold_is_normalisation(p, norm, st->out[0], t + 1))
    return TY_OK;
  const bool relu = step_fusion(p, norm);
  bool relu_after;
  if (sum && !relu && fold_is_addition(p, sum, norm->out[0], t + 2, &relu_after) &&
      !fold_overwrites_operand(p, st, sum->out[0])) {
    struct fused_norm f = { .norm = t + 1,
      .sum = t + 2,
      .target = sum->out[0],
      .out = st->v.call.out[0],
      .epilogue = fold_make_epilogue(true, relu_after) };
    if (fold_kernel_accepts(st, &f)) return fold_take_steps(p, t, &f);
  }
  struct fused_norm f = { .norm = t + 1,
    .sum = -1,
    .target = norm->out[0],
    .out = st->v.call.out[0],
    .epilogue = fold_make_epilogue(false, relu) };
  return fold_kernel_accepts(st, &f) ? fold_take_steps(p, t, &f) : TY_OK;
}

int pass_fold_batchnorm(struct program *p)
{
  if (p->s.flags & (TY_NOFUSE | TY_NOSHARE) || p->nforward != p->n) return TY_OK;
  for (int t = 0; t < p->n; t++) TRY(fold_try_step(p, t));
  return TY_OK;
}

/* -- running ----------------------------------------------------------------------------------- */

/* Returns whether an array is unchanged since the last call; one without a version is not. */
static bool fold_is_unchanged(struct fused_norm *f, int k, const struct operand *x)
{
  bool same = x->version && f->seen[k] == *x->version;
  f->seen[k] = x->version ? *x->version : 0;
  return same;
}

static void fold_update_scaling(
    struct fused_norm *f, const struct call *c, const struct step *norm, int64_t n)
{
  const float *bias = c->nin > 2 ? c->in[2].p : NULL;
  bool same = f->scaling.version != 0;
  for (int k = 1; k < 5; k++) same = fold_is_unchanged(f, k, &norm->v.call.in[k]) && same;
  if (bias) same = fold_is_unchanged(f, 5, &c->in[2]) && same;
  if (same) return;
  norm->v.kernel->affine(&norm->v.call, f->a, f->d);
  for (int64_t i = 0; i < n; i++) {
    f->scaling.scale[i] = (float)f->a[i];
    f->scaling.shift[i] = (float)(f->d[i] + (bias ? f->a[i] * (double)bias[i] : 0));
  }
  f->scaling.version++;
}

int fused_norm_run(struct program *p, struct step *st, bool *done)
{
  struct fused_norm *f = st->fused_norm;
  const struct step *norm = &p->step[f->norm];
  *done = f->done = norm->v.kernel->affine(&norm->v.call, NULL, NULL);
  if (!f->done) return TY_OK;
  fold_update_scaling(f, &st->v.call, norm, f->out.d.dim[1]);
  struct call c = fold_make_call(st, f);
  return invoke_run_as(&st->v, &c);
}
