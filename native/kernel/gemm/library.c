/* library.c - products by OpenBLAS where the instruction set is baseline, that is on processors
** without AVX2 and NEON, for which it has faster kernels. TYCHO_DISABLE=blas turns it off.
**
** Each call of OpenBLAS computes a slice in one thread. Slices are cut by shape, so that the bits
** do not depend on the number of threads.
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

/* multiply-adds of a product that is cut into two slices */
#define SMALL_WORK 16e6
/* multiply-adds of a slice: larger products have 4 to 16 of them, since a slice packs its sides */
#define SLICE_WORK 150e6
/* multiply-adds of a slice, at most: a second's work, since Ctrl-C waits for a slice */
#define MOST_SLICE_WORK 4e9

enum {
  SMALL_SLICES = 2,
  FEWEST_SLICES = 4,
  USUAL_SLICES = 16,                                  /* at most, up to MOST_SLICE_WORK each */
  SHORTEST_SIDE = 96,                                 /* a shorter side is not cut */
  SIDE_UNIT = 16                                      /* rows and columns of a slice: multiples */
};

/* Halves the longer side of the slices until there are enough of them. */
static void library_choose_slices(struct slices *s)
{
  const double work = (double)s->m * (double)s->n * (double)s->k;
  const int64_t slices = work < SMALL_WORK
      ? SMALL_SLICES
      : (int64_t)MAX(FEWEST_SLICES,
            MAX(MIN(USUAL_SLICES, work / SLICE_WORK), work / MOST_SLICE_WORK));
  s->rows = s->m;
  s->cols = s->n;
  while ((s->m + s->rows - 1) / s->rows * ((s->n + s->cols - 1) / s->cols) < slices) {
    int64_t *longer = s->rows > s->cols ? &s->rows : &s->cols;
    if (*longer < SHORTEST_SIDE) break;
    *longer = (*longer / 2 + SIDE_UNIT - 1) / SIDE_UNIT * SIDE_UNIT;
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
