/* reduce.h - reductions over axes on a GPU, planned by kernel/reduce/reduce.h. */
#pragma once
#include "cuda/family.h"
#include "kernel/reduce/reduce.h"

/* One more kind: the sum of x (other - centre). */
enum { R_DOT = R_KINDS };
struct cuda_reduce {
  int kind;                                           /* R_* */
  int finish;                                         /* F_* */
  int to;                                             /* dtype of y and centre */
  const void *x;
  const void *other;                                  /* R_DOT: has the layout of x */
  const void *centre;                                 /* R_DOT: a number for each result */
  void *y;
  bool add;                                           /* adds to y */
};
size_t cuda_reduce_scratch(const struct reduce *r);
/* Runs a reduction. tmp: cuda_reduce_scratch bytes; NULL: results are not divided into parts, which
** is slow if there are few. */
int cuda_reduce(int device, const struct reduce *r, const struct cuda_reduce *f, void *tmp);
/* Words of kernels/reduce.cu, see cuda_reduce_words. */
struct reduce_words { char s[224]; };
/* First half of cuda_reduce, for reductions of a pointwise program's results: returns the words
** with which kernels/reduce.cu is compiled. */
struct reduce_words cuda_reduce_words(const struct reduce *r, const struct cuda_reduce *f);
/* Second half: launches the compiled kernel. elements: points to the pointer to x, or to the
** argument struct of the pointwise program. */
int cuda_reduce_launch(int device, cu_function run, const struct reduce *r,
    const struct cuda_reduce *f, void *elements, void *tmp);
/* Returns the reduction of (outer, k, inner) to k. */
struct reduce cuda_reduce_all_but(int dtype, int64_t outer, int64_t k, int64_t inner);

/* Sums src over the axes that dst lacks or has with size 1. */
int cuda_sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);
