/* factorization.c - operators on whole matrices: gelqf, syevd, inverse, det, slogdet.
**
** With head gradients dX of outputs X, mirror() the lower triangle copied over the upper one:
**   gelqf    A = L Q          dA = L^-T (dQ + mirror(L^T dL - dQ Q^T) Q)
**   syevd    U A = diag(l) U  dA = U^T (N + diag(dl)) U,  N_ij = (M_ij - M_ji) / 2 (l_i - l_j),
**                           M = dU U^T
**   inverse  B = A^-1         dA = -B^T dB B^T
**   det, slogdet              dA = det ddet A^-T,  dlog A^-T;  zero for a singular matrix
** det and slogdet keep the LU factors of the transpose and their pivots as hidden outputs, from
** which backward computes A^-1.
*/
#include "op/op.h"
#include "operators/linalg/linalg.h"

static double cubic_cost(const ty_desc *d)
{
  return (double)column_count(d) * (double)column_count(d) * (double)row_count(d);
}

static void copy_matrix(void *to, const void *from, const ty_desc *d)
{
  if (to != from) memcpy(to, from, matrix_bytes(d));
}

/* -- gelqf ------------------------------------------------------------------------------------- */

static int gelqf_shape(struct infer *s)
{
  ty_desc *a = &s->in[0], *q = &s->out[0], *l = &s->out[1];
  TRY(shape_both(s, a, q));
  TRY(matrix_check(s, a));
  if (!a->ndim) return TY_OK;
  int64_t rows = row_count(a), columns = column_count(a);
  if (rows && columns && rows > columns)
    return infer_fail(s, TY_ESHAPE, a,
        "expected at most as many rows as columns, got %lld and %lld", (long long)rows,
        (long long)columns);
  ty_desc square = *a;
  square.dim[a->ndim - 1] = rows;
  return shape_as(s, l, &square);
}

/* Returns the memory for matrix i of out[k]; if that output is unused, the scratch after `used`
** bytes. */
static void *result_or_scratch(const struct call *c, int k, int64_t i, void *work, size_t used)
{
  void *p = matrix_of(&c->out[k], i);
  return p ? p : (char *)work + used;
}

static size_t gelqf_bytes(const ty_desc *a)
{
  return align_up(lq_work(a->dtype, row_count(a)), ALIGN) + 2 * align_up(matrix_bytes(a), ALIGN);
}
static size_t gelqf_scratch(const struct call *c)
{
  return stack_scratch(gelqf_bytes(&c->in[0].d));
}

static int gelqf_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->in[0].d;
  size_t used = align_up(lq_work(d->dtype, row_count(d)), ALIGN);
  void *q = result_or_scratch(c, 0, i, work, used),
       *l = result_or_scratch(c, 1, i, work, used + align_up(matrix_bytes(d), ALIGN));
  copy_matrix(q, matrix_of(&c->in[0], i), d);
  lq_factor(d->dtype, row_count(d), column_count(d), q, l, work);
  return 0;
}

static int gelqf_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return products_report(stack_run(c, stack_count(d), cubic_cost(d), gelqf_bytes(d), gelqf_one));
}

/* Computes the gradient of one matrix. in: dQ, dL, Q, L; work: L^T dL - dQ Q^T. */
static int gelqf_back_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->out[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  const int64_t m = row_count(d), n = column_count(d);
  const void *dq = matrix_of(&c->in[0], i), *q = matrix_of(&c->in[2], i),
             *l = matrix_of(&c->in[3], i);
  void *da = matrix_of(&c->out[0], i);
  TRY(gemm_one(d->dtype, true, false, m, m, m, 1, l, m, matrix_of(&c->in[1], i), m, 0, work, m));
  TRY(gemm_one(d->dtype, false, true, m, m, n, -1, dq, n, q, n, 1, work, m));
  for (int64_t k = 0; k < m; k++)
    for (int64_t j = 0; j < k; j++) r->set(work, j * m + k, r->get(work, k * m + j));
  copy_matrix(da, dq, d);
  TRY(gemm_one(d->dtype, false, false, m, n, m, 1, work, m, q, n, 1, da, n));
  triangle_solve(d->dtype, false, true, true, m, n, 1, l, da);
  return 0;
}

