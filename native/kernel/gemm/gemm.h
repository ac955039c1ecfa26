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
** gemm_kept   the packed copy of a weight that a step keeps between runs (in its state).
** Sums over k are in a fixed order for a given shape: equal settings give equal bits.
*/
#pragma once
#include "kernel/kernel.h"

/* rows of A up to which long sums with a transposed B read B as it is */
enum { GEMM_FEW = 16 };
/* Types of products besides TY_F32 and TY_F64. */
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
/* The type whose products of levels of -127 .. 127 take the fewest instructions, and the number
** that is added to each level for it (isa/narrow.c). */
#ifdef __aarch64__
enum { GEMM_LEVELS = GEMM_S8, GEMM_LEVELS_SHIFT = 0 };
#else
enum { GEMM_LEVELS = GEMM_U8, GEMM_LEVELS_SHIFT = 128 };
#endif
/* Computes C = alpha op(A) op(B) + beta C. ta, tb: op transposes. Returns a code. */
int gemm_one(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
    const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
/* Returns the bytes of a packed B. */
size_t gemm_pack_bytes(int dtype, int64_t n, int64_t k);
/* Packs op(B) into `packed`, of gemm_pack_bytes. */
void gemm_pack(int dtype, bool tb, int64_t n, int64_t k, const void *b, int64_t ldb, void *packed);

/* The end of a product: C = act(op(A) op(B) + C + bias), C only with `add`. Of 8-bit integers with
** a unit (levels.h): C is float32, act((op(A) op(B) - zero_term) unit scale + bias). */
struct gemm_epilogue {
  const void *bias;                                   /* per column; NULL: none */
  int act;                                            /* ACT_* */
  bool add;
  const float *unit;                                  /* per row; NULL: C gets the sums */
  const float *scale;                                 /* per column */
  const int32_t *zero_term;                           /* per column */
};
/* Computes a product with a packed B. e NULL: C = op(A) B. Returns a code. */
int gemm_packed(int dtype, bool ta, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
    const void *packed, void *c, int64_t ldc, const struct gemm_epilogue *e);
/* Computes the same with a B that is not packed. e is not NULL, k > 0. Returns a code. */
int gemm_fused(int dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a,
    int64_t lda, const void *b, int64_t ldb, void *c, int64_t ldc, const struct gemm_epilogue *e);
/* Applies an activation (kernel/epilogue.h), as the end of a product does, to n numbers of TY_F32
** or TY_F64. */
void gemm_act(int dtype, int act, int64_t n, void *x);
/* Computes out = g times the slope of gelu at x, n numbers of float32. out may be x or g. */
void gemm_gelu_back(int64_t n, const float *x, const float *g, float *out);
/* Computes `batch` products of dense matrices, which are sa, sb and sc elements apart. Returns a
** code. */
int gemm_batch(int dtype, bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k,
    double alpha, const void *a, int64_t sa, const void *b, int64_t sb, double beta, void *c,
    int64_t sc);

/* Returns the type of a call's products: GEMM_ROUNDED where it is allowed and faster. */
int    gemm_type_for(const struct call *c, int dtype);

/* Both gradients of Y = X W^T from G, the gradient of Y, which is computed in parts. */
struct gemm_both {
  int dtype;                                          /* TY_F32, TY_F64 */
  int64_t m, n, k;
  /* sets n elements of a row of G, from a column on; called by several threads */
  void (*fill)(const void *context, int64_t row, int64_t column, int64_t n, void *out);
  const void *context;
  const void *x;                                      /* m x k; dx may be in its place */
  const void *w;                                      /* n x k */
  /* results; NULL: not wanted */
  void *dx;                                           /* m x k: G W */
  void *dw;                                           /* n x k: G^T X */
  void *db;                                           /* n: sums of G's columns */
  bool add_x;                                         /* adds to dx instead of replacing it */
  bool add_w;                                         /* the same of dw */
  bool add_b;                                         /* the same of db */
  void *tmp;                                          /* of gemm_both_bytes */
};
/* Computes both gradients; where Ctrl-C asks to stop (base/stop.h) it returns early, with
** incomplete results. */
void   gemm_both(const struct gemm_both *g);
/* Returns the scratch bytes that gemm_both needs; at bind, those of the largest team. */
size_t gemm_both_bytes(int dtype, int64_t m, int64_t n, int64_t k);

/* The packed weight of a step, in its state. It is packed at the first run, and again when the
** array has changed, or may have changed since it has no version. */
struct gemm_kept {
  uint64_t version;                                   /* of the array when it was packed */
  const void *of;                                     /* its address then */
  void *packed;
  size_t bytes;
};
/* Returns whether a step keeps the weight packed: it has a version, and is not large. */
bool   gemm_keeps(const struct call *c, const struct operand *weight);
/* Returns the packed weight, which belongs to s. NULL: out of memory. */
const void *gemm_keep(struct gemm_kept *s, int type, const struct operand *weight, bool tb,
    int64_t n, int64_t k, int64_t ldb);
/* Returns the memory for a weight that the caller packs in its own way. *fresh: it still holds this
** weight, packed. NULL: out of memory. */
void  *gemm_kept_buffer(
    struct gemm_kept *s, const struct operand *weight, size_t bytes, bool *fresh);
/* Returns the bytes of a struct gemm_kept: `state` of a kernel that keeps one weight. */
size_t gemm_kept_bytes(const struct call *c);
/* Frees what the struct holds: `done` of such a kernel. */
void   gemm_kept_done(void *state);
/* Serves as `refuse` of kernels: with TYCHO_DISABLE=gemm the reference kernels are taken. */
const char *gemm_refuse(const struct call *c);

/* Computes out[j] (+)= sum over i of a[i * n + j], in an order that depends on the shape alone. */
void   sum_columns(int dtype, int64_t m, int64_t n, const void *a, void *out, bool add);
/* Computes y += x. */
void   add_to(int dtype, int64_t n, const void *x, void *y);
