/* onednn.h - what library.c sees of oneDNN: a product that packs both sides, faster than
** OpenBLAS's from some 3 million multiply-adds on. The caller has set this thread's team to one
** (parallel_library_of).
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef TY_DNNL
bool onednn_product_on(void);
bool onednn_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
#else
static inline bool onednn_product_on(void) { return false; }
static inline bool onednn_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha,
    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
  return false;
}
#endif
