/* attention.c - products of multi-head attention on interleaved projections, by cublasLt.
** operators/nn/attention.c describes the layout of heads. Heads are matrices at equal distances, so
** that one batched product computes all. */
#include "cuda/family.h"
#include "cuda/product.h"

/* One matrix for each sample and head, `step` elements apart, rows `row` elements apart. */
struct attention_heads { char *p; int64_t step, row; };
struct attention_plans { struct product_plan *of[2]; };

static struct attention_heads make_heads(
    const struct call *c, const struct operand *x, int parts, int part)
{
  int64_t d = x->d.dim[2] / ((int64_t)cuda_number(c, "heads", 1) * parts);
  char *p = x->p ? (char *)x->p + (size_t)(part * d) * dtype_size(x->d.dtype) : NULL;
  return (struct attention_heads){ p, parts * d, x->d.dim[1] * x->d.dim[2] };
}

static struct attention_heads make_weight_heads(const struct operand *a)
{
  return (struct attention_heads){ a->p, a->d.dim[1] * a->d.dim[2], a->d.dim[2] };
}

/* Q, K and V of a call, or their gradients, and the sizes of their products. */
struct attention_sizes { int dtype; struct attention_heads q, k, v; int64_t count, tq, tk, d; };

enum { ENCDEC, SELF };
static bool is_self(const struct call *c) { return cuda_what(c) == SELF; }

/* Returns the sizes of a call. kv: keys and values. q: queries, the same array as kv in
** self-attention; NULL: not needed. */
static struct attention_sizes make_sizes(const struct call *c, const struct operand *q,
    const struct operand *kv, const struct operand *weights)
{
  int parts = is_self(c) ? 3 : 2;
  struct attention_sizes a = { .dtype = kv->d.dtype, .count = weights->d.dim[0],
    .tq = weights->d.dim[1], .tk = weights->d.dim[2] };
  a.d = kv->d.dim[2] / ((int64_t)cuda_number(c, "heads", 1) * parts);
  if (q) a.q = make_heads(c, q, is_self(c) ? 3 : 1, 0);
  a.k = make_heads(c, kv, parts, parts - 2);
  a.v = make_heads(c, kv, parts, parts - 1);
  return a;
}

/* The product c = alpha op(a) op(b) of each head. */
struct heads_product {
  bool ta, tb;
  int64_t m, n, k;
  double alpha;
  struct attention_heads a, b, c;
};

static struct product make_product(const struct attention_sizes *h, const struct heads_product *p)
{
  return (struct product){ .dtype = h->dtype, .ta = p->ta, .tb = p->tb, .m = p->m, .n = p->n,
    .k = p->k, .lda = p->a.row, .ldb = p->b.row, .ldc = p->c.row, .batch = h->count,
    .stride_a = p->a.step, .stride_b = p->b.step, .stride_c = p->c.step, .alpha = p->alpha };
}

/* -- the products of a call -------------------------------------------------------------------- */

/* Computes the outputs; in: queries, keys and values (self: one array); out: weights. */
static int qk_products(const struct call *c, struct attention_sizes *h, struct heads_product p[2])
{
  const struct operand *kv = &c->in[!is_self(c)];
  *h = make_sizes(c, &c->in[0], kv, &c->out[0]);
  p[0] = (struct heads_product){ false, true, h->tq, h->tk, h->d, 1 / sqrt((double)h->d), h->q,
    h->k, make_weight_heads(&c->out[0]) };
  return 1;
}

/* Computes the gradients; in: gradient of the weights, then the inputs. */
static int qk_back(const struct call *c, struct attention_sizes *h, struct heads_product p[2])
{
  int second = !is_self(c);
  struct attention_sizes g = make_sizes(c, &c->out[0], &c->out[second], &c->in[0]);
  struct attention_heads w = make_weight_heads(&c->in[0]);
  *h = make_sizes(c, &c->in[1], &c->in[1 + second], &c->in[0]);
  double scale = 1 / sqrt((double)h->d);
  p[0] = (struct heads_product){ false, false, h->tq, h->d, h->tk, scale, w, h->k, g.q };
  p[1] = (struct heads_product){ true, false, h->tk, h->d, h->tq, scale, w, h->q, g.k };
  return 2;
}

/* Computes the outputs; in: values (self: with queries and keys), weights. */
static int valatt_products(
    const struct call *c, struct attention_sizes *h, struct heads_product p[2])
{
  *h = make_sizes(c, NULL, &c->in[0], &c->in[1]);
  p[0] = (struct heads_product){ false, false, h->tq, h->d, h->tk, 1, make_weight_heads(&c->in[1]),
    h->v, make_heads(c, &c->out[0], 1, 0) };
  return 1;
}

