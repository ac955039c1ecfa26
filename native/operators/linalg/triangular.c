/* triangular.c - operators around triangular factors: potrf, potri, trmm, trsm, syrk.
**
** With factor L (lower) or U (upper), head gradient G, tri() the triangle that is read, mirror()
** it copied over the other:
**   potrf  A = L L^T             dA = 1/2 L^-T mirror(L^T G) L^-1,  1/2 U^-1 mirror(G U^T) U^-T
**   potri  B = (L L^T)^-1        dL = -tri(B (G + G^T) L^-T),       dU = -tri(U^-T (G + G^T) B)
**   trmm   Y = a op(A) B         dB = a op(A)^T G,   dop(A) = a tri(G B^T)   mirrored for B op(A)
**   trsm   X = a op(A)^-1 B      dB = a W, dop(A) = -tri(W X^T), W = op(A)^-T G
**   syrk   Y = a A A^T           dA = a (G + G^T) A
*/
#include "op/op.h"
#include "operators/linalg/linalg.h"

/* -- shared ------------------------------------------------------------------------------------ */

int matrix_check(struct infer *s, const ty_desc *d)
{
  if (d->ndim == 1)
    return infer_fail(s, TY_ESHAPE, d, "expected matrices: two dimensions or more, got 1");
  for (int i = MAX(d->ndim - 2, 0); i < d->ndim; i++)
    if (d->dim[i] > INT32_MAX / 64)
      return infer_fail(s, TY_ESHAPE, d, "a matrix of %lld rows or columns; at most %d",
          (long long)d->dim[i], INT32_MAX / 64);
  return TY_OK;
}

int square_check(struct infer *s, ty_desc *d)
{
  TRY(matrix_check(s, d));
  if (!d->ndim) return TY_OK;
  int64_t rows = row_count(d), columns = column_count(d);
  if (rows && columns && rows != columns)
    return infer_fail(s, TY_ESHAPE, d, "expected square matrices, got %lld rows and %lld columns",
        (long long)rows, (long long)columns);
  d->dim[d->ndim - 2] = d->dim[d->ndim - 1] = MAX(rows, columns);
  return TY_OK;
}

int stack_report(int64_t bad, const char *what)
{
  if (bad < 0) return bad == STACK_REFUSED ? TY_EMEMORY : TY_OK;
  return fail(TY_ERUN, "matrix %lld %s", (long long)bad, what);
}

int products_report(int64_t bad)
{
  if (bad < 0) return bad == STACK_REFUSED ? TY_EMEMORY : TY_OK;
  return fail(TY_EMEMORY, "out of memory for the products of matrix %lld", (long long)bad);
}

/* Infers squares of one size, for potrf and potri. */
static int square_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  TRY(square_check(s, &s->in[0]));
  return shape_both(s, &s->in[0], &s->out[0]);
}

static void copy_bytes(void *to, const void *from, size_t bytes)
{
  if (to != from) memcpy(to, from, bytes);
}

/* What becomes of the other triangle of a result: 0, or the mirror image. */
enum { ZERO, MIRROR };
static void keep_triangle(int dtype, bool lower, int other, double factor, int64_t n, void *x)
{
  const struct vec_ops *r = vec_ops_of(dtype);
  for (int64_t i = 0; i < n; i++) r->affine(vec_at(r, x, i * n), vec_at(r, x, i * n), factor, 0, n);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      int64_t low = i * n + j, high = j * n + i;
      r->set(x, lower ? high : low, other == ZERO ? 0 : r->get(x, lower ? low : high));
    }
}

/* Computes y = x + x^T. */
static void add_transpose(int dtype, int64_t n, const void *x, void *y)
{
  const struct vec_ops *r = vec_ops_of(dtype);
  r->transpose(y, x, n, n);
  for (int64_t i = 0; i < n; i++) r->add(vec_at(r, y, i * n), vec_at(r, x, i * n), n);
}

