/* lapack.h - factorisations of dense row-major matrices by OpenBLAS; float32 and float64; one
** matrix a call, one thread.
**
** LAPACK reads columns first and therefore sees the transpose of ours: a lower triangle is its
** upper one, rows are its columns. All of that is dealt with here. Results named `bad` are 0
** when all is well. stack_run hands the matrices of a call out to the cores.
*/
#pragma once
#include "kernel/kernel.h"

/* Factorizes a in place; the other triangle becomes 0. Bad: not positive definite. */
int    cholesky_factor(int dtype, bool lower, int64_t n, void *a);
/* Computes (a a^T)^-1 or (a^T a)^-1, whole. Bad: zero diagonal. */
int    cholesky_inverse(int dtype, bool lower, int64_t n, void *a);
/* Computes b (m, n) = alpha op(a) b or alpha b op(a). */
void triangle_multiply(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b);
/* Computes b (m, n) = alpha op(a)^-1 b or alpha b op(a)^-1. */
void triangle_solve(int dtype, bool right, bool lower, bool transpose, int64_t m, int64_t n,
    double alpha, const void *a, void *b);
/* Factorizes the transpose of a in place. Bad: singular. */
int    lu_factor(int dtype, int64_t n, void *a, int32_t *pivot);
/* Inverts a, which lu_factor has made, in place. */
int    lu_inverse(int dtype, int64_t n, void *a, const int32_t *pivot, void *work);
/* Factorizes a (m, n) = l q, m <= n; a becomes q. */
void   lq_factor(int dtype, int64_t m, int64_t n, void *a, void *l, void *work);
/* Computes eigenvalues of a symmetric matrix, of which the lower triangle is read; rows of a become
** eigenvectors of ascending values. Bad: not found. */
int    eigen_symmetric(int dtype, int64_t n, void *a, void *values, void *work);
size_t lu_inverse_work(int dtype, int64_t n);         /* bytes */
size_t lq_work(int dtype, int64_t m);
size_t eigen_work(int dtype, int64_t n);

/* Calls one(c, i, work) for each matrix i of n, each member of the team with `work` bytes of its
** own in c->tmp (stack_scratch). Returns the first i for which it was not 0, STACK_GOOD, or
** STACK_REFUSED, where LAPACK has no memory (see fail). cost: numbers touched by one call. */
enum { STACK_GOOD = -1, STACK_REFUSED = -2 };
int64_t stack_run(struct call *c, int64_t n, double cost, size_t work,
    int (*one)(struct call *c, int64_t i, void *work));
size_t  stack_scratch(size_t work);
