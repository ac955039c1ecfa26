/* lapack.c - LAPACK's routines by dtype, and stacks of matrices on all cores. See lapack.h. */
#include <cblas.h>
#include "kernel/lapack.h"
#include "kernel/openblas.h"
#include "kernel/vec/vec.h"

/* LAPACK's symbols, float32 and float64. The lengths of texts are passed after all other
** arguments. */
#define DECLARE(s, R) \
  extern void s##potrf_(const char *uplo, const int *n, R *a, const int *lda, int *info, size_t); \
  extern void s##potri_(const char *uplo, const int *n, R *a, const int *lda, int *info, size_t); \
  extern void s##getrf_(const int *m, const int *n, R *a, const int *lda, int *pivot, int *info); \
  extern void s##getri_(const int *n, R *a, const int *lda, const int *pivot, R *work, \
      const int *lwork, int *info); \
  extern void s##geqrf_(const int *m, const int *n, R *a, const int *lda, R *tau, R *work, \
      const int *lwork, int *info); \
  extern void s##orgqr_(const int *m, const int *n, const int *k, R *a, const int *lda, \
      const R *tau, R *work, const int *lwork, int *info); \
  extern void s##syevd_(const char *job, const char *uplo, const int *n, R *a, const int *lda, \
      R *w, R *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);
DECLARE(s, float)
DECLARE(d, double)

/* Columns that LAPACK processes at once; its workspace is that much per row. */
enum { PANEL = 32 };

/* -- triangles --------------------------------------------------------------------------------- */

/* Sets the triangle opposite to `lower` to zero, or to the mirror image. */
static void lapack_fill_other(int dtype, bool lower, int64_t n, void *a, bool mirror)
{
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) {
      int64_t to = lower ? j * n + i : i * n + j, from = lower ? i * n + j : j * n + i;
      if (dtype == TY_F64)
        ((double *)a)[to] = mirror ? ((double *)a)[from] : 0;
      else
        ((float *)a)[to] = mirror ? ((float *)a)[from] : 0;
    }
}

/* Factorizes a block on the diagonal of an n x n matrix. Returns LAPACK's info. */
static int lapack_factor_block(int dtype, bool lower, int64_t block, int64_t n, void *a)
{
  int size = (int)block, row = (int)n, bad = 0;
  if (dtype == TY_F64)
    dpotrf_(lower ? "U" : "L", &size, a, &row, &bad, 1);
  else
    spotrf_(lower ? "U" : "L", &size, a, &row, &bad, 1);
  return bad;
}

/* Divides the part below (lower) or beside the factor f of a block by it, and subtracts the product
** of the quotient with its transpose from the rest of the matrix. */
#define REDUCE_REST(s, R) do { \
  R *f = at, *side = f + (lower ? block * n : block), *corner = f + block * n + block; \
  int m = lower ? rest : (int)block, k = lower ? (int)block : rest, part = \
      lower ? CblasLower : CblasUpper; \
  cblas_##s##trsm(CblasRowMajor, lower ? CblasRight : CblasLeft, part, CblasTrans, CblasNonUnit, \
      m, k, 1, f, (int)n, side, (int)n); \
  cblas_##s##syrk(CblasRowMajor, part, lower ? CblasNoTrans : CblasTrans, rest, (int)block, -1, \
      side, (int)n, 1, corner, (int)n); \
} while (0)

/* Factorizes a small matrix in one call of LAPACK, a large one in blocks, so that Ctrl-C is checked
** in between. */
int cholesky_factor(int dtype, bool lower, int64_t n, void *a)
{
  enum { WHOLE_COLUMNS = 2048, BLOCK_COLUMNS = 256 };
  const int64_t step = n > WHOLE_COLUMNS ? BLOCK_COLUMNS : n;
  int bad = 0;
  for (int64_t i = 0; i < n && !bad && !stop_wanted(); i += step) {
    const int64_t block = MIN(step, n - i);
    const int rest = (int)(n - i - block);
    void *at = (char *)a + (size_t)(i * n + i) * dtype_size(dtype);
    bad = lapack_factor_block(dtype, lower, block, n, at);
    if (bad) bad += (int)i;
    if (bad || !rest) continue;
    if (dtype == TY_F64)
      REDUCE_REST(d, double);
    else
      REDUCE_REST(s, float);
  }
  lapack_fill_other(dtype, lower, n, a, false);
  return bad;
}

