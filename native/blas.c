/* blas.c - OpenBLAS for the products where it is faster than our own, one thread a call inside our regions.
**
** On processors with AVX2 or AVX-512 that is large products only (it packs both sides for the second cache, we one);
** on others all but small ones, since it knows kernels there that we do not have. TYCHO_DISABLE=blas: never.
** Slices are cut by shape, so that the bits do not depend on the number of threads.
*/
#include <cblas.h>
#include <pthread.h>
#include "gemm_inner.h"

extern void openblas_set_num_threads(int n);

static bool enabled;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void ask(void)
{
  enabled = !env_disabled("blas");
  openblas_set_num_threads(1);
}

/* Before anybody's LAPACK call too. */
__attribute__((constructor)) static void load(void) { pthread_once(&once, ask); }

bool blas_wanted(int dtype, int64_t m, int64_t n, int64_t k)
{
  double work = (double)m * (double)n * (double)k;
  if (!enabled || MAX(MAX(m, n), k) >= INT32_MAX) return false;
  if (cpu_level() == CPU_BASELINE) return work > 100000;
  return work > 150 * GEMM_WORK && MIN(MIN(m, n), k) >= 256;
}

struct slices {
  int dtype;
  bool ta, tb;
  int64_t m, n, k, lda, ldb, ldc, rows, cols, across;
  double alpha, beta;
  const char *a, *b; char *c;
};

static void one(const struct slices *s, int64_t m, int64_t n, const void *a, const void *b, void *c)
{
  int ta = s->ta ? CblasTrans : CblasNoTrans, tb = s->tb ? CblasTrans : CblasNoTrans;
  if (s->dtype == TY_F64)
    cblas_dgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)s->k, s->alpha, a, (int)s->lda, b, (int)s->ldb, s->beta, c,
                (int)s->ldc);
  else
    cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)s->k, (float)s->alpha, a, (int)s->lda, b, (int)s->ldb,
                (float)s->beta, c, (int)s->ldc);
}

static void some(int64_t begin, int64_t end, void *context)
{
  const struct slices *s = context;
  const size_t size = dtype_size(s->dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t r = i / s->across * s->rows, c = i % s->across * s->cols;
    one(s, MIN(s->rows, s->m - r), MIN(s->cols, s->n - c), s->a + (size_t)(r * (s->ta ? 1 : s->lda)) * size,
        s->b + (size_t)(c * (s->tb ? s->ldb : 1)) * size, s->c + (size_t)(r * s->ldc + c) * size);
  }
}

void blas_gemm(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
               const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
  struct slices s = { dtype, ta, tb, m, n, k, lda, ldb, ldc, 256, 512, 0, alpha, beta, a, b, c };
  if ((m + 255) / 256 * ((n + 511) / 512) < 4) s.rows = s.cols = 96;
  s.across = (n + s.cols - 1) / s.cols;
  parallel((m + s.rows - 1) / s.rows * s.across,
           MAX(1, (int64_t)(2 * GEMM_WORK / ((double)s.rows * (double)s.cols * (double)k))), some, &s);
}