static size_t gelqf_back_scratch(const struct call *c)
{
  return stack_scratch(matrix_bytes(&c->in[3].d));
}

static int gelqf_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), matrix_bytes(&c->in[3].d), gelqf_back_one));
}

/* -- syevd ------------------------------------------------------------------------------------- */

static int syevd_shape(struct infer *s)
{
  ty_desc *a = &s->in[0];
  TRY(shape_both(s, a, &s->out[0]));
  TRY(square_check(s, a));
  TRY(shape_both(s, a, &s->out[0]));
  if (!a->ndim) return TY_OK;
  if (row_count(a) > 32000)
    return infer_fail(s, TY_ESHAPE, a,
        "matrices of %lld rows; LAPACK finds the eigenvalues of at most 32000",
        (long long)row_count(a));
  return shape_is(s, &s->out[1], a->ndim - 1, a->dim);
}

/* Makes the largest entry of each row positive, so that eigenvectors are unique. */
static void fix_signs(const struct vec_ops *r, int64_t n, void *u)
{
  for (int64_t i = 0; i < n; i++) {
    double most = 0;
    for (int64_t j = 0; j < n; j++) {
      double v = r->get(u, i * n + j);
      if (fabs(v) > fabs(most)) most = v;
    }
    if (most < 0) r->affine(vec_at(r, u, i * n), vec_at(r, u, i * n), -1, 0, n);
  }
}

static size_t syevd_bytes(const ty_desc *a)
{
  return align_up(eigen_work(a->dtype, row_count(a)), ALIGN) + 2 * align_up(matrix_bytes(a), ALIGN);
}
static size_t syevd_scratch(const struct call *c)
{
  return stack_scratch(syevd_bytes(&c->in[0].d));
}

static int syevd_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->in[0].d;
  size_t used = align_up(eigen_work(d->dtype, row_count(d)), ALIGN);
  void *u = result_or_scratch(c, 0, i, work, used), *l = part_of(&c->out[1], i, stack_count(d));
  if (!l) l = (char *)work + used + align_up(matrix_bytes(d), ALIGN);
  copy_matrix(u, matrix_of(&c->in[0], i), d);
  int bad = eigen_symmetric(d->dtype, row_count(d), u, l, work);
  if (!bad) fix_signs(vec_ops_of(d->dtype), row_count(d), u);
  return bad;
}

static int syevd_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return stack_report(stack_run(c, stack_count(d), 4 * cubic_cost(d), syevd_bytes(d), syevd_one),
      "has no eigenvalues that can be found: an entry is NaN or infinite, or the search "
      "does not converge");
}

/* Computes m = N + diag(dl). Equal eigenvalues: a tiny difference replaces 0. */
static void eigen_gradient(
    const struct vec_ops *r, int64_t n, const void *l, const void *dl, void *m)
{
  const double least = r->dtype == TY_F64 ? 1e-100 : 1e-30;
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < i; j++) {
      double gap = MAX(r->get(l, i) - r->get(l, j), least);
      double v = (r->get(m, i * n + j) - r->get(m, j * n + i)) / (2 * gap);
      r->set(m, i * n + j, v);
      r->set(m, j * n + i, v);
    }
    r->set(m, i * n + i, r->get(dl, i));
  }
}

