/* dropout.c - Dropout. The factor of element i (1 / (1 - p) or 0) depends only on the run's draw,
** the node and i: it comes from word i % 4 of Philox block i / 4. So backward recomputes it, and
** the hidden mask is written only if it is read. Along `axes` all elements share a factor. p = 1
** gives NaN (0 times infinity).
*/
#include "base/cast.h"
#include "base/convert.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct drop_param { double p; int64_t mode, cudnn_off; struct dims axes; };
enum { ALWAYS, TRAINING };
static const struct param drop_params[] = {
  { "p",         P_FLOAT, offsetof(struct drop_param, p),         "0.5",      "share of the elements that become 0",
    NULL, "[0,1]" },
  { "mode",      P_ENUM,  offsetof(struct drop_param, mode),      "training",
    "when it acts: in training only, or always", "always|training" },
  { "axes",      P_SHAPE, offsetof(struct drop_param, axes),      "()",       "axes along which elements share their fate" },
  { "cudnn_off", P_BOOL,  offsetof(struct drop_param, cudnn_off), "0",        "without effect on results", NULL, NULL, 1 },
  { 0 }
};

static bool drop_acts(const void *param, bool is_train)
{
  const struct drop_param *p = param;
  return p->p > 0 && (is_train || p->mode == ALWAYS);
}

static struct attention_part attention_dropout(const void *param, int ndim)
{
  const struct drop_param *p = param;
  (void)ndim;
  if (p->mode != TRAINING || p->axes.n) return (struct attention_part){ ATTENTION_NONE };
  return (struct attention_part){ ATTENTION_DROPOUT, .number = p->p };
}

static int drop_shape(struct infer *s)
{
  const struct drop_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc mask = s->in[0];
  if (!mask.ndim) return TY_OK;
  for (int64_t i = 0; i < p->axes.n; i++) {
    int axis;
    TRY(infer_axis(s, p->axes.d[i], mask.ndim, &axis));
    mask.dim[axis] = 1;
  }
  return shape_as(s, &s->out[1], &mask);
}

struct fall {
  const struct vec_ops *r;
  struct drop d;
  const void *x;
  /* factor: factors of mask_shape, where axes share them */
  void   *y, *mask, *factor;
  ty_desc shape, mask_shape;
  bool    acts;
};

static void elements_body(int64_t begin, int64_t end, void *context)
{
  const struct fall *f = context;
  const struct vec_ops *r = f->r;
  r->dropout(vec_at(r, f->y, begin), vec_at(r, f->x, begin), vec_at(r, f->mask, begin), &f->d,
      begin, end - begin);
}

/* Multiplies rows of the last axis by their factors. */
static void shared_body(int64_t begin, int64_t end, void *context)
{
  const struct fall *f = context;
  const struct vec_ops *r = f->r;
  int last = f->shape.ndim - 1;
  int64_t n = f->shape.dim[last];
  for (int64_t row = begin; row < end; row++) {
    int64_t from = 0, step = 1, rest = row;
    if (f->mask_shape.dim[last] > 1 || n == 1) step = n;
    for (int i = last - 1; i >= 0; i--) {
      if (f->mask_shape.dim[i] > 1) from += rest % f->shape.dim[i] * step, step *= f->shape.dim[i];
      rest /= f->shape.dim[i];
    }
    void *y = vec_at(r, f->y, row * n), *x = vec_at(r, f->x, row * n);
    if (f->mask_shape.dim[last] == 1) {
      r->affine(y, x, r->get(f->factor, from), 0, n);
      continue;
    }
    if (y != x) memcpy(y, x, r->size * (size_t)n);
    r->multiply(y, vec_at(r, f->factor, from), n);
  }
}

/* Runs a call. tmp: memory for shared factors if there is no mask. */
static void drop_run(struct fall *f, void *tmp)
{
  int64_t n = desc_count(&f->shape), m = desc_count(&f->mask_shape),
          last = f->shape.dim[f->shape.ndim - 1];
  if (!f->acts) {
    if (f->y && f->y != f->x) memcpy(f->y, f->x, f->r->size * (size_t)n);
    if (f->mask) f->r->fill(f->mask, 1, m);
    return;
  }
  if (n == m && f->y) {
    parallel_for(n, NS_CALL, elements_body, f);
    return;
  }
  f->factor = f->mask ? f->mask : tmp;
  f->r->fill(f->factor, 1, m);
  f->r->dropout(f->factor, f->factor, NULL, &f->d, 0, m);
  if (f->y) parallel_for(n / last, elements_ns(last), shared_body, f);
}