static double cubic_cost(const ty_desc *d)
{
  return (double)column_count(d) * (double)column_count(d) * (double)row_count(d);
}

/* -- Cholesky ---------------------------------------------------------------------------------- */

struct triangle { int64_t lower, transpose, rightside; double alpha; };
#define FIELD(f) offsetof(struct triangle, f)
static const struct param factor_params[] = {
  { "lower", P_BOOL, FIELD(lower), "1", "the factor is a lower triangle, else an upper one" },
  { 0 }
};

static int potrf_one(struct call *c, int64_t i, void *work)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[0].d;
  copy_bytes(matrix_of(&c->out[0], i), matrix_of(&c->in[0], i), matrix_bytes(d));
  return cholesky_factor(d->dtype, p->lower, row_count(d), matrix_of(&c->out[0], i));
}

static int potrf_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return stack_report(
      stack_run(c, stack_count(d), cubic_cost(d), 0, potrf_one), "is not positive definite");
}

/* Computes the gradient of one matrix. in: head gradient, the factor. */
static int potrf_back_one(struct call *c, int64_t i, void *work)
{
  const bool lower = ((const struct triangle *)c->param)->lower;
  const ty_desc *d = &c->out[0].d;
  const int type = d->dtype;
  const int64_t n = row_count(d);
  const void *l = matrix_of(&c->in[1], i);
  void *x = matrix_of(&c->out[0], i);
  copy_bytes(x, matrix_of(&c->in[0], i), matrix_bytes(d));
  triangle_multiply(type, !lower, lower, true, n, n, 1, l, x);
  keep_triangle(type, lower, MIRROR, 0.5, n, x);
  triangle_solve(type, false, lower, lower, n, n, 1, l, x);
  triangle_solve(type, true, lower, !lower, n, n, 1, l, x);
  return 0;
}

static int potrf_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(stack_run(c, stack_count(d), cubic_cost(d), 0, potrf_back_one));
}

static int potri_one(struct call *c, int64_t i, void *work)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[0].d;
  copy_bytes(matrix_of(&c->out[0], i), matrix_of(&c->in[0], i), matrix_bytes(d));
  return cholesky_inverse(d->dtype, p->lower, row_count(d), matrix_of(&c->out[0], i));
}

static int potri_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return stack_report(stack_run(c, stack_count(d), cubic_cost(d), 0, potri_one),
      "is no Cholesky factor: its diagonal has a zero");
}

static size_t square_work(const struct call *c) { return stack_scratch(matrix_bytes(&c->in[0].d)); }

/* Computes the gradient of one matrix. in: head gradient, the factor, the inverse; work: G +
** G^T. */
static int potri_back_one(struct call *c, int64_t i, void *work)
{
  const bool lower = ((const struct triangle *)c->param)->lower;
  const ty_desc *d = &c->out[0].d;
  const int64_t n = row_count(d);
  const void *b = matrix_of(&c->in[2], i);
  void *x = matrix_of(&c->out[0], i);
  add_transpose(d->dtype, n, matrix_of(&c->in[0], i), work);
  TRY(gemm_one(
      d->dtype, false, false, n, n, n, 1, lower ? b : work, n, lower ? work : b, n, 0, x, n));
  triangle_solve(d->dtype, lower, lower, true, n, n, -1, matrix_of(&c->in[1], i), x);
  keep_triangle(d->dtype, lower, ZERO, 1, n, x);
  return 0;
}

static int potri_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), matrix_bytes(d), potri_back_one));
}

/* -- products and solutions -------------------------------------------------------------------- */

static const struct param triangle_params[] = {
  { "transpose", P_BOOL,  FIELD(transpose), "0", "A is transposed" },
  { "rightside", P_BOOL,  FIELD(rightside), "0", "A is to the right of B, else to the left" },
  { "lower",     P_BOOL,  FIELD(lower),     "1", "A is a lower triangle, else an upper one; the rest is not read" },
  { "alpha",     P_FLOAT, FIELD(alpha),     "1", "factor" },
  { 0 }
};

