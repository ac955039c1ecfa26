/* linear_cross_entropy.c - FullyConnected and the cross entropy of its softmax, without an array of
** all probabilities.
**
** Rows are processed in slabs: products into scratch, softmax, loss, and the gradients of these
** rows, all in the cache. No array of rows x classes is needed, neither forward nor backward.
** So forward computes the gradients (hidden outputs), and backward copies them; like other losses
** it ignores the head gradient. Source: PyTorch's chunked linear_cross_entropy, and kernels that
** fuse the last layer of a language model with its loss.
*/
#include "kernel/gemm/gemm.h"
#include "op/op.h"
#include "operators/nn/linear_loss.h"
#include "kernel/vec/softmax.h"

struct cross {
  int64_t num_hidden, no_bias, use_ignore, normalization;
  double grad_scale, ignore_label;
};
enum { PER_NOTHING, PER_BATCH, PER_VALID };
#define FIELD(f) offsetof(struct cross, f)

static const struct param params[] = {
  { "num_hidden",    P_INT,   FIELD(num_hidden),    NULL,   "classes", NULL, "[1,]" },
  { "no_bias",       P_BOOL,  FIELD(no_bias),       "0",    "there is no bias input" },
  { "grad_scale",    P_FLOAT, FIELD(grad_scale),    "1",    "factor of the gradient" },
  { "ignore_label",  P_FLOAT, FIELD(ignore_label),  "-1",   "with use_ignore: rows of this label have no loss and no gradient" },
  { "use_ignore",    P_BOOL,  FIELD(use_ignore),    "0",    "rows whose label is ignore_label are left out" },
  { "normalization", P_ENUM,  FIELD(normalization), "null",
    "the gradient is divided by: null nothing, batch labels, valid labels other than ignore_label", "null|batch|valid" },
  { 0 }
};

static bool has_bias(const void *param)        { return !((const struct cross *)param)->no_bias; }
static const char *input_ports(const void *param)
{
  return has_bias(param) ? "data weight bias label" : "data weight label";
}
static const char *output_ports(const void *param)
{
  return has_bias(param) ? "output {data_grad} {weight_grad} {bias_grad}"
                       : "output {data_grad} {weight_grad}";
}
static const char *gradient_reads(const void *param)
{
  return has_bias(param) ? "o1 o2 o3" : "o1 o2";
}

/* -- inference --------------------------------------------------------------------------------- */

static int cross_shape(struct infer *s)
{
  const struct cross *p = s->param;
  ty_desc *x = &s->in[0], *label = &s->in[s->nin - 1];
  if (!x->ndim) return TY_OK;
  if (x->ndim < 2)
    return infer_fail(s, TY_ESHAPE, x, "expected (rows..., columns), got %d dimension", x->ndim);
  TRY(shape_is(s, &s->in[1], 2, (int64_t[]){ p->num_hidden, x->dim[x->ndim - 1] }));
  if (has_bias(p)) TRY(shape_is(s, &s->in[2], 1, &p->num_hidden));
  TRY(shape_is(s, label, x->ndim - 1, x->dim));
  TRY(shape_as(s, &s->out[0], label));
  for (int k = 1; k < s->nout; k++) TRY(shape_as(s, &s->out[k], &s->in[k - 1]));
  return TY_OK;
}

static int cross_type(struct infer *s)
{
  for (int round = 0; round < 2; round++) {
    for (int k = 1; k < s->nin - 1; k++) TRY(type_both(s, &s->in[0], &s->in[k]));
    for (int k = 0; k < s->nout; k++) TRY(type_both(s, &s->in[0], &s->out[k]));
  }
  return type_index(s, &s->in[s->nin - 1], &s->in[0], ((const struct cross *)s->param)->num_hidden);
}

/* -- forward ----------------------------------------------------------------------------------- */

enum {
  SLAB = 16 << 20,                                    /* most bytes of a slab of products */
  LEAST = 64,                                         /* least rows of a slab */
};