/* Computes the gradient of one matrix. in: dU, dl, U, l; work: M, then (N + diag(dl)) U. */
static int syevd_back_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->out[0].d;
  const int64_t n = row_count(d), stack = stack_count(d);
  const void *u = matrix_of(&c->in[2], i);
  void *product = (char *)work + matrix_bytes(d);
  TRY(gemm_one(d->dtype, false, true, n, n, n, 1, matrix_of(&c->in[0], i), n, u, n, 0, work, n));
  eigen_gradient(
      vec_ops_of(d->dtype), n, part_of(&c->in[3], i, stack), part_of(&c->in[1], i, stack), work);
  TRY(gemm_one(d->dtype, false, false, n, n, n, 1, work, n, u, n, 0, product, n));
  return gemm_one(
      d->dtype, true, false, n, n, n, 1, u, n, product, n, 0, matrix_of(&c->out[0], i), n);
}

static size_t syevd_back_scratch(const struct call *c)
{
  return stack_scratch(2 * matrix_bytes(&c->out[0].d));
}

static int syevd_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), 2 * matrix_bytes(d), syevd_back_one));
}

/* -- inverse ----------------------------------------------------------------------------------- */

static int inverse_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  TRY(square_check(s, &s->in[0]));
  return shape_both(s, &s->in[0], &s->out[0]);
}

/* Returns the bytes of LAPACK's workspace, followed by the pivots. */
static size_t inverse_bytes(const ty_desc *d)
{
  return align_up(lu_inverse_work(d->dtype, row_count(d)), ALIGN) +
      (size_t)row_count(d) * sizeof(int32_t);
}
static size_t inverse_scratch(const struct call *c)
{
  return stack_scratch(inverse_bytes(&c->in[0].d));
}

static int inverse_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t n = row_count(d);
  int32_t *pivot = (int32_t *)((char *)work + align_up(lu_inverse_work(d->dtype, n), ALIGN));
  void *b = matrix_of(&c->out[0], i);
  copy_matrix(b, matrix_of(&c->in[0], i), d);
  int bad = lu_factor(d->dtype, n, b, pivot);
  return bad ? bad : lu_inverse(d->dtype, n, b, pivot, work);
}

static int inverse_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return stack_report(stack_run(c, stack_count(d), cubic_cost(d), inverse_bytes(d), inverse_one),
      "is singular: it has no inverse");
}

/* Computes the gradient of one matrix. in: dB, B; work: B^T dB. */
static int inverse_back_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->out[0].d;
  const int64_t n = row_count(d);
  const void *b = matrix_of(&c->in[1], i);
  TRY(gemm_one(d->dtype, true, false, n, n, n, 1, b, n, matrix_of(&c->in[0], i), n, 0, work, n));
  return gemm_one(
      d->dtype, false, true, n, n, n, -1, work, n, b, n, 0, matrix_of(&c->out[0], i), n);
}

static size_t inverse_back_scratch(const struct call *c)
{
  return stack_scratch(matrix_bytes(&c->out[0].d));
}

static int inverse_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), matrix_bytes(d), inverse_back_one));
}

/* -- determinants: outputs det, LU, pivot or sign, log, LU, pivot ------------------------------ */

static int det_shape(struct infer *s)
{
  ty_desc *a = &s->in[0], *factors = &s->out[s->nout - 2], *pivot = &s->out[s->nout - 1];
  TRY(shape_both(s, a, factors));
  TRY(square_check(s, a));
  TRY(shape_both(s, a, factors));
  if (!a->ndim) return TY_OK;
  TRY(shape_is(s, pivot, a->ndim - 1, a->dim));
  for (int k = 0; k < s->nout - 2; k++)
    TRY(shape_is(s, &s->out[k], MAX(a->ndim - 2, 1), a->ndim == 2 ? (int64_t[]){ 1 } : a->dim));
  return TY_OK;
}

static int det_type(struct infer *s)
{
  for (int k = 0; k < s->nout - 1; k++) TRY(type_both(s, &s->in[0], &s->out[k]));
  return type_is(s, &s->out[s->nout - 1], TY_I32);
}

static size_t det_bytes(const ty_desc *d)
{
  return align_up(matrix_bytes(d), ALIGN) + (size_t)row_count(d) * sizeof(int32_t);
}
static size_t det_scratch(const struct call *c) { return stack_scratch(det_bytes(&c->in[0].d)); }