/* Infers A (..., k, k) with B (..., m, n), where k is the dimension of B that it multiplies. */
static int triangle_shape(struct infer *s)
{
  const struct triangle *p = s->param;
  ty_desc *a = &s->in[0], *b = &s->in[1];
  TRY(shape_both(s, b, &s->out[0]));
  TRY(square_check(s, a));
  TRY(matrix_check(s, b));
  if (!b->ndim) return TY_OK;
  if (!a->ndim) a->ndim = b->ndim; /* the shape of A follows from B */
  if (a->ndim != b->ndim)
    return infer_fail(
        s, TY_ESHAPE, b, "expected as many dimensions as A, %d; got %d", a->ndim, b->ndim);
  int last = a->ndim - 1, meets = p->rightside ? last : last - 1;
  for (int i = 0; i < last - 1; i++) {
    TRY(shape_dim(s, a, i, b->dim[i]));
    TRY(shape_dim(s, b, i, a->dim[i]));
  }
  if (a->dim[last] && b->dim[meets] && a->dim[last] != b->dim[meets])
    return infer_fail(s, TY_ESHAPE, b, "%lld %s meet a matrix A of side %lld",
        (long long)b->dim[meets], p->rightside ? "columns" : "rows", (long long)a->dim[last]);
  TRY(shape_dim(s, b, meets, a->dim[last]));
  a->dim[last] = a->dim[last - 1] = b->dim[meets];
  return shape_both(s, b, &s->out[0]);
}

typedef void triangle_fn(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b);

static int forward_one(struct call *c, int64_t i, triangle_fn *apply)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[1].d;
  void *y = matrix_of(&c->out[0], i);
  copy_bytes(y, matrix_of(&c->in[1], i), matrix_bytes(d));
  apply(d->dtype, p->rightside, p->lower, p->transpose, row_count(d), column_count(d), p->alpha,
      matrix_of(&c->in[0], i), y);
  return 0;
}
static int trmm_one(struct call *c, int64_t i, void *work)
{
  return forward_one(c, i, triangle_multiply);
}
static int trsm_one(struct call *c, int64_t i, void *work)
{
  return forward_one(c, i, triangle_solve);
}

static double triangle_cost(const ty_desc *a, const ty_desc *b)
{
  return (double)row_count(a) * (double)(row_count(b) * column_count(b));
}

static int trmm_run(struct call *c)
{
  return products_report(
      stack_run(c, stack_count(&c->in[0].d), triangle_cost(&c->in[0].d, &c->in[1].d), 0, trmm_one));
}

static int trsm_run(struct call *c)
{
  return products_report(
      stack_run(c, stack_count(&c->in[0].d), triangle_cost(&c->in[0].d, &c->in[1].d), 0, trsm_one));
}

/* Computes da = factor tri(u v^T), or with A right of B factor tri(v^T u), or its transpose. u and
** v have the shape of B. */
static int triangle_gradient(const struct triangle *p, const ty_desc *d, double factor,
    const void *u, const void *v, void *da)
{
  int64_t m = row_count(d), n = column_count(d), side = p->rightside ? n : m;
  bool swap = (bool)p->transpose != (bool)p->rightside;
  const void *left = swap ? v : u, *right = swap ? u : v;
  TRY(gemm_one(d->dtype, p->rightside, !p->rightside, side, side, p->rightside ? m : n, factor,
      left, n, right, n, 0, da, side));
  keep_triangle(d->dtype, p->lower, ZERO, 1, side, da);
  return TY_OK;
}

/* Computes the gradients of one pair. in: head gradient, A, B. */
static int trmm_back_one(struct call *c, int64_t i, void *work)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[0].d;
  const void *g = matrix_of(&c->in[0], i);
  void *da = matrix_of(&c->out[0], i), *db = matrix_of(&c->out[1], i);
  if (da) TRY(triangle_gradient(p, d, p->alpha, g, matrix_of(&c->in[2], i), da));
  if (!db) return 0;
  copy_bytes(db, g, matrix_bytes(d));
  triangle_multiply(d->dtype, p->rightside, p->lower, !p->transpose, row_count(d), column_count(d),
      p->alpha, matrix_of(&c->in[1], i), db);
  return 0;
}

