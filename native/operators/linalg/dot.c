/* dot.c - products of matrices as operators: dot, batch_dot, _linalg_gemm, _linalg_gemm2,
** khatri_rao.
**
** All are sets of products C = alpha op(A) op(B) + beta C of equal size. A matrix of r rows and c
** columns begins at o * r * inner * c + i * c for outer index o and inner index i, with rows inner
** * c apart (inner is 1 unless rows are not on the last axis but one). Gradients are such products,
** too:
**   dA = alpha G op(B)^T   or, with A transposed, alpha op(B) G^T
**   dB = alpha op(A)^T G   or, with B transposed, alpha G^T op(A)
*/
#include "kernel/gemm/gemm.h"
#include "op/op.h"

/* type: gemm type of its products */
struct set { int dtype, type; bool ta, tb; int64_t outer, inner, m, n, k; double alpha; };

/* Multiplies op(A), m x k, and op(B), k x n. */
static int multiply_set(const struct set *s, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
    const void *a, const void *b, double beta, void *c)
{
  const size_t size = dtype_size(s->dtype);
  if (s->inner == 1)
    return gemm_batch(
        s->type, ta, tb, s->outer, m, n, k, s->alpha, a, m * k, b, k * n, beta, c, m * n);
  for (int64_t o = 0; o < s->outer; o++)
    for (int64_t i = 0; i < s->inner; i++) {
      int64_t ca = ta ? m : k, cb = tb ? k : n; /* columns in memory */
      const char *pa = (const char *)a + (size_t)(o * m * k * s->inner + i * ca) * size;
      const char *pb = (const char *)b + (size_t)(o * k * n * s->inner + i * cb) * size;
      char *pc = (char *)c + (size_t)(o * m * n * s->inner + i * n) * size;
      TRY(gemm_one(s->type, ta, tb, m, n, k, s->alpha, pa, s->inner * ca, pb, s->inner * cb, beta,
          pc, s->inner * n));
    }
  return TY_OK;
}

/* Computes the gradients of A and B. in: gradient of the product, A, B. */
static int multiply_back(const struct set *s, struct call *c)
{
  const void *g = c->in[0].p, *a = c->in[1].p, *b = c->in[2].p;
  void *da = c->out[0].p, *db = c->out[1].p;
  double add_a = c->add & 1, add_b = c->add >> 1 & 1;
  if (da && !s->ta) TRY(multiply_set(s, false, !s->tb, s->m, s->k, s->n, g, b, add_a, da));
  if (da && s->ta) TRY(multiply_set(s, s->tb, true, s->k, s->m, s->n, b, g, add_a, da));
  if (db && !s->tb) TRY(multiply_set(s, !s->ta, false, s->k, s->n, s->m, a, g, add_b, db));
  if (db && s->tb) TRY(multiply_set(s, true, s->ta, s->n, s->k, s->m, g, a, add_b, db));
  return TY_OK;
}

/* -- dot --------------------------------------------------------------------------------------- */

struct dot { int64_t transpose_a, transpose_b, forward_stype; };

#define STORAGE_HELP "storage type of the output; arrays are dense here: without effect"
#define STORAGES "default|row_sparse|csr"
static const struct param dot_params[] = {
  { "transpose_a",   P_BOOL, offsetof(struct dot, transpose_a),   "0",    "lhs: its first axis, not its last" },
  { "transpose_b",   P_BOOL, offsetof(struct dot, transpose_b),   "0",    "rhs: its last axis, not its first" },
  { "forward_stype", P_ENUM, offsetof(struct dot, forward_stype), "None", STORAGE_HELP, STORAGES, NULL, 1 },
  { 0 }
};

static int inner_sizes(struct infer *s, ty_desc *a, int i, ty_desc *b, int j)
{
  if (a->dim[i] && b->dim[j] && a->dim[i] != b->dim[j])
    return infer_fail(s, TY_ESHAPE, b,
        "axis %d has %lld elements, but the axis of %s that it meets has %lld", j,
        (long long)b->dim[j], a == &s->in[0] ? "the first input" : "the second input",
        (long long)a->dim[i]);
  TRY(shape_dim(s, a, i, b->dim[j]));
  return shape_dim(s, b, j, a->dim[i]);
}