/* Multiplies the diagonal of the factors, with the sign of the pivots' permutation. */
static void multiply_diagonal(const struct vec_ops *r, int64_t n, const void *a,
    const int32_t *pivot, double *det, double *sign, double *log_of)
{
  *det = *sign = 1;
  *log_of = 0;
  for (int64_t i = 0; i < n; i++) {
    double v = r->get(a, i * n + i) * (pivot[i] == i + 1 ? 1 : -1);
    *det *= v;
    *sign *= v == 0 ? 0 : v < 0 ? -1 : 1;
    *log_of += log(fabs(v));
  }
}

static int det_one(struct call *c, int64_t i, void *work)
{
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  const int64_t n = row_count(d), stack = stack_count(d);
  const bool logs = c->nout == 4;
  void *a = result_or_scratch(c, c->nout - 2, i, work, 0);
  int32_t *pivot = part_of(&c->out[c->nout - 1], i, stack);
  double det, sign, log_of;
  if (!pivot) pivot = (int32_t *)((char *)work + align_up(matrix_bytes(d), ALIGN));
  copy_matrix(a, matrix_of(&c->in[0], i), d);
  lu_factor(d->dtype, n, a, pivot);
  multiply_diagonal(r, n, a, pivot, &det, &sign, &log_of);
  if (c->out[0].p) r->set(c->out[0].p, i, logs ? sign : det);
  if (logs && c->out[1].p) r->set(c->out[1].p, i, log_of);
  return 0;
}

static int det_run(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  return products_report(stack_run(c, stack_count(d), cubic_cost(d), det_bytes(d), det_one));
}

/* Computes the gradient of matrix i. in: head gradient, determinant (of its logarithm, is_log: the
** sign), LU, pivot; work: A^-1, workspace. */
static int det_gradient(struct call *c, int64_t i, void *work, bool is_log)
{
  const ty_desc *d = &c->out[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  const int64_t n = row_count(d), stack = stack_count(d);
  const double of = r->get(c->in[1].p, i), g = r->get(c->in[0].p, i);
  void *da = matrix_of(&c->out[0], i), *scratch = (char *)work + align_up(matrix_bytes(d), ALIGN);
  copy_matrix(work, matrix_of(&c->in[2], i), d);
  if (of == 0 || lu_inverse(d->dtype, n, work, part_of(&c->in[3], i, stack), scratch)) {
    r->fill(da, 0, n * n);
    return 0;
  }
  r->transpose(da, work, n, n);
  r->affine(da, da, is_log ? g : g * of, 0, n * n);
  return 0;
}

static int det_back_one(struct call *c, int64_t i, void *work)
{
  return det_gradient(c, i, work, false);
}
static int slogdet_back_one(struct call *c, int64_t i, void *work)
{
  return det_gradient(c, i, work, true);
}

static size_t det_back_bytes(const ty_desc *d)
{
  return align_up(matrix_bytes(d), ALIGN) + lu_inverse_work(d->dtype, row_count(d));
}
static size_t det_back_scratch(const struct call *c)
{
  return stack_scratch(det_back_bytes(&c->out[0].d));
}

static int det_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), det_back_bytes(d), det_back_one));
}

static int slogdet_back(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  return products_report(
      stack_run(c, stack_count(d), cubic_cost(d), det_back_bytes(d), slogdet_back_one));
}