static int trmm_back(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return products_report(
      stack_run(c, stack_count(d), triangle_cost(&c->in[1].d, d), 0, trmm_back_one));
}

/* Computes the gradients of one pair. in: head gradient, A, X; work: W. */
static int trsm_back_one(struct call *c, int64_t i, void *work)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  void *da = matrix_of(&c->out[0], i), *db = matrix_of(&c->out[1], i);
  copy_bytes(work, matrix_of(&c->in[0], i), matrix_bytes(d));
  triangle_solve(d->dtype, p->rightside, p->lower, !p->transpose, row_count(d), column_count(d), 1,
      matrix_of(&c->in[1], i), work);
  if (da) TRY(triangle_gradient(p, d, -1, work, matrix_of(&c->in[2], i), da));
  if (db) r->affine(db, work, p->alpha, 0, row_count(d) * column_count(d));
  return 0;
}

static int trsm_back(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return products_report(
      stack_run(c, stack_count(d), triangle_cost(&c->in[1].d, d), matrix_bytes(d), trsm_back_one));
}

/* -- syrk -------------------------------------------------------------------------------------- */

static const struct param syrk_params[] = {
  { "transpose", P_BOOL,  FIELD(transpose), "0", "A^T A, else A A^T" },
  { "alpha",     P_FLOAT, FIELD(alpha),     "1", "factor" },
  { 0 }
};

static int syrk_shape(struct infer *s)
{
  const struct triangle *p = s->param;
  ty_desc *a = &s->in[0], *y = &s->out[0];
  TRY(square_check(s, y));
  TRY(matrix_check(s, a));
  if (a->ndim) {
    ty_desc d = *a;
    d.dim[a->ndim - 1] = d.dim[a->ndim - 2] = a->dim[a->ndim - (p->transpose ? 1 : 2)];
    TRY(shape_as(s, y, &d));
  }
  if (!y->ndim) return TY_OK;
  ty_desc d = *y;
  d.dim[y->ndim - (p->transpose ? 2 : 1)] = 0;
  return shape_as(s, a, &d);
}

static int syrk_run(struct call *c)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->in[0].d;
  int64_t m = row_count(d), n = column_count(d), side = p->transpose ? n : m;
  return gemm_batch(d->dtype, p->transpose, !p->transpose, stack_count(d), side, side,
      p->transpose ? m : n, p->alpha, c->in[0].p, m * n, c->in[0].p, m * n, 0, c->out[0].p,
      side * side);
}

/* Computes the gradient of one matrix. in: head gradient, A; work: G + G^T. */
static int syrk_back_one(struct call *c, int64_t i, void *work)
{
  const struct triangle *p = c->param;
  const ty_desc *d = &c->out[0].d;
  int64_t m = row_count(d), n = column_count(d), side = p->transpose ? n : m;
  const void *a = matrix_of(&c->in[1], i);
  add_transpose(d->dtype, side, matrix_of(&c->in[0], i), work);
  if (p->transpose)
    return gemm_one(
        d->dtype, false, false, m, n, n, p->alpha, a, n, work, n, 0, matrix_of(&c->out[0], i), n);
  return gemm_one(
      d->dtype, false, false, m, n, m, p->alpha, work, m, a, n, 0, matrix_of(&c->out[0], i), n);
}

static int syrk_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(stack_run(
      c, stack_count(d), triangle_cost(&c->in[0].d, d), matrix_bytes(&c->in[0].d), syrk_back_one));
}

