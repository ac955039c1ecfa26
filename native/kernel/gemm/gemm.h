/* gemm.h - matrix products. Row-major. op(A) is m x k, op(B) is k x n, C is m x n; ld* in
** elements.
**
** gemm_one    one product; ours, or OpenBLAS's without AVX2 (library.c); parallel inside;
**             float32 and float64. Up to GEMM_FEW long rows with a transposed B need no
**             panels: B is read once, in place.
** gemm_pack   B packed into panels once (a weight that serves many products), then gemm_packed any
**             number of times; the epilogue adds a bias row and applies an activation while C is
**             still in registers.
** gemm_fused  the same for a B that is not packed; k > 0.
** gemm_batch  dense matrices, sa, sb, sc elements apart.
** gemm_kept   the packed copy of a weight that an instruction keeps between runs (in its state).
** Sums over k are in a fixed order for a given shape: equal settings give equal bits.
*/
#pragma once
#include "kernel/kernel.h"

/* rows of A up to which long sums with a transposed B read B as it is */
enum { GEMM_FEW = 16 };
/* What products take as their type beside TY_F32 and TY_F64. */
enum {
  GEMM_NARROW = 64,                                   /* the first of them */
  /* float32 arrays, of which A and B are rounded to bfloat16 and sums are float32 */
  GEMM_ROUNDED = GEMM_NARROW,
  /* A and B bfloat16, sums, C and bias float32 */
  GEMM_BF16,
  /* A uint8, B int8, sums, C and bias int32, alpha 1 */
  GEMM_U8,
  /* the same with A int8 */
  GEMM_S8,
};
/* How levels of -127 .. 127 that are made for a product are multiplied without a further term: as
** which type, and with what added to each (isa/narrow.c). */
#ifdef __aarch64__
enum { GEMM_LEVELS = GEMM_S8, GEMM_LEVELS_SHIFT = 0 };
#else
enum { GEMM_LEVELS = GEMM_U8, GEMM_LEVELS_SHIFT = 128 };
#endif
int gemm_one(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
size_t gemm_pack_bytes(int dtype, int64_t n, int64_t k);
void gemm_pack(int dtype, bool tb, int64_t n, int64_t k, const void *b, int64_t ldb, void *packed);
/* C = act(C * add + AB + bias). With a unit, of 8-bit integers: C is float32, act((AB - less) unit
** scale + bias), all of them arrays: unit over the rows, the others over the columns. */
struct gemm_epilogue {
  const void *bias;
  int act;
  bool add;
  const float *unit, *scale;
  const int32_t *less;
};
int gemm_packed(int dtype, bool ta, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
    const void *packed, void *c, int64_t ldc, const struct gemm_epilogue *e);
int gemm_fused(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a,
    int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, const struct gemm_epilogue *e);
/* Applies an activation (kernel/epilogue.h), as the end of a product does, to n numbers of TY_F32
** or TY_F64. */
void gemm_act(int dtype, int act, int64_t n, void *x);
/* Computes out = g times the slope of gelu at x, n numbers of float32. out may be x or g. */
void gemm_gelu_back(int64_t n, const float *x, const float *g, float *out);
int gemm_batch(int dtype, bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k,
    double alpha, const void *a, int64_t sa, const void *b, int64_t sb, double beta, void *c,
    int64_t sc);

/* Returns the type of a call's products: GEMM_ROUNDED where it is allowed and faster. */
int    gemm_type_for(const struct call *c, int dtype);

/* Both gradients of a product: dx (m x k) = G W, dw (n x k) = G^T X, db (n) = the sums of G's
** columns; NULL: not wanted. G (m x n), X (m x k) and W (n x k) are in panels (gemm_pack); G
** may be written row by row (gemm_panel_row). */
struct gemm_both {
  int dtype;
  int64_t m, n, k;
  const void *g, *x, *w;
  void *dx, *dw, *db;
  bool add_x, add_w, add_b;
};
void   gemm_both(const struct gemm_both *g);
void   gemm_panel_row(int dtype, int64_t m, int64_t n, int64_t i, const void *row, void *panels);

/* State of an instruction with a weight: packed at the first run, and again when the array has
** changed (or may have: it has no version). gemm_kept_buffer gives the bytes and says whether they
** still hold what was packed. NULL: out of memory. */
struct gemm_kept { uint64_t version; const void *of; void *packed; size_t bytes; };
/* Returns whether an instruction keeps the weight packed: it has a version, and is not large. */
bool   gemm_keeps(const struct call *c, const struct operand *weight);
const void *gemm_keep(struct gemm_kept *s, int type, const struct operand *weight, bool tb,
    int64_t n, int64_t k, int64_t ldb);
void  *gemm_kept_buffer(
    struct gemm_kept *s, const struct operand *weight, size_t bytes, bool *fresh);
/* Returns the bytes of a struct gemm_kept: `state` of a kernel that keeps one weight. */
size_t gemm_kept_bytes(const struct call *c);
/* Frees what the struct holds: `done` of such a kernel. */
void   gemm_kept_done(void *state);
/* Refuses with TYCHO_DISABLE=gemm: the reference kernels of the list are taken. */
const char *gemm_refuse(const struct call *c);

/* Computes out[j] (+)= sum over i of a[i * n + j], in an order that depends on the shape alone. */
void   sum_columns(int dtype, int64_t m, int64_t n, const void *a, void *out, bool add);
void   add_to(int dtype, int64_t n, const void *x, void *y);                 /* y += x */
