/* matrices.c - operators that are products of matrices: FullyConnected, dot, batch_dot,
** _linalg_gemm2, _linalg_gemm, _linalg_syrk, each with its gradients. A kernel's state holds the
** plans of its products. */
#include "cuda/reduce.h"
#include "cuda/product.h"
#include "cuda/row.h"
#include "op/registry.h"

/* Two matrices, or sets of them, that an operator multiplies. */
struct matrices { int dtype; bool ta, tb; int64_t m, n, k, batch; double alpha; };
struct plans { struct product_plan *of[2]; struct product_with_sums weight; };

static size_t plans_size(const struct call *c) { return sizeof(struct plans); }

static void plans_done(void *state)
{
  struct plans *s = state;
  for (int i = 0; i < COUNT(s->of); i++) product_done(s->of[i]);
  product_done(s->weight.plan);
}

/* Returns the product op(A) (m x k) op(B) (k x n) of dense matrices. */
static struct product make_product(
    const struct matrices *s, bool ta, bool tb, int64_t m, int64_t n, int64_t k, bool add)
{
  return (struct product){ .dtype = s->dtype, .ta = ta, .tb = tb, .m = m, .n = n, .k = k,
    .lda = ta ? m : k, .ldb = tb ? k : n, .ldc = n, .batch = s->batch, .stride_a = m * k,
    .stride_b = k * n, .stride_c = m * n, .alpha = s->alpha, .beta = add };
}

static struct product forward_product(const struct matrices *s)
{
  return make_product(s, s->ta, s->tb, s->m, s->n, s->k, false);
}

/* Returns dA = alpha G op(B)^T, or transposed alpha op(B) G^T. */
static struct product first_gradient(const struct matrices *s, bool add)
{
  return s->ta ? make_product(s, s->tb, true, s->k, s->m, s->n, add)
               : make_product(s, false, !s->tb, s->m, s->k, s->n, add);
}

static struct product second_gradient(const struct matrices *s, bool add)
{
  return s->tb ? make_product(s, true, s->ta, s->n, s->k, s->m, add)
               : make_product(s, !s->ta, false, s->k, s->n, s->m, add);
}

/* -- the matrices of a call -------------------------------------------------------------------- */

static struct matrices linear_pair(const struct call *c, const ty_desc *x, const ty_desc *w)
{
  struct matrices s = { .dtype = w->dtype, .tb = true, .n = w->dim[0], .k = w->dim[1], .batch = 1,
    .alpha = 1 };
  s.m = desc_count(x) / s.k;
  return s;
}

static struct matrices dot_pair(const struct call *c, const ty_desc *a, const ty_desc *b)
{
  struct matrices s = { .dtype = a->dtype, .ta = cuda_flag(c, "transpose_a"),
    .tb = cuda_flag(c, "transpose_b"), .batch = 1, .alpha = 1 };
  s.k = a->dim[s.ta ? 0 : a->ndim - 1];
  s.m = desc_count(a) / s.k;
  s.n = desc_count(b) / s.k;
  return s;
}

static struct matrices batch_pair(const struct call *c, const ty_desc *a, const ty_desc *b)
{
  struct matrices s = { .dtype = a->dtype, .ta = cuda_flag(c, "transpose_a"),
    .tb = cuda_flag(c, "transpose_b"), .alpha = cuda_number(c, "alpha", 1) };
  s.m = a->dim[a->ndim - (s.ta ? 1 : 2)];
  s.k = a->dim[a->ndim - (s.ta ? 2 : 1)];
  s.n = b->dim[b->ndim - (s.tb ? 2 : 1)];
  s.batch = desc_count(a) / (s.m * s.k);
  return s;
}

enum { BATCHED, LINEAR, DOT, PRODUCT_SUM };

/* Returns both matrices. first: the index of A among the inputs. */
static struct matrices make_pair(const struct call *c, int first)
{
  const ty_desc *a = &c->in[first].d, *b = &c->in[first + 1].d;
  if (cuda_what(c) == LINEAR) return linear_pair(c, a, b);
  return cuda_what(c) == DOT ? dot_pair(c, a, b) : batch_pair(c, a, b);
}