enum { T_PIVOT = T_FLOAT | 1 << TY_I32 };
/*                                               name       run           types */
static const struct kernel gelqf_cpu[]       = { { "lapack", gelqf_run,    T_FLOAT, .scratch = gelqf_scratch }, { 0 } };
static const struct kernel gelqf_back_k[]    = { { "blas",   gelqf_back,   T_FLOAT, .scratch = gelqf_back_scratch }, { 0 } };
static const struct kernel syevd_cpu[]       = { { "lapack", syevd_run,    T_FLOAT, .scratch = syevd_scratch }, { 0 } };
static const struct kernel syevd_back_k[]    = { { "gemm",   syevd_back,   T_FLOAT, .scratch = syevd_back_scratch }, { 0 } };
static const struct kernel inverse_cpu[]     = { { "lapack", inverse_run,  T_FLOAT, .scratch = inverse_scratch }, { 0 } };
static const struct kernel inverse_back_k[]  = { { "gemm",   inverse_back, T_FLOAT, .scratch = inverse_back_scratch }, { 0 } };
static const struct kernel det_cpu[]         = { { "lapack", det_run,      T_PIVOT, .scratch = det_scratch }, { 0 } };
static const struct kernel det_back_k[]      = { { "lapack", det_back,     T_PIVOT, .scratch = det_back_scratch }, { 0 } };
static const struct kernel slogdet_back_k[]  = { { "lapack", slogdet_back, T_PIVOT, .scratch = det_back_scratch }, { 0 } };

const struct op op_factorization[] = { {
  .name = "_linalg_gelqf", .alias = "linalg_gelqf",
  .flags = OP_MAY_FAIL,
  .doc = "A = L Q of matrices A (..., m, n) of rank m <= n: Q (..., m, n) with orthonormal rows, lower triangle L (..., m, m). "
         "Gradient of A.",
  .in = "A", .out = "output0 output1", .shape = gelqf_shape, .grad = "g0 g1 o0 o1", .back = "_backward_linalg_gelqf",
  .cpu = gelqf_cpu, .back_cpu = gelqf_back_k, .inplace = "0=0",
}, {
  .name = "_linalg_syevd",
  .flags = OP_MAY_FAIL,
  .doc = "Eigenvectors U (..., n, n), one a row, whose largest entry is positive, and ascending eigenvalues (..., n) of symmetric "
         "matrices A, of which the lower triangle is read. The gradient needs distinct eigenvalues.",
  .in = "A", .out = "output0 output1", .shape = syevd_shape, .grad = "g0 g1 o0 o1", .back = "_backward_linalg_syevd",
  .cpu = syevd_cpu, .back_cpu = syevd_back_k, .inplace = "0=0",
}, {
  .name = "_linalg_inverse", .alias = "linalg_inverse _npi_inv",
  .flags = OP_MAY_FAIL,
  .doc = "Inverses of matrices A (..., n, n); a singular one is an error. Gradient of A.",
  .in = "A", .out = "output", .shape = inverse_shape, .grad = "g0 o0", .back = "_backward_linalg_inverse",
  .cpu = inverse_cpu, .back_cpu = inverse_back_k, .inplace = "0=0",
}, {
  .name = "_linalg_det", .alias = "linalg_det _npi_det",
  .flags = OP_MAY_FAIL,
  .doc = "Determinants of matrices A (..., n, n): (...), (1,) for one matrix. The gradient of a singular matrix is 0.",
  .in = "A", .out = "output0 [output1] [output2]", .shape = det_shape, .type = det_type, .grad = "g0 o0 o1 o2",
  .back = "_backward_linalg_det", .cpu = det_cpu, .back_cpu = det_back_k, .inplace = "1=0",
}, {
  .name = "_linalg_slogdet", .alias = "linalg_slogdet _npi_slogdet",
  .flags = OP_MAY_FAIL,
  .doc = "Signs and logarithms of the absolute values of the determinants of matrices A (..., n, n): 0 and -inf of a singular one, "
         "whose gradient is 0. The sign has none.",
  .in = "A", .out = "output0 output1 [output2] [output3]", .shape = det_shape, .type = det_type, .grad = "g1 o0 o2 o3",
  .shown = "g0 g1 o0 o1 o2 o3", .back = "_backward_linalg_slogdet", .cpu = det_cpu, .back_cpu = slogdet_back_k, .inplace = "2=0",
}, { 0 } };