struct entropy_slab {
  const struct cross *p;
  const struct vec_ops *r;
  const struct operand *x, *w;
  const struct operand *bias;                         /* NULL: there is none */
  const struct operand *label, *loss;
  int64_t n;                                          /* classes */
  int64_t k;                                          /* columns of the data */
  int64_t first;                                      /* number of the slab's first row */
  double scale;
  bool wants_gradients;                               /* products become gradients */
  /* rows x n: products, then probabilities, then gradients */
  char *z;
};

/* Returns the rows of a slab; slabs have nearly equal sizes. */
static int64_t slab_rows(struct linear_sizes z, size_t size)
{
  int64_t fits = MAX(LEAST, SLAB / (z.n * (int64_t)size)), slabs = MAX(1, (z.m + fits - 1) / fits);
  return (z.m + slabs - 1) / slabs;
}

static bool is_ignored(const struct cross *p, int64_t label)
{
  return p->use_ignore && (double)label == p->ignore_label;
}

/* Returns the product of a row with a class's weight, plus its bias. */
static double compute_logit(const struct entropy_slab *s, int64_t row, int64_t class)
{
  const struct vec_ops *r = s->r;
  double bias = s->bias ? r->get(s->bias->p, class) : 0;
  return r->dot(vec_at(r, s->x->p, row * s->k), vec_at(r, s->w->p, class * s->k), s->k) + bias;
}

/* Returns -log of the probability p[class]; if that is too small for a float, computed from the
** products of the class and of the likeliest one. */
static double negative_log(const struct entropy_slab *s, int64_t row, const void *p, int64_t class)
{
  const struct vec_ops *r = s->r;
  double own = r->get(p, class), most;
  if (!(own < 1e-30)) return -log(own);
  most = r->max(p, s->n);
  int64_t best = 0;
  while (best < s->n - 1 && r->get(p, best) != most) best++;
  return compute_logit(s, row, best) - compute_logit(s, row, class) - log(most);
}

static void rows_body(int64_t begin, int64_t end, void *context)
{
  const struct entropy_slab *s = context;
  const struct vec_ops *r = s->r;
  for (int64_t i = begin; i < end; i++) {
    void *z = vec_at(r, s->z, i * s->n);
    const int64_t row = s->first + i, class = whole_at(s->label, row);
    if (is_ignored(s->p, class)) {
      if (s->loss->p) r->set(s->loss->p, row, 0);
      if (s->wants_gradients) r->fill(z, 0, s->n);
      continue;
    }
    r->softmax->soft(z, z, 1, false, s->n);
    if (s->loss->p) r->set(s->loss->p, row, negative_log(s, row, z, class));
    if (!s->wants_gradients) continue;
    if (s->scale != 1) r->affine(z, z, s->scale, 0, s->n);
    r->set(z, class, r->get(z, class) - s->scale);
  }
}

/* Checks that each label is a class, or ignored. *valid: number of labels that are not ignored. */
static int check_labels(const struct entropy_slab *s, int64_t m, int64_t *valid)
{
  *valid = 0;
  for (int64_t i = 0; i < m; i++) {
    int64_t k = whole_at(s->label, i);
    if (is_ignored(s->p, k)) continue;
    NEED(k >= 0 && k < s->n, TY_ERUN,
        "label %g at position %lld is not a class; expected 0 to %lld%s",
        number_at(s->label, i), (long long)i, (long long)s->n - 1,
        s->p->use_ignore ? ", or ignore_label" : "");
    ++*valid;
  }
  return TY_OK;
}

/* Computes loss and gradients of m rows from s->first on. */
static int slab_products(const struct call *c, const struct entropy_slab *s, int64_t m)
{
  const struct vec_ops *r = s->r;
  const int64_t k = s->k;
  const int type = gemm_type_for(c, r->dtype);
  const void *x = vec_at(r, s->x->p, s->first * k), *w = s->w->p;
  struct gemm_epilogue e = { .bias = s->bias ? s->bias->p : NULL };
  TRY(gemm_fused(type, false, true, m, s->n, k, x, k, w, k, s->z, s->n, &e));
  parallel_for(m, elements_ns(s->n * 8), rows_body, (void *)s);
  if (!s->wants_gradients) return TY_OK;
  const struct operand *out = c->out;
  if (out[1].p)
    TRY(gemm_one(type, false, false, m, k, s->n, 1, s->z, s->n, w, k, 0,
        vec_at(r, out[1].p, s->first * k), k));
  if (out[2].p)
    TRY(gemm_one(
        type, true, false, s->n, k, m, 1, s->z, s->n, x, k, s->first > 0, out[2].p, k));
  if (c->nout > 3 && out[3].p) sum_columns(r->dtype, m, s->n, s->z, out[3].p, s->first > 0);
  return TY_OK;
}

