/* attention.c - products of multi-head attention on interleaved projections; _contrib_div_sqrt_dim.
**
** A projection (T, B, heads * parts * d) has, for each of B samples and each head, `parts` matrices
** (T, d) side by side: queries, keys, values. Rows of a matrix are B * heads * parts * d elements
** apart, so that products work in place:
**   qk      A = Q K^T / sqrt(d)     dQ = G K / sqrt(d),  dK = G^T Q / sqrt(d)
**   valatt  Y = A V                 dA = G V^T,          dV = A^T G
** Weights of attention are (B * heads, Tq, Tk).
*/
#include "kernel/gemm/gemm.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct attention { int64_t heads; };
static const struct param params[] = {
  { "heads", P_INT, offsetof(struct attention, heads), NULL, "number of heads", NULL, "[1,]" },
  { 0 }
};

static struct attention_part make_part(const void *param, enum attention_role role, bool self)
{
  return (struct attention_part){ role, .self = self,
    .heads = ((const struct attention *)param)->heads };
}
static struct attention_part self_scores(const void *p, int n)
{
  return (void)n, make_part(p, ATTENTION_SCORES, true);
}
static struct attention_part self_values(const void *p, int n)
{
  return (void)n, make_part(p, ATTENTION_VALUES, true);
}
static struct attention_part encdec_scores(const void *p, int n)
{
  return (void)n, make_part(p, ATTENTION_SCORES, false);
}
static struct attention_part encdec_values(const void *p, int n)
{
  return (void)n, make_part(p, ATTENTION_VALUES, false);
}

/* -- shapes ------------------------------------------------------------------------------------ */

/* Checks the shape (T, B, heads * parts * d) and finds d, 0 while it is unknown. */
static int check_projection(struct infer *s, const ty_desc *x, int parts, int64_t *d)
{
  const struct attention *p = s->param;
  *d = 0;
  if (!x->ndim) return TY_OK;
  if (x->ndim != 3)
    return infer_fail(s, TY_ESHAPE, x, "expected (length, batch, %s), got %d dimensions",
        parts == 1       ? "heads * d"
            : parts == 2 ? "heads * 2 * d"
                         : "heads * 3 * d",
        x->ndim);
  int64_t width = p->heads > INT32_MAX ? INT64_MAX : p->heads * parts;
  if (x->dim[2] % width)
    return infer_fail(s, TY_ESHAPE, x,
        "a row of %lld numbers cannot be divided into %d parts of %lld heads", (long long)x->dim[2],
        parts, (long long)p->heads);
  *d = x->dim[2] / width;
  return TY_OK;
}

static int weights_shape(struct infer *s, ty_desc *a, const ty_desc *q, const ty_desc *k)
{
  const struct attention *p = s->param;
  return shape_is(s, a, 3,
      (int64_t[]){ size_times(q->ndim ? q->dim[1] : k->dim[1], p->heads),
          q->ndim ? q->dim[0] : 0, k->ndim ? k->dim[0] : 0 });
}

static int self_qk_shape(struct infer *s)
{
  int64_t d;
  TRY(check_projection(s, &s->in[0], 3, &d));
  return s->in[0].ndim ? weights_shape(s, &s->out[0], &s->in[0], &s->in[0]) : TY_OK;
}

static int self_valatt_shape(struct infer *s)
{
  const struct attention *p = s->param;
  const ty_desc *x = &s->in[0];
  int64_t d;
  TRY(check_projection(s, x, 3, &d));
  if (!x->ndim) return TY_OK;
  TRY(weights_shape(s, &s->in[1], x, x));
  return shape_is(s, &s->out[0], 3, (int64_t[]){ x->dim[0], x->dim[1], p->heads * d });
}

static int encdec_qk_shape(struct infer *s)
{
  const struct attention *p = s->param;
  ty_desc *q = &s->in[0], *kv = &s->in[1];
  int64_t d, d2;
  TRY(check_projection(s, q, 1, &d));
  TRY(check_projection(s, kv, 2, &d2));
  if (q->ndim) TRY(shape_is(s, kv, 3, (int64_t[]){ 0, q->dim[1], 2 * p->heads * d }));
  if (kv->ndim) TRY(shape_is(s, q, 3, (int64_t[]){ 0, kv->dim[1], p->heads * d2 }));
  return q->ndim ? weights_shape(s, &s->out[0], q, kv) : TY_OK;
}