static const char *refuse_axis(const struct call *c)
{
  return cuda_number(c, "axis", -2) != -2
      ? "rows on another axis than the last but one"
      : NULL;
}

/* Returns whether the product is added to beta C, as _linalg_gemm does. */
static bool adds_matrix(const struct call *c) { return cuda_what(c) == PRODUCT_SUM; }

/* -- forward ----------------------------------------------------------------------------------- */

static struct product whole_product(const struct call *c)
{
  struct matrices s = make_pair(c, 0);
  struct product p = forward_product(&s);
  const struct fused_op *sum = find_fused(c, POST_ADD);
  p.biased = cuda_what(c) == LINEAR && (sum ? sum->operand : c->nin) > 2;
  p.onto = sum ? c->in[sum->operand].p : NULL;
  p.beta = sum != NULL;
  p.relu = fused_act(c) == ACT_RELU;
  if (adds_matrix(c)) p.beta = 1;
  return p;
}

static const char *forward_refuse(const struct call *c)
{
  const char *no = refuse_axis(c);
  struct product p = whole_product(c);
  return no ? no : product_refuse(c, &p);
}

static size_t forward_scratch(const struct call *c)
{
  struct product p = whole_product(c);
  return product_workspace(c, &p);
}

static int multiply_forward(struct call *c)
{
  struct product p = whole_product(c);
  struct plans *s = c->state;
  if (adds_matrix(c)) TRY(cuda_times(c, &c->out[0], &c->in[2], cuda_number(c, "beta", 1), false));
  return product_run(c, &p, &s->of[0], c->in[0].p, c->in[1].p,
      p.biased ? c->in[2].p : NULL, c->out[0].p, c->tmp);
}

/* -- backward: in: gradient of the output, A, B; out: gradients of A, B, bias ------------------ */

/* Returns the number of inputs that are the operator's own. */
static int own_inputs(const struct call *c)
{
  const struct fused_op *slope = find_fused(c, POST_DATA_GRAD);
  return slope ? slope->operand : c->nin;
}

enum {
  /* rows and columns of a block's tile in act_product.cu, products of a slab */
  TILE = 32,
  /* Limits for act_product.cu: tiles per multiprocessor, and products per element. By the rate of
  ** shared memory two blocks take 0.6 us per slab at 1.7 GHz, so all slabs take no longer than a
  ** library's kernel, about 3 us. Not measured. */
  MOST_TILES = 2,
  MOST_DEPTH = 128,
};

static int64_t count_tiles(const struct matrices *s)
{
  return (s->m + TILE - 1) / TILE * ((s->k + TILE - 1) / TILE);
}

/* Returns whether act_product.cu computes the gradient of FullyConnected's data, A: if it is small.
** The kernel can include the gradient of the activation that made A; it is also used without one,
** so that the bits are the same. */
static bool makes_product(const struct call *c, const struct matrices *s)
{
  return cuda_what(c) == LINEAR && s->n <= MOST_DEPTH &&
      count_tiles(s) <= MOST_TILES * cuda_device(c->device)->processors;
}

static bool has_bias(const struct call *c) { return c->nout > 2 && !adds_matrix(c); }

static const char *backward_refuse(const struct call *c)
{
  const char *no = own_inputs(c) > 3 ? "more than one product" : refuse_axis(c);
  struct matrices s = make_pair(c, 1);
  struct product a = first_gradient(&s, c->add & 1), b = second_gradient(&s, c->add >> 1 & 1);
  if (!no && !makes_product(c, &s)) no = product_refuse(c, &a);
  return no ? no : product_refuse(c, &b);
}

static size_t backward_scratch(const struct call *c)
{
  struct matrices s = make_pair(c, 1);
  struct product a = first_gradient(&s, c->add & 1), b = second_gradient(&s, c->add >> 1 & 1);
  size_t first = makes_product(c, &s) ? 0 : product_workspace(c, &a);
  return MAX(first, has_bias(c) ? product_sums_workspace(c, &b)
                                : product_workspace(c, &b));
}

