/* inner.h - what gemm.c, pack.c, library.c and the convolution share; operators see gemm.h only. */
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/isa.h"

/* Multiply-adds that are worth a chunk of a parallel region (10 to 20 us on one core). */
#define GEMM_WORK 1000000.0
/* bytes of panels that a core goes through again and again */
enum { GEMM_CACHE = 512 * 1024,
       /* rows beside which packing the other side is much work */
       GEMM_LOW = 192 };

/* a block whose k is cut into runs of kc */
void   gemm_sum(const struct gemm_type *t, const struct gemm_block *g);
size_t gemm_panel_bytes(const struct gemm_type *t, int64_t n, int64_t k);
void gemm_panels(const struct gemm_type *t, bool tb, int64_t n, int64_t k, const void *b,
    int64_t ldb, void *out);
/* sum_columns by one thread: at most 256 columns, rows ld elements apart */
void gemm_columns(const struct gemm_type *t, size_t size, int64_t m, int64_t n, const void *a,
    int64_t ld, void *out, bool add);

/* This thread's buffer, kept between calls, with what it was asked for last: there, if that was
** the same. NULL: no memory */
void  *gemm_scratch(size_t bytes, uint64_t what, bool *there);

/* OpenBLAS, one thread a call (library.c). */
bool   blas_profitable(int64_t m, int64_t n, int64_t k);
/* parallel inside */
void   blas_gemm(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