static int encdec_valatt_shape(struct infer *s)
{
  const struct attention *p = s->param;
  const ty_desc *kv = &s->in[0];
  ty_desc *a = &s->in[1];
  int64_t d;
  TRY(check_projection(s, kv, 2, &d));
  if (!kv->ndim) return TY_OK;
  TRY(shape_is(s, a, 3, (int64_t[]){ size_times(kv->dim[1], p->heads), 0, kv->dim[0] }));
  return shape_is(s, &s->out[0], 3, (int64_t[]){ a->dim[1], kv->dim[1], p->heads * d });
}

/* -- products ---------------------------------------------------------------------------------- */

/* One matrix for each sample and head. */
struct head_matrices {
  char *p;
  int64_t step;                                       /* elements from one matrix to the next */
  int64_t row;                                        /* elements from one row to the next */
};

static struct head_matrices make_head_matrices(
    const struct operand *x, int64_t heads, int parts, int part)
{
  int64_t d = x->d.dim[2] / (heads * parts);
  char *p = x->p ? (char *)x->p + (size_t)(part * d) * dtype_size(x->d.dtype) : NULL;
  return (struct head_matrices){ p, parts * d, x->d.dim[1] * x->d.dim[2] };
}

static struct head_matrices make_weight_matrices(const struct operand *a)
{
  return (struct head_matrices){ a->p, a->d.dim[1] * a->d.dim[2], a->d.dim[2] };
}

/* c = alpha op(a) op(b) for each head; op(a) is m x k, op(b) is k x n. */
struct head_products {
  int type;                                           /* gemm type of the products */
  bool ta, tb;                                        /* op transposes */
  int64_t m, n, k;
  double alpha;
  struct head_matrices a, b, c;
  int failed;                                         /* code of a product that failed */
};

static void attend_range(int64_t begin, int64_t end, void *context)
{
  struct head_products *j = context;
  const size_t size = j->type == TY_F64 ? sizeof(double) : sizeof(float);
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    int code = gemm_one(j->type, j->ta, j->tb, j->m, j->n, j->k, j->alpha,
        j->a.p + (size_t)(i * j->a.step) * size, j->a.row, j->b.p + (size_t)(i * j->b.step) * size,
        j->b.row, 0, j->c.p + (size_t)(i * j->c.step) * size, j->c.row);
    if (code) __atomic_store_n(&j->failed, code, __ATOMIC_RELAXED);
  }
}

/* Computes c = alpha op(a) op(b) for each of `count` heads. */
static int multiply_heads(struct head_products j, int64_t count)
{
  const double work = (double)j.m * (double)j.n * (double)j.k;
  parallel_for_stoppable(count, NS_ELEMENT * work, attend_range, &j);
  return j.failed ? fail(j.failed, "out of memory for the product of a head") : TY_OK;
}

/* Q, K and V of a call, as inputs or as gradients, and the sizes of all products. */
struct heads {
  int type;                                           /* of gemm.h */
  struct head_matrices q, k, v;
  int64_t count;                                      /* samples times heads */
  int64_t tq, tk;                                     /* queries and keys of a head */
  int64_t d;                                          /* numbers of a query */
  double scale;                                       /* of the scores */
};

/* Describes a call. q: queries; kv if these are in one array with keys and values; NULL: unused. */
static struct heads make_heads(const struct call *c, const struct operand *q,
    const struct operand *kv, const struct operand *weights)
{
  const int64_t n = ((const struct attention *)c->param)->heads;
  const int parts = q == kv ? 3 : 2;
  struct heads h = { .type = gemm_type_for(c, kv->d.dtype),
    .count = weights->d.dim[0],
    .tq = weights->d.dim[1],
    .tk = weights->d.dim[2] };
  h.d = kv->d.dim[2] / (n * parts);
  h.scale = 1 / sqrt((double)h.d);
  if (q) h.q = make_head_matrices(q, n, parts == 3 ? 3 : 1, 0);
  h.k = make_head_matrices(kv, n, parts, parts - 2);
  h.v = make_head_matrices(kv, n, parts, parts - 1);
  return h;
}

static int qk_forward(const struct call *c, const struct operand *q, const struct operand *kv)
{
  struct heads h = make_heads(c, q, kv, &c->out[0]);
  return multiply_heads((struct head_products){ h.type, false, true, h.tq, h.tk, h.d, h.scale, h.q,
                            h.k, make_weight_matrices(&c->out[0]) },
      h.count);
}