static int cross_forward(struct call *c)
{
  const struct cross *p = c->param;
  struct linear_sizes z = make_linear_sizes(&c->in[0].d, &c->in[1].d);
  struct entropy_slab s = { .p = p,
    .r = vec_ops_of(c->in[0].d.dtype),
    .x = &c->in[0],
    .w = &c->in[1],
    .bias = has_bias(p) ? &c->in[2] : NULL,
    .label = &c->in[c->nin - 1],
    .loss = &c->out[0],
    .n = z.n,
    .k = z.k,
    .z = c->tmp };
  int64_t valid, rows = slab_rows(z, s.r->size);
  TRY(check_labels(&s, z.m, &valid));
  s.scale = p->grad_scale /
      (p->normalization == PER_BATCH          ? (double)z.m
              : p->normalization == PER_VALID ? (double)MAX(valid, 1)
                                              : 1);
  for (int k = 1; k < c->nout; k++) {
    if (c->out[k].p && !c->run->is_train) memset(c->out[k].p, 0, desc_bytes(&c->out[k].d));
    s.wants_gradients |= c->out[k].p && c->run->is_train;
  }
  for (; s.first < z.m; s.first += rows) TRY(slab_products(c, &s, MIN(rows, z.m - s.first)));
  return TY_OK;
}

static size_t cross_scratch(const struct call *c)
{
  struct linear_sizes z = make_linear_sizes(&c->in[0].d, &c->in[1].d);
  size_t size = dtype_size(c->in[0].d.dtype);
  return (size_t)(slab_rows(z, size) * z.n) * size;
}

/* -- backward: in: the gradients that forward found -------------------------------------------- */

static int cross_backward(struct call *c)
{
  for (int k = 0; k < c->nin; k++) {
    struct operand *out = &c->out[k];
    if (!out->p || out->p == c->in[k].p) continue;
    if (c->add >> k & 1)
      add_to(out->d.dtype, desc_count(&out->d), c->in[k].p, out->p);
    else
      memcpy(out->p, c->in[k].p, desc_bytes(&out->d));
  }
  struct operand *label = &c->out[c->nin];
  if (label->p && !(c->add >> c->nin & 1)) memset(label->p, 0, desc_bytes(&label->d));
  return TY_OK;
}

static const struct kernel cpu[] = { { "slabs", cross_forward, T_FLOAT | T_INT, NULL, cross_scratch, .flags = K_PRECISION }, { 0 } };
static const struct kernel back_cpu[] = { { "copy", cross_backward, T_FLOAT | T_INT, .add = 7 }, { 0 } };

const struct op op_linear_cross_entropy[] = {
  { .name = "_contrib_linear_cross_entropy",
    .doc = "Cross entropy of softmax(data weight^T + bias) with the class numbers in label, one for each row; its gradient "
           "takes no head gradient. data (..., k), weight (num_hidden, k), bias (num_hidden,), label and output (...). The "
           "products of all rows are never in memory at once. A label that is no class is an error.",
    .in = "data weight bias label", .in_of = input_ports, .out = "output {data_grad} {weight_grad} {bias_grad}", .out_of = output_ports,
    .param = params, .param_size = sizeof(struct cross), .shape = cross_shape, .type = cross_type,
    .grad_of = gradient_reads, .flags = OP_WEIGHTED_LOSS, .back_inplace = "0=0 1=1 2=2", .cpu = cpu, .back_cpu = back_cpu },
  { 0 }
};
