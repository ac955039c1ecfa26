/* onednn.c - float32 products through oneDNN, one thread a call. See onednn.h. */
#include "kernel/onednn.h"
#include "kernel/gemm/onednn.h"

bool onednn_product_on(void) { return onednn_engine() && cpu_level() >= CPU_AVX512; }

bool onednn_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
  return !dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
