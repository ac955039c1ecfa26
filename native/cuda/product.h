/* product.h - products of matrices on a GPU, by cublasLt. */
#pragma once
#include "cuda/cuda.h"

/* C = act(alpha op(A) op(B) + beta onto + bias), row-major. float32 is multiplied by TF32 if the
** call's precision allows it. */
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
/* The descriptors and algorithm of a product. A kernel's state has a pointer to it, initially NULL;
** product_done frees it. */
struct product_plan;
/* Returns the bytes of workspace that a product needs; 0 also if that is unknown. */
size_t product_workspace(const struct call *c, const struct product *p);
/* Returns NULL if cublasLt is available and supports the product, else the reason. */
const char *product_refuse(const struct call *c, const struct product *p);
/* Runs a product in a workspace of product_workspace bytes. With `sums` it writes `bias`. */
int  product_run(const struct call *call, const struct product *p, struct product_plan **plan,
    const void *a, const void *b, const void *bias, void *c, void *workspace);
void product_done(struct product_plan *plan);

/* State of a product that also sums op(A)'s rows, for the gradients of a weight and a bias; A is
** transposed and dense. Zero-initialised; `plan` is freed by product_done. */
struct product_with_sums {
  struct product_plan *plan;
  bool apart;                                         /* another kernel computes the sums */
};
/* Returns the bytes of workspace of product_run_sums. */
size_t product_sums_workspace(const struct call *c, const struct product *p);
/* Runs a product with sums, which are written to `sums`, or with `add` added. */
int product_run_sums(const struct call *call, const struct product *p,
    struct product_with_sums *made, const void *a, const void *b, void *c, void *sums, bool add,
    void *workspace);