/* Computes the gradient of FullyConnected's bias alone. */
static int bias_gradient(struct call *c, const struct matrices *s)
{
  const struct reduce r = cuda_reduce_all_but(s->dtype, s->m, s->n, 1);
  const struct cuda_reduce f = { R_SUM, F_NONE, s->dtype, c->in[0].p, .y = c->out[2].p,
    .add = c->add >> 2 & 1 };
  return cuda_reduce(c->device, &r, &f, c->tmp);
}

/* -- FullyConnected's data gradient by act_product.cu ------------------------------------------ */

/* Computes the product, and multiplies it by the derivative of an activation, unless `slope` is
** NULL. */
static int make_small_product(
    const struct call *c, const struct matrices *s, const struct fused_op *slope)
{
  int64_t rows = s->m, columns = s->k, depth = s->n;
  return cuda_start_words(c, FAMILY_act_product, "act_product", count_tiles(s) * CUDA_BLOCK,
      (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[2].p, &c->in[1].p, &rows, &columns, &depth },
      "T=%s ACT=%d ADD=%d", cuda_type(s->dtype), slope ? slope->act : ACT_NONE, c->add & 1);
}

/* Multiplies the product in place by the derivative. */
static int apply_slope(const struct call *c, const struct fused_op *slope)
{
  const struct operand *y = &c->in[slope->operand];
  void *arrays[] = { c->out[0].p, y->p };
  const int64_t n = desc_count(&y->d);
  const int pack = cuda_pack(y->d.dtype, n, arrays, COUNT(arrays));
  int64_t packs = n / pack;
  return cuda_start_words(c, FAMILY_act_product, "act_back", packs,
      (void *[]){ &arrays[0], &arrays[1], &packs }, "T=%s ACT=%d ADD=0 PACK=%d",
      cuda_type(y->d.dtype), slope->act, pack);
}

/* Computes the gradient of A from a and b; last, as it may share the memory of A. */
static int first_backward(struct call *c, const struct matrices *s, const void *a, const void *b)
{
  const struct product p = first_gradient(s, c->add & 1);
  const struct fused_op *slope = find_fused(c, POST_DATA_GRAD);
  struct plans *plans = c->state;
  if (!c->out[0].p) return TY_OK;
  if (makes_product(c, s)) return make_small_product(c, s, slope);
  TRY(product_run(c, &p, &plans->of[0], a, b, NULL, c->out[0].p, c->tmp));
  return slope ? apply_slope(c, slope) : TY_OK;
}

static int multiply_backward(struct call *c)
{
  struct matrices s = make_pair(c, 1);
  struct plans *plans = c->state;
  struct product p = second_gradient(&s, c->add >> 1 & 1);
  const void *g = c->in[0].p, *a = c->in[1].p, *b = c->in[2].p;
  void *bias = has_bias(c) ? c->out[2].p : NULL;
  if (c->out[1].p && bias)
    TRY(product_run_sums(c, &p, &plans->weight, g, a, c->out[1].p, bias, c->add >> 2 & 1,
        c->tmp));
  else if (c->out[1].p)
    TRY(product_run(c, &p, &plans->of[1], s.tb ? g : a, s.tb ? a : g, NULL, c->out[1].p,
        c->tmp));
  else if (bias)
    TRY(bias_gradient(c, &s));
  if (adds_matrix(c))
    TRY(cuda_times(c, &c->out[2], &c->in[0], cuda_number(c, "beta", 1), c->add >> 2 & 1));
  return first_backward(c, &s, s.ta ? b : g, s.ta ? g : b);
}

/* -- _linalg_syrk: alpha A A^T, or alpha A^T A ------------------------------------------------- */

/* Returns the product of A: (..., rows, columns); its gradient: alpha (G A + G^T A), or alpha (A G
** + A G^T). */
static struct product square_product(const struct call *c, const ty_desc *a, int which)
{
  bool t = cuda_flag(c, "transpose");
  int64_t rows = a->dim[a->ndim - 2], columns = a->dim[a->ndim - 1], side = t ? columns : rows;
  struct matrices s = { .dtype = a->dtype, .batch = desc_count(a) / (rows * columns),
    .alpha = cuda_number(c, "alpha", 1) };
  if (which == 0) return make_product(&s, t, !t, side, side, t ? rows : columns, false);
  bool turned = which == 2;
  return make_product(&s, !t && turned, t && turned, rows, columns, side, turned);
}

