/* library.c - OpenBLAS for products of the instruction set baseline, that is on processors without
** AVX2 and NEON, one thread a call inside our regions.
**
** It knows kernels there that we do not have. TYCHO_DISABLE=blas: never. Slices are cut by
** shape, so that the bits do not depend on the number of threads.
*/
#include <cblas.h>
#include <pthread.h>
#include "kernel/gemm/inner.h"

extern void openblas_set_num_threads(int n);

static bool enabled;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void library_read_settings(void)
{
  enabled = !env_disabled("blas");
  openblas_set_num_threads(1);
}

/* Runs before any LAPACK call, which needs one thread too. */
__attribute__((constructor)) static void init_at_load(void)
{
  pthread_once(&once, library_read_settings);
}

bool blas_profitable(int64_t m, int64_t n, int64_t k)
{
  double work = (double)m * (double)n * (double)k;
  return enabled && cpu_isa() == CPU_BASELINE && MAX(MAX(m, n), k) < INT32_MAX &&
      work > GEMM_BLAS_WORK;
}

struct slices {
  int dtype;
  bool ta, tb;
  int64_t m, n, k, lda, ldb, ldc, rows, cols, across;
  double alpha, beta;
  const char *a, *b;
  char *c;
};

static void library_multiply_slice(
    const struct slices *s, int64_t m, int64_t n, const void *a, const void *b, void *c)
{
  int ta = s->ta ? CblasTrans : CblasNoTrans, tb = s->tb ? CblasTrans : CblasNoTrans;
  if (s->dtype == TY_F64)
    cblas_dgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)s->k, s->alpha, a, (int)s->lda, b,
        (int)s->ldb, s->beta, c, (int)s->ldc);
  else
    cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)s->k, (float)s->alpha, a, (int)s->lda,
        b, (int)s->ldb, (float)s->beta, c, (int)s->ldc);
}

static void library_multiply_range(int64_t begin, int64_t end, void *context)
{
  const struct slices *s = context;
  const size_t size = dtype_size(s->dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t r = i / s->across * s->rows, c = i % s->across * s->cols;
    library_multiply_slice(s, MIN(s->rows, s->m - r), MIN(s->cols, s->n - c),
        s->a + (size_t)(r * (s->ta ? 1 : s->lda)) * size,
        s->b + (size_t)(c * (s->tb ? s->ldb : 1)) * size, s->c + (size_t)(r * s->ldc + c) * size);
  }
}

/* Halves the longer side until there are enough slices: two of a middle-sized product, at most
** 16, each of some weight, since a slice packs its sides anew; of a huge one more. */
static void library_choose_slices(struct slices *s)
{
  const double work = (double)s->m * (double)s->n * (double)s->k;
  /* Ctrl-C waits for a slice: not more work than a second's */
  const int64_t slices = work < 16e6 ? 2 : (int64_t)MAX(4, MAX(MIN(16, work / 150e6), work / 4e9));
  s->rows = s->m;
  s->cols = s->n;
  while ((s->m + s->rows - 1) / s->rows * ((s->n + s->cols - 1) / s->cols) < slices) {
    int64_t *longer = s->rows > s->cols ? &s->rows : &s->cols;
    if (*longer < 96) break;
    *longer = (*longer / 2 + 15) / 16 * 16;
  }
  s->across = (s->n + s->cols - 1) / s->cols;
}

void blas_gemm(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
  struct slices s = { dtype, ta, tb, m, n, k, lda, ldb, ldc, 0, 0, 0, alpha, beta, a, b, c };
  library_choose_slices(&s);
  parallel_chunks_stoppable((m + s.rows - 1) / s.rows * s.across, 1, library_multiply_range, &s);
}