/* Sets an operand to 0, where no product writes to it. */
static void clear_operand(const struct operand *a) { if (a->p) memset(a->p, 0, desc_bytes(&a->d)); }

/* Computes the gradients dq and dkv, one array for self-attention. in: head gradient, then the
** inputs. */
static int qk_backward(const struct call *c, const struct operand *q, const struct operand *kv,
    const struct operand *dq, const struct operand *dkv)
{
  struct heads h = make_heads(c, q, kv, &c->in[0]), g = make_heads(c, dq, dkv, &c->in[0]);
  struct head_matrices weights = make_weight_matrices(&c->in[0]);
  clear_operand(dkv);
  if (g.q.p)
    TRY(multiply_heads(
        (struct head_products){ h.type, false, false, h.tq, h.d, h.tk, h.scale, weights, h.k, g.q },
        h.count));
  if (g.k.p)
    TRY(multiply_heads(
        (struct head_products){ h.type, true, false, h.tk, h.d, h.tq, h.scale, weights, h.q, g.k },
        h.count));
  return TY_OK;
}

/* Returns the matrices for products of weights and values. kv: the array with the values; self: it
** has three parts per head, else two. */
static struct heads make_value_heads(
    const struct call *c, const struct operand *kv, const struct operand *weights, bool self)
{
  return make_heads(c, self ? kv : NULL, kv, weights);
}

static int valatt_forward(const struct call *c, bool self)
{
  struct heads h = make_value_heads(c, &c->in[0], &c->in[1], self);
  struct head_matrices y =
      make_head_matrices(&c->out[0], ((const struct attention *)c->param)->heads, 1, 0);
  return multiply_heads((struct head_products){ h.type, false, false, h.tq, h.d, h.tk, 1,
                      make_weight_matrices(&c->in[1]), h.v, y },
      h.count);
}

/* Computes the gradients of projection and weights. in: head gradient, projection, weights. */
static int valatt_backward(const struct call *c, bool self)
{
  struct heads h = make_value_heads(c, &c->in[1], &c->in[2], self),
               g = make_value_heads(c, &c->out[0], &c->in[2], self);
  struct head_matrices dy =
      make_head_matrices(&c->in[0], ((const struct attention *)c->param)->heads, 1, 0);
  struct head_matrices a = make_weight_matrices(&c->in[2]), da = make_weight_matrices(&c->out[1]);
  clear_operand(&c->out[0]);
  if (g.v.p)
    TRY(multiply_heads(
        (struct head_products){ h.type, true, false, h.tk, h.d, h.tq, 1, a, dy, g.v }, h.count));
  if (da.p)
    TRY(multiply_heads(
        (struct head_products){ h.type, false, true, h.tq, h.tk, h.d, 1, dy, h.v, da }, h.count));
  return TY_OK;
}

static int self_qk(struct call *c)            { return qk_forward(c, &c->in[0], &c->in[0]); }
static int self_qk_back(struct call *c)
{
  return qk_backward(c, &c->in[1], &c->in[1], &c->out[0], &c->out[0]);
}
static int self_valatt(struct call *c)        { return valatt_forward(c, true); }
static int self_valatt_back(struct call *c)   { return valatt_backward(c, true); }
static int encdec_qk(struct call *c)          { return qk_forward(c, &c->in[0], &c->in[1]); }
static int encdec_qk_back(struct call *c)
{
  return qk_backward(c, &c->in[1], &c->in[2], &c->out[0], &c->out[1]);
}
static int encdec_valatt(struct call *c)      { return valatt_forward(c, false); }
static int encdec_valatt_back(struct call *c) { return valatt_backward(c, false); }

/* -- div_sqrt_dim ------------------------------------------------------------------------------ */

static void divide_range(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  const int64_t n = c->in[0].d.dim[c->in[0].d.ndim - 1];
  r->affine(vec_at(r, c->out[0].p, begin * n), vec_at(r, c->in[0].p, begin * n),
      1 / sqrt((double)n), 0, (end - begin) * n);
}

static int div_sqrt_dim(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t n = d->dim[d->ndim - 1];
  parallel_for(desc_count(d) / n, elements_ns(n), divide_range, c);
  return TY_OK;
}