static int dot_shape(struct infer *s)
{
  const struct dot *p = s->param;
  ty_desc *a = &s->in[0], *b = &s->in[1];
  if (!a->ndim || !b->ndim) return TY_OK;
  int ka = p->transpose_a ? 0 : a->ndim - 1, kb = p->transpose_b ? b->ndim - 1 : 0, n = 0;
  TRY(inner_sizes(s, a, ka, b, kb));
  int64_t dim[2 * TY_MAXDIM] = { 1 };
  for (int i = 0; i < a->ndim; i++)
    if (i != ka) dim[n++] = a->dim[i];
  for (int i = 0; i < b->ndim; i++)
    if (i != kb) dim[n++] = b->dim[i];
  return shape_is(s, &s->out[0], MAX(n, 1), dim);
}

static struct set dot_set(const struct call *c, const ty_desc *a, const ty_desc *b)
{
  const struct dot *p = c->param;
  struct set s = { .dtype = a->dtype,
    .type = gemm_type_for(c, a->dtype),
    .ta = p->transpose_a,
    .tb = p->transpose_b,
    .outer = 1,
    .inner = 1,
    .alpha = 1 };
  s.k = a->dim[s.ta ? 0 : a->ndim - 1];
  s.m = desc_count(a) / s.k;
  s.n = desc_count(b) / s.k;
  return s;
}

/* A matrix that is multiplied by several rows, and does not change between runs, is packed once. */
enum {
  KEPT_MIN_ROWS     = 4,       /* least rows of the other side */
  KEPT_MATRIX_BYTES = 4 << 20, /* most bytes of the matrix */
};

static bool keeps_matrix(const struct call *c, const struct set *s)
{
  const struct operand *b = &c->in[1];
  return c->state && !c->trains && b->version && b->d.ndim == 2 && !s->ta &&
      s->m >= KEPT_MIN_ROWS && desc_bytes(&b->d) <= KEPT_MATRIX_BYTES;
}

static int dot_run(struct call *c)
{
  struct set s = dot_set(c, &c->in[0].d, &c->in[1].d);
  if (keeps_matrix(c, &s)) {
    const void *packed =
        gemm_keep(c->state, s.type, &c->in[1], s.tb, s.n, s.k, s.tb ? s.k : s.n);
    NEED(packed, TY_EMEMORY, "out of memory: packed matrix of %lld bytes",
        (long long)gemm_pack_bytes(s.type, s.n, s.k));
    return gemm_packed(
        s.type, false, s.m, s.n, s.k, c->in[0].p, s.k, packed, c->out[0].p, s.n, NULL);
  }
  return multiply_set(&s, s.ta, s.tb, s.m, s.n, s.k, c->in[0].p, c->in[1].p, 0, c->out[0].p);
}

static int dot_back(struct call *c)
{
  struct set s = dot_set(c, &c->in[1].d, &c->in[2].d);
  return multiply_back(&s, c);
}

/* -- sets of matrices: batch_dot, gemm2, gemm -------------------------------------------------- */

struct gemm_param {
  int64_t transpose_a, transpose_b, forward_stype, axis;
  double alpha, beta;
  /* least number of leading axes; set by the check of batch_dot */
  int64_t leading;
};

static const struct param batch_params[] = {
  { "transpose_a",   P_BOOL, offsetof(struct gemm_param, transpose_a),   "0",    "matrices of lhs are transposed" },
  { "transpose_b",   P_BOOL, offsetof(struct gemm_param, transpose_b),   "0",    "matrices of rhs are transposed" },
  { "forward_stype", P_ENUM, offsetof(struct gemm_param, forward_stype), "None", STORAGE_HELP, STORAGES, NULL, 1 },
  { 0 }
};

#define GEMM_PARAMS \
  { "transpose_a", P_BOOL,  offsetof(struct gemm_param, transpose_a), "0", \
    "matrices of A are transposed" }, \
  { "transpose_b", P_BOOL,  offsetof(struct gemm_param, transpose_b), "0", \
    "matrices of B are transposed" }, \
  { "alpha",       P_FLOAT, offsetof(struct gemm_param, alpha),       "1", \
    "factor of the product" }, \
  { "axis",        P_INT,   offsetof(struct gemm_param, axis),        "-2", \
    "axis of the rows; columns are the last" }
static const struct param gemm2_params[] = { GEMM_PARAMS, { 0 } };
static const struct param gemm_params[] = {
  GEMM_PARAMS,
  { "beta",        P_FLOAT, offsetof(struct gemm_param, beta),        "1",  "factor of C" },
  { 0 }
};

/* Sets axis and alpha, which batch_dot does not have, to the defaults of gemm. */
static int batch_check(void *param)
{
  struct gemm_param *p = param;
  p->axis = -2;
  p->alpha = 1;
  p->leading = 1;
  return TY_OK;
}