int cholesky_inverse(int dtype, bool lower, int64_t n, void *a)
{
  int size = (int)n, bad = 0;
  if (dtype == TY_F64)
    dpotri_(lower ? "U" : "L", &size, a, &size, &bad, 1);
  else
    spotri_(lower ? "U" : "L", &size, a, &size, &bad, 1);
  lapack_fill_other(dtype, lower, n, a, true);
  return bad;
}

/* Rows (with a triangle on the right) or columns of b are independent of each other. A large b is
** handled in parts, so that Ctrl-C is checked in between. */
enum { LARGE_BLOCK = 256 };

static int64_t lapack_count_triangle_part(bool right, int64_t m, int64_t n)
{
  const int64_t free = right ? m : n;
  return (double)m * (double)n * (double)(right ? n : m) > 4e9 ? MIN(free, LARGE_BLOCK) : free;
}

#define TRIANGLE(routine) \
  int side = right ? CblasRight : CblasLeft, part = lower ? CblasLower : CblasUpper, \
      t = transpose ? CblasTrans : CblasNoTrans; \
  int lda = (int)(right ? n : m); \
  const int64_t step = lapack_count_triangle_part(right, m, n); \
  for (int64_t i = 0, k; i < (right ? m : n) && !stop_wanted(); i += k) { \
    k = MIN(step, (right ? m : n) - i); \
    void *at = (char *)b + (size_t)(right ? i * n : i) * dtype_size(dtype); \
    const int rows = (int)(right ? k : m), columns = (int)(right ? n : k); \
    if (dtype == TY_F64) \
      cblas_d##routine(CblasRowMajor, side, part, t, CblasNonUnit, rows, columns, alpha, a, lda, \
          at, (int)n); \
    else \
      cblas_s##routine(CblasRowMajor, side, part, t, CblasNonUnit, rows, columns, (float)alpha, a, \
          lda, at, (int)n); \
  }

void triangle_multiply(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b)
{
  TRIANGLE(trmm)
}

void triangle_solve(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b)
{
  TRIANGLE(trsm)
}

/* -- general matrices -------------------------------------------------------------------------- */

static double lapack_get_number(int dtype, const void *a, int64_t i)
{
  return dtype == TY_F64 ? ((const double *)a)[i] : (double)((const float *)a)[i];
}

/* Fills a with NaN if it has one, since some versions of LAPACK lose it. Returns whether it did. */
static bool lapack_fill_nan(int dtype, int64_t n, void *a)
{
  int64_t i = 0;
  while (i < n && !isnan(lapack_get_number(dtype, a, i))) i++;
  if (i < n) vec_ops_of(dtype)->fill(a, NAN, n);
  return i < n;
}

int lu_factor(int dtype, int64_t n, void *a, int32_t *pivot)
{
  int size = (int)n, bad = 0;
  if (lapack_fill_nan(dtype, n * n, a)) {
    for (int64_t i = 0; i < n; i++) pivot[i] = (int32_t)i + 1;
    return 0;
  }
  if (dtype == TY_F64)
    dgetrf_(&size, &size, a, &size, pivot, &bad);
  else
    sgetrf_(&size, &size, a, &size, pivot, &bad);
  return bad;
}

size_t lu_inverse_work(int dtype, int64_t n) { return PANEL * (size_t)n * dtype_size(dtype); }

int lu_inverse(int dtype, int64_t n, void *a, const int32_t *pivot, void *work)
{
  int size = (int)n, lwork = PANEL * size, bad = 0;
  if (lapack_fill_nan(dtype, n * n, a)) return 0;
  if (dtype == TY_F64)
    dgetri_(&size, a, &size, pivot, work, &lwork, &bad);
  else
    sgetri_(&size, a, &size, pivot, work, &lwork, &bad);
  return bad;
}

