/* inner.h - what gemm.c, pack.c, library.c and the convolution share; operators see gemm.h only. */
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/isa.h"
#include "kernel/gemm/tuning.h"

/* Returns the size of equal parts of n, up to `most`, each of whole `unit`s. */
static inline int64_t gemm_size_equal_parts(int64_t n, int64_t most, int64_t unit)
{
  const int64_t parts = MAX(1, (n + most - 1) / most);
  return (n + parts * unit - 1) / (parts * unit) * unit;
}
/* Computes a block whose k is cut into runs of kc. */
void   gemm_sum(const struct gemm_type *t, const struct gemm_block *g);
size_t gemm_panel_bytes(const struct gemm_type *t, int64_t n, int64_t k);
void gemm_panels(const struct gemm_type *t, bool tb, int64_t n, int64_t k, const void *b,
    int64_t ldb, void *out);
/* Computes sum_columns in the calling thread, of at most GEMM_SUM_COLUMNS columns, for rows that
** are ld elements apart. */
void gemm_columns(const struct gemm_type *t, size_t size, int64_t m, int64_t n, const void *a,
    int64_t ld, void *out, bool add);

/* Returns this thread's buffer for panels, which it keeps between calls. *is_same: the call before
** had the same `what`, so the buffer still holds those panels. NULL: out of memory. */
void  *gemm_scratch(size_t bytes, uint64_t what, bool *is_same);

/* Returns whether OpenBLAS (library.c, one thread a call) is faster for a product of that size. */
bool   blas_profitable(int64_t m, int64_t n, int64_t k);
/* Multiplies by OpenBLAS; parallel inside. */
void   blas_gemm(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