static struct attention_part attention_product(const void *param, int ndim)
{
  const struct gemm_param *p = param;
  (void)ndim;
  return (struct attention_part){ ATTENTION_PRODUCT, .ta = p->transpose_a, .tb = p->transpose_b };
}

static int set_shape(struct infer *s)
{
  const struct gemm_param *p = s->param;
  ty_desc *a = &s->in[0], *b = &s->in[1];
  if (!a->ndim || !b->ndim) return TY_OK;
  int n = a->ndim, least = 2 + (int)p->leading, r;
  if (n != b->ndim || n < least)
    return infer_fail(s, TY_ESHAPE, b,
        "expected %d or more dimensions, as many on both sides; got %d and %d", least, n, b->ndim);
  TRY(infer_axis(s, p->axis, n, &r));
  if (r == n - 1)
    return infer_fail(s, TY_EVALUE, NULL, "axis %d is the last one, which holds the columns", r);
  int64_t dim[TY_MAXDIM];
  for (int i = 0; i < n - 1; i++)
    if (i != r) {
      TRY(shape_dim(s, a, i, b->dim[i]));
      TRY(shape_dim(s, b, i, a->dim[i]));
    }
  TRY(inner_sizes(s, a, p->transpose_a ? r : n - 1, b, p->transpose_b ? n - 1 : r));
  memcpy(dim, a->dim, sizeof dim);
  dim[r] = a->dim[p->transpose_a ? n - 1 : r];
  dim[n - 1] = b->dim[p->transpose_b ? r : n - 1];
  TRY(shape_is(s, &s->out[0], n, dim));
  return s->nin > 2 ? shape_both(s, &s->in[2], &s->out[0]) : TY_OK;
}

static struct set make_set(const struct call *c, const ty_desc *a, const ty_desc *b)
{
  const struct gemm_param *p = c->param;
  int last = a->ndim - 1, row = axis_in(p->axis, a->ndim);
  struct set s = { .dtype = a->dtype,
    .type = gemm_type_for(c, a->dtype),
    .ta = p->transpose_a,
    .tb = p->transpose_b,
    .outer = 1,
    .inner = 1,
    .alpha = p->alpha };
  for (int i = 0; i < last; i++)
    if (i != row) *(i < row ? &s.outer : &s.inner) *= a->dim[i];
  s.m = a->dim[s.ta ? last : row];
  s.k = a->dim[s.ta ? row : last];
  s.n = b->dim[s.tb ? row : last];
  return s;
}

static int set_forward(struct call *c)
{
  struct set s = make_set(c, &c->in[0].d, &c->in[1].d);
  return multiply_set(&s, s.ta, s.tb, s.m, s.n, s.k, c->in[0].p, c->in[1].p, 0, c->out[0].p);
}

static int set_back(struct call *c)
{
  struct set s = make_set(c, &c->in[1].d, &c->in[2].d);
  return multiply_back(&s, c);
}

/* Computes out = factor x, or +=. */
static void scale_into(const struct operand *out, const struct operand *x, double factor, bool add)
{
  int64_t n = desc_count(&x->d);
  for (int64_t i = 0; i < n; i++)
    if (x->d.dtype == TY_F64)
      ((double *)out->p)[i] = (add ? ((double *)out->p)[i] : 0) +
          factor * ((const double *)x->p)[i];
    else
      ((float *)out->p)[i] = (add ? ((float *)out->p)[i] : 0) +
          (float)factor * ((const float *)x->p)[i];
}

static int gemm_forward(struct call *c)
{
  const struct gemm_param *p = c->param;
  struct set s = make_set(c, &c->in[0].d, &c->in[1].d);
  scale_into(&c->out[0], &c->in[2], p->beta, false);
  return multiply_set(&s, s.ta, s.tb, s.m, s.n, s.k, c->in[0].p, c->in[1].p, 1, c->out[0].p);
}

static int gemm_back(struct call *c)
{
  const struct gemm_param *p = c->param;
  if (c->out[2].p) scale_into(&c->out[2], &c->in[0], p->beta, c->add >> 2 & 1);
  return set_back(c);
}

/* -- khatri_rao: column j of the output is the Kronecker product of the columns j of all inputs  */

struct khatri { int64_t num_args; };
static const struct param khatri_params[] = {
  { "num_args", P_INT, offsetof(struct khatri, num_args), NULL, "number of inputs", NULL, INPUTS_RANGE },
  { 0 }
};