/* Computes the gradients; in: head gradient, values, weights. */
static int valatt_back(const struct call *c, struct attention_sizes *h, struct heads_product p[2])
{
  struct attention_sizes g = make_sizes(c, NULL, &c->out[0], &c->in[2]);
  struct attention_heads dy = make_heads(c, &c->in[0], 1, 0), a = make_weight_heads(&c->in[2]);
  *h = make_sizes(c, NULL, &c->in[1], &c->in[2]);
  p[0] = (struct heads_product){ true, false, h->tk, h->d, h->tq, 1, a, dy, g.v };
  p[1] = (struct heads_product){ false, true, h->tq, h->tk, h->d, 1, dy, h->v,
    make_weight_heads(&c->out[1]) };
  return 2;
}

typedef int (*products_fn)(
    const struct call *c, struct attention_sizes *h, struct heads_product p[2]);

static int run_products(struct call *c, products_fn of)
{
  struct attention_sizes h;
  struct heads_product p[2];
  struct attention_plans *plans = c->state;
  int n = of(c, &h, p);
  for (int i = 0; i < n; i++) {
    struct product x = make_product(&h, &p[i]);
    if (!p[i].c.p) continue;
    TRY(product_run(c, &x, &plans->of[i], p[i].a.p, p[i].b.p, NULL, p[i].c.p, c->tmp));
  }
  return TY_OK;
}

/* Runs the products of a gradient. Sets the parts that no product writes to 0: in self-attention
** those of the values or queries, else those of the values. */
static int run_back(struct call *c, products_fn of)
{
  int projection = of == qk_back && !is_self(c);
  TRY(cuda_zero(c, &c->out[projection]));
  return run_products(c, of);
}

static const char *refuse_products(const struct call *c, products_fn of)
{
  struct attention_sizes h;
  struct heads_product p[2];
  const char *no = NULL;
  for (int i = of(c, &h, p) - 1; i >= 0 && !no; i--) {
    struct product x = make_product(&h, &p[i]);
    no = product_refuse(c, &x);
  }
  return no;
}

static size_t products_scratch(const struct call *c, products_fn of)
{
  struct attention_sizes h;
  struct heads_product p[2];
  size_t most = 0;
  for (int i = of(c, &h, p) - 1; i >= 0; i--) {
    struct product x = make_product(&h, &p[i]);
    most = MAX(most, product_workspace(c, &x));
  }
  return most;
}

static size_t plans_size(const struct call *c) { return sizeof(struct attention_plans); }
static void plans_done(void *state)
{
  struct attention_plans *s = state;
  for (int i = 0; i < COUNT(s->of); i++) product_done(s->of[i]);
}

/* -- the table --------------------------------------------------------------------------------- */

enum { TYPES = T(TY_F32) | T(TY_F64) | T(TY_F16) | T(TY_BF16) };
#define PRODUCTS(table, of, how) \
  static int of##_run(struct call *c) { return how(c, of); } \
  static const char *of##_refuse(const struct call *c) { return refuse_products(c, of); } \
  static size_t of##_scratch(const struct call *c) { return products_scratch(c, of); } \
  static const struct kernel table[] = { { "cublaslt", of##_run, TYPES, of##_refuse, of##_scratch, \
                                           plans_size, plans_done, .flags = K_PRECISION }, \
    { 0 } };
PRODUCTS(weights, qk_products, run_products)
PRODUCTS(weights_back, qk_back, run_back)
PRODUCTS(sums, valatt_products, run_products)
PRODUCTS(sums_back, valatt_back, run_back)

/* Computes _contrib_div_sqrt_dim, and its gradient. */
static int over_root(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return cuda_times(c, &c->out[0], &c->in[0], 1 / sqrt((double)d->dim[d->ndim - 1]), false);
}
static int over_whole_root(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = desc_count(d), by = (int64_t)sqrt((double)d->dim[d->ndim - 1]);
  const char *type = cuda_type(d->dtype);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_convert, "divide", &f, "FROM=%s TO=%s BY=i64", type, type));
  void *params[] = { &c->out[0].p, &c->in[0].p, &n, &by };
  return cuda_run(c, f, n, params);
}
static const struct kernel roots[] = {
  { "elements", over_root, T_FLOATS }, { "integers", over_whole_root, T_INT & ~T(TY_BOOL) }, { 0 }
};

const struct op_kernels cuda_attention[] = {
  { "_contrib_div_sqrt_dim", roots, roots },
  { "_contrib_interleaved_matmul_selfatt_qk", weights, weights_back, SELF },
  { "_contrib_interleaved_matmul_encdec_qk", weights, weights_back },
  { "_contrib_interleaved_matmul_selfatt_valatt", sums, sums_back, SELF },
  { "_contrib_interleaved_matmul_encdec_valatt", sums, sums_back },
  { 0 }
};