static const char *square_refuse(const struct call *c)
{
  struct product p = square_product(c, &c->in[0].d, 0);
  return product_refuse(c, &p);
}
static size_t square_scratch(const struct call *c)
{
  struct product p = square_product(c, &c->in[0].d, 0);
  return product_workspace(c, &p);
}
static int multiply_transpose(struct call *c)
{
  struct product p = square_product(c, &c->in[0].d, 0);
  struct plans *s = c->state;
  return product_run(c, &p, &s->of[0], c->in[0].p, c->in[0].p, NULL, c->out[0].p, c->tmp);
}

/* Refuses what product_refuse does. in: head gradient, A. */
static const char *square_back_refuse(const struct call *c)
{
  struct product p = square_product(c, &c->in[1].d, 1);
  return product_refuse(c, &p);
}
static size_t square_back_scratch(const struct call *c)
{
  struct product p = square_product(c, &c->in[1].d, 1), q = square_product(c, &c->in[1].d, 2);
  return MAX(product_workspace(c, &p), product_workspace(c, &q));
}
static int square_back(struct call *c)
{
  bool t = cuda_flag(c, "transpose");
  struct plans *s = c->state;
  const void *g = c->in[0].p, *a = c->in[1].p;
  for (int i = 0; c->out[0].p && i < 2; i++) {
    struct product p = square_product(c, &c->in[1].d, 1 + i);
    TRY(product_run(c, &p, &s->of[i], t ? a : g, t ? g : a, NULL, c->out[0].p, c->tmp));
  }
  return TY_OK;
}

/* -- the table --------------------------------------------------------------------------------- */

enum { TYPES = T(TY_F32) | T(TY_F64) | T(TY_F16) | T(TY_BF16) };
static const struct kernel linear[] = {
  { "cublaslt", multiply_forward, TYPES, forward_refuse, forward_scratch, plans_size, plans_done,
    .flags = K_PRECISION, .fuses = CAN(POST_ACT) | CAN(POST_ADD) },
  { 0 }
};
static const struct kernel product[] = {
  { "cublaslt", multiply_forward, TYPES, forward_refuse, forward_scratch, plans_size, plans_done,
    .flags = K_PRECISION },
  { 0 }
};
static const struct kernel linear_back[] = {
  { "cublaslt", multiply_backward, TYPES, backward_refuse, backward_scratch, plans_size,
    plans_done, 7, K_PRECISION, .fuses = CAN(POST_DATA_GRAD) },
  { 0 }
};
static const struct kernel product_back[] = {
  { "cublaslt", multiply_backward, TYPES, backward_refuse, backward_scratch, plans_size,
    plans_done, 3, K_PRECISION },
  { 0 }
};
static const struct kernel squares[] = {
  { "cublaslt", multiply_transpose, TYPES, square_refuse, square_scratch, plans_size, plans_done,
    .flags = K_PRECISION },
  { 0 }
};
static const struct kernel squares_back[] = {
  { "cublaslt", square_back, TYPES, square_back_refuse, square_back_scratch, plans_size,
    plans_done, .flags = K_PRECISION },
  { 0 }
};
static const struct kernel sum_back[] = {
  { "cublaslt", multiply_backward, TYPES, backward_refuse, backward_scratch, plans_size,
    plans_done, 7, K_PRECISION },
  { 0 }
};
const struct op_kernels cuda_matrices[] = {
  { "FullyConnected", linear, linear_back, LINEAR },
  { "dot", product, product_back, DOT },
  { "batch_dot", product, product_back },
  { "_linalg_gemm2", product, product_back },
  { "_linalg_gemm", product, sum_back, PRODUCT_SUM },
  { "_linalg_syrk", squares, squares_back },
  { 0 }
};