static int khatri_shape(struct infer *s)
{
  int64_t rows = 1, cols = s->out[0].ndim == 2 ? s->out[0].dim[1] : 0;
  for (int i = 0; i < s->nin; i++)
    if (s->in[i].ndim == 2 && s->in[i].dim[1]) cols = s->in[i].dim[1];
  for (int i = 0; i < s->nin; i++) {
    TRY(shape_is(s, &s->in[i], 2, (int64_t[]){ 0, cols }));
    rows *= s->in[i].dim[0];
  }
  return shape_is(s, &s->out[0], 2, (int64_t[]){ rows, cols });
}

static int khatri_run(struct call *c)
{
  int64_t rows = c->out[0].d.dim[0], cols = c->out[0].d.dim[1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < cols; j++) {
      double y = 1;
      int64_t rest = r;
      for (int i = c->nin - 1; i >= 0; i--) {
        int64_t at = rest % c->in[i].d.dim[0] * cols + j;
        rest /= c->in[i].d.dim[0];
        y *= c->in[i].d.dtype == TY_F64 ? ((const double *)c->in[i].p)[at]
                                        : (double)((const float *)c->in[i].p)[at];
      }
      if (c->out[0].d.dtype == TY_F64)
        ((double *)c->out[0].p)[r * cols + j] = y;
      else
        ((float *)c->out[0].p)[r * cols + j] = (float)y;
    }
  return TY_OK;
}

/*                                           name      run          types                    add */
static const struct kernel dot_cpu[]     = { { "gemm",  dot_run,          T_FLOAT, .state = gemm_kept_bytes, .done = gemm_kept_done,
  .flags = K_PRECISION }, { 0 } };
static const struct kernel dot_back_k[]  = { { "gemm",  dot_back,     T_FLOAT, .flags = K_PRECISION, .add = 3 }, { 0 } };
static const struct kernel set_cpu[]     = { { "gemm",  set_forward,  T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel set_back_k[]  = { { "gemm",  set_back,     T_FLOAT, .flags = K_PRECISION, .add = 3 }, { 0 } };
static const struct kernel gemm_cpu[]    = { { "gemm",  gemm_forward, T_FLOAT, .flags = K_PRECISION }, { 0 } };
static const struct kernel gemm_back_k[] = { { "gemm",  gemm_back,    T_FLOAT, .flags = K_PRECISION, .add = 7 }, { 0 } };
static const struct kernel khatri_cpu[]  = { { "loops", khatri_run,       T_FLOAT }, { 0 } };

const struct op op_dot[] = { {
  .name = "dot", .alias = "_sparse_dot",
  .doc = "Contracts the last axis of lhs with the first of rhs; output (lhs without it, rhs without it), "
         "(1,) for two vectors. Gradients of both.",
  .in = "lhs rhs", .out = "output", .param = dot_params, .param_size = sizeof(struct dot), .shape = dot_shape,
  .grad = "g0 i0 i1", .cpu = dot_cpu, .back_cpu = dot_back_k,
}, {
  .name = "batch_dot", .alias = "_npx_batch_dot",
  .doc = "Products of matrices: lhs (..., m, k), rhs (..., k, n), output (..., m, n); at least one leading axis. "
         "Gradients of both.",
  .in = "lhs rhs", .out = "output", .param = batch_params, .param_size = sizeof(struct gemm_param), .check = batch_check,
  .shape = set_shape, .grad = "g0 i0 i1", .cpu = set_cpu, .back_cpu = set_back_k, .attention = attention_product,
}, {
  .name = "_linalg_gemm2", .alias = "linalg_gemm2", .back = "_backward_linalg_gemm2",
  .doc = "output = alpha op(A) op(B) over leading axes; A (..., m, k), B (..., k, n). Gradients of both.",
  .in = "A B", .out = "output", .param = gemm2_params, .param_size = sizeof(struct gemm_param), .shape = set_shape,
  .grad = "g0 i0 i1", .cpu = set_cpu, .back_cpu = set_back_k,
}, {
  .name = "_linalg_gemm", .alias = "linalg_gemm", .back = "_backward_linalg_gemm",
  .doc = "output = alpha op(A) op(B) + beta C over leading axes; C (..., m, n). Gradients of A, B and C.",
  .in = "A B C", .out = "output", .param = gemm_params, .param_size = sizeof(struct gemm_param), .shape = set_shape,
  .grad = "g0 i0 i1", .cpu = gemm_cpu, .back_cpu = gemm_back_k,
}, {
  .name = "khatri_rao",
  .doc = "Column-wise Kronecker product of matrices (rows_i, n): output (product of rows_i, n). No gradient.",
  .in = "arg*num_args", .out = "output", .param = khatri_params, .param_size = sizeof(struct khatri),
  .shape = khatri_shape,
  .cpu = khatri_cpu,
}, { 0 } };