/* For integers the root is truncated to an integer. */
#define DIVIDE_INTEGERS(T, TYPE) \
  case TYPE: \
    for (int64_t i = begin; i < end; i++) ((T *)c->out[0].p)[i] = (T)(((T *)c->in[0].p)[i] / by); \
    break;

static void divide_integers(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const ty_desc *d = &c->in[0].d;
  const int64_t by = (int64_t)sqrt((double)d->dim[d->ndim - 1]);
  switch (d->dtype) {
    DIVIDE_INTEGERS(uint8_t, TY_U8)
    DIVIDE_INTEGERS(int8_t, TY_I8)
    DIVIDE_INTEGERS(int32_t, TY_I32)
    DIVIDE_INTEGERS(int64_t, TY_I64)
  }
}

static int div_integers(struct call *c)
{
  parallel_for(desc_count(&c->in[0].d), NS_CALL, divide_integers, c);
  return TY_OK;
}

/*                                                    name      run                 types */
static const struct kernel self_qk_cpu[]          = { { "gemm", self_qk,            T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel self_qk_back_k[]       = { { "gemm", self_qk_back,       T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel self_valatt_cpu[]      = { { "gemm", self_valatt,        T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel self_valatt_back_k[]   = { { "gemm", self_valatt_back,   T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel encdec_qk_cpu[]        = { { "gemm", encdec_qk,          T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel encdec_qk_back_k[]     = { { "gemm", encdec_qk_back,     T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel encdec_valatt_cpu[]    = { { "gemm", encdec_valatt,      T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel encdec_valatt_back_k[] = { { "gemm", encdec_valatt_back, T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel div_cpu[]              = { { "rows", div_sqrt_dim,       T_FLOAT },
                                                      { "integers", div_integers,   T_INT & ~T(TY_BOOL) }, { 0 } };

#define HEADS .out = "output", .param = params, .param_size = sizeof(struct attention)

const struct op op_attention[] = { {
  .name = "_contrib_interleaved_matmul_selfatt_qk", .back = "_backward_interleaved_matmul_selfatt_qk", HEADS,
  .doc = "Q K^T / sqrt(d) of each head of queries_keys_values (T, B, heads * 3 * d): (B * heads, T, T). Gradient of the input.",
  .in = "queries_keys_values", .shape = self_qk_shape, .grad = "g0 i0", .cpu = self_qk_cpu, .back_cpu = self_qk_back_k,
  .attention = self_scores,
}, {
  .name = "_contrib_interleaved_matmul_selfatt_valatt", .back = "_backward_interleaved_matmul_selfatt_valatt", HEADS,
  .doc = "attention (B * heads, T, T) times V of each head of queries_keys_values (T, B, heads * 3 * d): (T, B, heads * d). "
         "Gradients of both.",
  .in = "queries_keys_values attention", .shape = self_valatt_shape, .grad = "g0 i0 i1", .cpu = self_valatt_cpu,
  .back_cpu = self_valatt_back_k, .attention = self_values,
}, {
  .name = "_contrib_interleaved_matmul_encdec_qk", .back = "_backward_interleaved_matmul_encdec_qk", HEADS,
  .doc = "Q K^T / sqrt(d) of each head of queries (Tq, B, heads * d) and keys_values (Tk, B, heads * 2 * d): (B * heads, Tq, Tk). "
         "Gradients of both.",
  .in = "queries keys_values", .shape = encdec_qk_shape, .grad = "g0 i0 i1", .cpu = encdec_qk_cpu, .back_cpu = encdec_qk_back_k,
  .attention = encdec_scores,
}, {
  .name = "_contrib_interleaved_matmul_encdec_valatt", .back = "_backward_interleaved_matmul_encdec_valatt", HEADS,
  .doc = "attention (B * heads, Tq, Tk) times V of each head of keys_values (Tk, B, heads * 2 * d): (Tq, B, heads * d). "
         "Gradients of both.",
  .in = "keys_values attention", .shape = encdec_valatt_shape, .grad = "g0 i0 i1", .cpu = encdec_valatt_cpu,
  .back_cpu = encdec_valatt_back_k, .attention = encdec_values,
}, {
  .name = "_contrib_div_sqrt_dim",
  .doc = "data divided by the root of the size of its last axis; of integers, by the root's whole part, towards zero. Gradient: the same.",
  .in = "data", .out = "output", .grad = "g0", .cpu = div_cpu, .back_cpu = div_cpu, .inplace = "0=0", .back_inplace = "0=0",
}, { 0 } };
