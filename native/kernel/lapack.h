/* lapack.h - factorisations of dense row-major matrices by OpenBLAS: float32 and float64, one
** matrix per call, on the calling thread.
**
** LAPACK is column-major and so sees the transpose; functions hide this. Functions of type int
** return 0, or another number in the cases listed as "bad". stack_run distributes the matrices of a
** call over the cores. */
#pragma once
#include "kernel/kernel.h"

/* Factorizes a in place (Cholesky); the other triangle becomes 0. Bad: not positive definite. */
int    cholesky_factor(int dtype, bool lower, int64_t n, void *a);
/* Replaces a triangle a by (a a^T)^-1 (lower) or (a^T a)^-1, with both triangles. Bad: a zero on
** the diagonal. */
int    cholesky_inverse(int dtype, bool lower, int64_t n, void *a);
/* Computes b (m, n) = alpha op(a) b or alpha b op(a). */
void triangle_multiply(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b);
/* Computes b (m, n) = alpha op(a)^-1 b or alpha b op(a)^-1. */
void triangle_solve(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b);
/* Factorizes the transpose of a in place (LU). Bad: singular. */
int    lu_factor(int dtype, int64_t n, void *a, int32_t *pivot);
/* Replaces the result of lu_factor by the inverse of its matrix. */
int    lu_inverse(int dtype, int64_t n, void *a, const int32_t *pivot, void *work);
/* Factorizes a (m, n) = l q, m <= n; a becomes q. */
void   lq_factor(int dtype, int64_t m, int64_t n, void *a, void *l, void *work);
/* Computes eigenvalues, ascending, of a symmetric matrix a, whose lower triangle is read; the rows
** of a become the eigenvectors. Bad: no convergence. */
int    eigen_symmetric(int dtype, int64_t n, void *a, void *values, void *work);
/* Return the bytes of `work`. */
size_t lu_inverse_work(int dtype, int64_t n);
size_t lq_work(int dtype, int64_t m);
size_t eigen_work(int dtype, int64_t n);

/* Calls one(c, i, work) for matrices 0 .. n - 1, in parallel, each member of the team with its own
** `work` bytes in c->tmp (stack_scratch). Returns STACK_GOOD, the smallest i for which a result was
** not 0, or STACK_REFUSED with TY_EMEMORY set if LAPACK has no memory. cost: numbers accessed by
** one call. */
enum { STACK_GOOD = -1, STACK_REFUSED = -2 };
int64_t stack_run(struct call *c, int64_t n, double cost, size_t work,
    int (*one)(struct call *c, int64_t i, void *work));
size_t  stack_scratch(size_t work);