static struct fall make_fall(const struct call *c, const ty_desc *shape)
{
  const struct drop_param *p = c->param;
  struct fall f = { .r = vec_ops_of(shape->dtype),
    .d = { c->run->rng, c->node, 1 - p->p },
    .shape = *shape,
    .mask_shape = *shape,
    .acts = drop_acts(p, c->run->is_train) };
  for (int64_t i = 0; i < p->axes.n; i++)
    f.mask_shape.dim[p->axes.d[i] < 0 ? p->axes.d[i] + shape->ndim : p->axes.d[i]] = 1;
  return f;
}

static int drop_forward(struct call *c)
{
  struct fall f = make_fall(c, &c->in[0].d);
  f.x = c->in[0].p;
  f.y = c->out[0].p;
  f.mask = c->out[1].p;
  drop_run(&f, c->tmp);
  return TY_OK;
}

static int drop_backward(struct call *c)
{
  struct fall f = make_fall(c, &c->out[0].d);
  f.x = c->in[0].p;
  f.y = c->out[0].p;
  drop_run(&f, c->tmp);
  return TY_OK;
}

static size_t drop_scratch(const struct call *c)
{
  const struct drop_param *p = c->param;
  return p->axes.n > 0 ? desc_bytes(&c->out[0].d) : 0;
}

/* -- half types: a few elements at a time become float32 --------------------------------------- */

static void half_body(int64_t begin, int64_t end, void *context)
{
  enum { STEP = 1024 };                               /* elements; buffers stay in the L1 cache */
  const struct fall *f = context;
  const int dtype = f->shape.dtype;
  const cast_fn widen = cast_between(dtype, TY_F32), narrow = cast_between(TY_F32, dtype);
  uint16_t *y = f->y, *mask = f->mask;
  const uint16_t *x = f->x;
  float part[STEP], factor[STEP];
  for (int64_t i = begin, n; i < end; i += n) {
    n = MIN(STEP, end - i);
    if (y)
      widen(part, x + i, n);
    else
      memset(part, 0, sizeof part);
    f->r->dropout(part, part, mask ? factor : NULL, &f->d, i, n);
    if (y) narrow(y + i, part, n);
    if (mask) narrow(mask + i, factor, n);
  }
}

/* Runs forward or backward of half types without shared factors. mask: NULL if unused. */
static int half_run(struct call *c, void *mask)
{
  struct fall f = make_fall(c, &c->in[0].d);
  const int64_t n = desc_count(&f.shape);
  f.r = vec_ops_of(TY_F32);
  f.x = c->in[0].p;
  f.y = c->out[0].p;
  f.mask = mask;
  if (f.acts) {
    parallel_for(n, NS_CALL, half_body, &f);
    return TY_OK;
  }
  const uint16_t one = f.shape.dtype == TY_BF16 ? float_to_bf16(1) : float_to_half(1);
  if (f.y && f.y != f.x) memcpy(f.y, f.x, sizeof one * (size_t)n);
  for (int64_t i = 0; f.mask && i < n; i++) ((uint16_t *)f.mask)[i] = one;
  return TY_OK;
}

static int half_forward(struct call *c) { return half_run(c, c->out[1].p); }
static int half_backward(struct call *c) { return half_run(c, NULL); }

static const char *half_refuse(const struct call *c)
{
  return ((const struct drop_param *)c->param)->axes.n ? "axes share factors" : NULL;
}

static const struct kernel drop_cpu[] = {
  { "philox halves", half_forward, T(TY_F16) | T(TY_BF16), half_refuse },
  { "philox", drop_forward, T_FLOAT, NULL, drop_scratch }, { 0 }
};
static const struct kernel drop_back_cpu[] = {
  { "philox halves", half_backward, T(TY_F16) | T(TY_BF16), half_refuse },
  { "philox", drop_backward, T_FLOAT, NULL, drop_scratch }, { 0 }
};

const struct op op_dropout[] = {
  { .name = "Dropout", .alias = "_npx_dropout", .in = "data", .out = "output [mask]", .flags = OP_RANDOM | OP_NEVER_AGAIN | OP_NAMED_INPUT,
    .doc = "In training sets each element to 0 with probability p and multiplies the others by 1 / (1 - p); else the identity.",
    .param = drop_params, .param_size = sizeof(struct drop_param), .shape = drop_shape, .grad = "g0", .inplace = "0=0",
    .back_inplace = "0=0", .draws = drop_acts, .attention = attention_dropout,
    .cpu = drop_cpu, .back_cpu = drop_back_cpu },
  { 0 }
};