/*                                             name       run         types */
static const struct kernel potrf_cpu[]     = { { "lapack", potrf_run,      T_FLOAT }, { 0 } };
static const struct kernel potrf_back_k[]  = { { "blas",   potrf_back, T_FLOAT }, { 0 } };
static const struct kernel potri_cpu[]     = { { "lapack", potri_run,      T_FLOAT }, { 0 } };
static const struct kernel potri_back_k[]  = { { "blas",   potri_back, T_FLOAT, .scratch = square_work }, { 0 } };
static const struct kernel trmm_cpu[]      = { { "blas",   trmm_run,       T_FLOAT }, { 0 } };
static const struct kernel trmm_back_k[]   = { { "blas",   trmm_back,  T_FLOAT }, { 0 } };
static const struct kernel trsm_cpu[]      = { { "blas",   trsm_run,       T_FLOAT }, { 0 } };
static const struct kernel trsm_back_k[]   = { { "blas",   trsm_back,  T_FLOAT, .scratch = square_work }, { 0 } };
static const struct kernel syrk_cpu[]      = { { "gemm",   syrk_run,       T_FLOAT }, { 0 } };
static const struct kernel syrk_back_k[]   = { { "gemm",   syrk_back,  T_FLOAT, .scratch = square_work }, { 0 } };

#define FACTOR \
  .param = factor_params, .param_size = sizeof(struct triangle), .shape = square_shape, .in = "A", \
  .out = "output"
#define TRIANGLES \
  .param = triangle_params, .param_size = sizeof(struct triangle), .shape = triangle_shape, \
  .in = "A B", .out = "output"

const struct op op_triangular[] = { {
  .name = "_linalg_potrf", .alias = "linalg_potrf",
  .flags = OP_MAY_FAIL,
  .doc = "Cholesky factors of symmetric positive definite matrices A (..., n, n), of which one triangle is read: L with A = L L^T, "
         "or U with A = U^T U; the other triangle is 0. The gradient is symmetric.",
  FACTOR, .grad = "g0 o0", .back = "_backward_linalg_potrf", .cpu = potrf_cpu, .back_cpu = potrf_back_k, .inplace = "0=0",
}, {
  .name = "_linalg_potri", .alias = "linalg_potri",
  .flags = OP_MAY_FAIL,
  .doc = "Inverses of the matrices whose Cholesky factors A (..., n, n) are: (A A^T)^-1, or (A^T A)^-1 of upper triangles. "
         "The gradient is a triangle.",
  FACTOR, .grad = "g0 i0 o0", .back = "_backward_linalg_potri", .cpu = potri_cpu, .back_cpu = potri_back_k, .inplace = "0=0",
}, {
  .name = "_linalg_trmm", .alias = "linalg_trmm",
  .doc = "alpha op(A) B, or alpha B op(A), with triangular A (..., k, k) and B (..., m, n). Gradients of both.",
  TRIANGLES, .grad = "g0 i0 i1", .back = "_backward_linalg_trmm", .cpu = trmm_cpu, .back_cpu = trmm_back_k, .inplace = "0=1",
}, {
  .name = "_linalg_trsm", .alias = "linalg_trsm",
  .flags = OP_MAY_FAIL,
  .doc = "X with op(A) X = alpha B, or X op(A) = alpha B, for triangular A (..., k, k) and B (..., m, n). Gradients of both.",
  TRIANGLES, .grad = "g0 i0 o0", .shown = "g0 i0 i1 o0", .back = "_backward_linalg_trsm", .cpu = trsm_cpu, .back_cpu = trsm_back_k,
  .inplace = "0=1",
}, {
  .name = "_linalg_syrk", .alias = "linalg_syrk",
  .doc = "alpha A A^T, or alpha A^T A, of matrices A (..., m, n). Gradient of A.",
  .in = "A", .out = "output", .param = syrk_params, .param_size = sizeof(struct triangle), .shape = syrk_shape,
  .grad = "g0 i0", .back = "_backward_linalg_syrk", .cpu = syrk_cpu, .back_cpu = syrk_back_k,
}, { 0 } };