/* Returns the bytes of tau and of LAPACK's workspace. */
size_t lq_work(int dtype, int64_t m) { return (PANEL + 1) * (size_t)m * dtype_size(dtype); }

#define LQ(s, R) do { \
  R *tau = work, *q = a, *scratch = tau + m; \
  s##geqrf_(&columns, &rows, q, &columns, tau, scratch, &size, &bad); \
  for (int64_t i = 0; i < m; i++) \
    for (int64_t j = 0; j < m; j++) ((R *)l)[i * m + j] = j <= i ? q[i * n + j] : 0; \
  s##orgqr_(&columns, &rows, &rows, q, &columns, tau, scratch, &size, &bad); \
} while (0)

void lq_factor(int dtype, int64_t m, int64_t n, void *a, void *l, void *work)
{
  int rows = (int)m, columns = (int)n, size = PANEL * rows, bad;
  if (dtype == TY_F64)
    LQ(d, double);
  else
    LQ(s, float);
}

static int64_t lapack_count_eigen_reals(int64_t n)
{
  return 1 + 6 * n + 2 * n * n;
}
static int64_t lapack_count_eigen_ints(int64_t n) { return 3 + 5 * n; }

size_t eigen_work(int dtype, int64_t n)
{
  return align_up((size_t)lapack_count_eigen_reals(n) * dtype_size(dtype), ALIGN) +
      (size_t)lapack_count_eigen_ints(n) * sizeof(int);
}

/* Returns whether all entries are finite; with others, LAPACK might not end. */
static bool lapack_all_finite(int dtype, int64_t n, const void *a)
{
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(lapack_get_number(dtype, a, i))) return false;
  return true;
}

int eigen_symmetric(int dtype, int64_t n, void *a, void *values, void *work)
{
  int size = (int)n, reals = (int)lapack_count_eigen_reals(n),
      ints = (int)lapack_count_eigen_ints(n), bad = 0;
  int *iwork = (int *)((char *)work +
      align_up((size_t)lapack_count_eigen_reals(n) * dtype_size(dtype), ALIGN));
  if (!lapack_all_finite(dtype, n * n, a)) return 1;
  if (dtype == TY_F64)
    dsyevd_("V", "U", &size, a, &size, values, work, &reals, iwork, &ints, &bad, 1, 1);
  else
    ssyevd_("V", "U", &size, a, &size, values, work, &reals, iwork, &ints, &bad, 1, 1);
  return bad;
}

/* -- stacks ------------------------------------------------------------------------------------ */

struct matrix_loop {
  struct call *c;
  size_t work;
  int (*one)(struct call *c, int64_t i, void *work);
  int64_t bad;
};

/* Runs matrices begin .. end - 1. Keeps the smallest index of those that failed, in whatever order
** they fail. */
static void lapack_run_range(int64_t begin, int64_t end, void *context)
{
  struct matrix_loop *s = context;
  void *work = (char *)s->c->tmp + (size_t)parallel_index() * s->work;
  for (int64_t i = begin; i < end && !stop_wanted(); i++) {
    if (!s->one(s->c, i, work)) continue;
    int64_t was = __atomic_load_n(&s->bad, __ATOMIC_RELAXED);
    while ((was < 0 || i < was) &&
        !__atomic_compare_exchange_n(&s->bad, &was, i, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  }
}

size_t stack_scratch(size_t work) { return (size_t)parallel_threads() * align_up(work, ALIGN); }

int64_t stack_run(struct call *c, int64_t n, double cost, size_t work,
    int (*one)(struct call *c, int64_t i, void *work))
{
  struct matrix_loop s = { c, align_up(work, ALIGN), one, STACK_GOOD };
  const int threads = n == 1 ? 1 : (int)MIN(n, parallel_threads());
  if (openblas_enter(threads)) return STACK_REFUSED;
  if (n == 1)
    lapack_run_range(0, 1, &s); /* leaves the cores to the products inside */
  else
    parallel_for_stoppable(n, NS_ELEMENT * MAX(cost, 1), lapack_run_range, &s);
  openblas_leave(threads);
  return s.bad;
}
