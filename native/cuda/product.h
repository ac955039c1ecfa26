/* product.h - products of matrices on a GPU, by cublasLt. */
#pragma once
#include "cuda/cuda.h"

/* A product is made for a call: on its device, float32 by TF32 where its precision allows that.
** C = act(alpha op(A) op(B) + beta C + bias), row-major, `batch` times with strides in elements.
** op(A) is m x k, op(B) is k x n; ld: elements from row to row in memory. bias: n numbers.
** sums: the bias is a result instead, the sums of op(A)'s rows (m numbers). onto: what beta
** multiplies, laid out as C; NULL: what C holds. */
struct product {
  int dtype;
  bool ta, tb, biased, relu, sums;
  int64_t m, n, k, lda, ldb, ldc;
  int64_t batch, stride_a, stride_b, stride_c;
  double alpha, beta;
  const void *onto;
};
/* what was decided for a product; zero-initialised in a kernel's state, freed by product_done */
struct product_plan;
/* Returns the bytes of workspace that it needs, 0 also where that is unknown. */
size_t product_workspace(const struct call *c, const struct product *p);
/* Returns NULL where cublasLt is there and does it, else the reason. */
const char *product_refuse(const struct call *c, const struct product *p);
/* Runs a product in a workspace of product_workspace bytes. Writes `bias` if it has sums. */
int  product_run(const struct call *call, const struct product *p, struct product_plan **plan,
    const void *a, const void *b, const void *bias, void *c, void *workspace);
void product_done(struct product_plan *plan);

/* A product and the sums of op(A)'s rows, where A is turned and packed: gradients of a weight and
** of a bias. Zero-initialised; `plan` is freed by product_done. */
struct product_with_sums {
  struct product_plan *plan;
  bool apart;                                         /* no plan makes the sums, too */
};
/* Returns the bytes of workspace that it needs with or without the library. */
size_t product_sums_workspace(const struct call *c, const struct product *p);
/* Runs a product with sums, which replace what `sums` holds, or with `add` are added to it. */
int product_run_sums(const struct call *call, const struct product *p,
    struct product_with_sums *made, const void *a, const void *b, void *c, void *sums, bool add,
    void *workspace);
