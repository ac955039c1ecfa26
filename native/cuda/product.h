/* product.h - products of matrices on a GPU, by cublasLt. */
#pragma once
#include "cuda/cuda.h"

/* C = act(alpha op(A) op(B) + beta onto + bias), row-major. It runs on the device of a call,
** float32 by TF32 where the call's precision allows that. */
struct product {
  int dtype;
  bool ta, tb;                                        /* op transposes */
  bool biased;                                        /* bias: n numbers */
  bool relu;                                          /* act is relu */
  bool sums;                                          /* bias is a result: m sums of op(A)'s rows */
  int64_t m, n, k;                                    /* op(A) is m x k, op(B) is k x n */
  int64_t lda, ldb, ldc;                              /* elements from one row to the next */
  int64_t batch;                                      /* number of such products */
  int64_t stride_a, stride_b, stride_c;               /* elements from one product to the next */
  double alpha, beta;
  const void *onto;                                   /* laid out as C; NULL: C itself */
};
/* What was decided for a product. Zero-initialised in a kernel's state, freed by product_done. */
struct product_plan;
/* Returns the bytes of workspace that a product needs, 0 also where that is unknown. */
size_t product_workspace(const struct call *c, const struct product *p);
/* Returns NULL where cublasLt is there and computes it, else the reason. */
const char *product_refuse(const struct call *c, const struct product *p);
/* Runs a product in a workspace of product_workspace bytes. Writes `bias` if it has sums. */
int  product_run(const struct call *call, const struct product *p, struct product_plan **plan,
    const void *a, const void *b, const void *bias, void *c, void *workspace);
void product_done(struct product_plan *plan);

/* A product and the sums of op(A)'s rows, where A is transposed and dense: gradients of a weight
** and of a bias. Zero-initialised; `plan` is freed by product_done. */
struct product_with_sums {
  struct product_plan *plan;
  bool apart;                                         /* sums are computed by another kernel */
};
/* Returns the bytes of workspace that it needs with or without the library. */
size_t product_sums_workspace(const struct call *c, const struct product *p);
/* Runs a product with sums, which replace what `sums` holds, or with `add` are added to it. */
int product_run_sums(const struct call *call, const struct product *p,
    struct product_with_sums *made, const void *a, const void *b, void *c, void *sums, bool add,
    void *workspace);
