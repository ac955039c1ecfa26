/* reduce.h - reductions over axes on a GPU, planned by kernel/reduce/reduce.h. */
#pragma once
#include "cuda/family.h"
#include "kernel/reduce/reduce.h"

/* beside the kinds of reduce.h: the sum of x (other - centre) */
enum { R_DOT = R_KINDS };
/* y, of dtype `to`, from x; `other`: as x; centre: as y, one per result. add: onto what y holds */
struct cuda_reduce {
  int kind, finish, to;
  const void *x, *other, *centre;
  void *y;
  bool add;
};
size_t cuda_reduce_scratch(const struct reduce *r);
/* Runs a reduction. tmp: cuda_reduce_scratch bytes; NULL: there are none, and few results take
** long. */
int cuda_reduce(int device, const struct reduce *r, const struct cuda_reduce *f, void *tmp);
/* The same in two halves: what kernels/reduce.cu is compiled for, and the launch of what was, whose
** argument `elements` points to: a pointer to x, or what a pointwise program reads. */
struct reduce_words { char s[224]; };
struct reduce_words cuda_reduce_words(const struct reduce *r, const struct cuda_reduce *f);
int cuda_reduce_launch(int device, cu_function run, const struct reduce *r,
    const struct cuda_reduce *f, void *elements, void *tmp);
/* Returns the reduction of (outer, k, inner), of which k stays. */
struct reduce cuda_reduce_all_but(int dtype, int64_t outer, int64_t k, int64_t inner);

/* Sums src over the axes that dst lacks or has as 1. */
int cuda_sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);
