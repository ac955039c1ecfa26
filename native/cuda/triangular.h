/* triangular.h - products with triangular matrices and solutions of equations with them
** (triangular.c), also for gradients of other operators. */
#pragma once
#include "cuda/family.h"

/* Same as in kernels/triangular.cu, except lower, which here describes A itself, not op(A). */
struct triangle_args {
  int64_t count, m, n, side;
  int32_t right, lower, transpose, unused;
  double  factor;
};
/* Runs kernel "triangle_multiply" or "triangle_solve" with op(A) on the matrices `from`. For
** solving, `to` may be `from`. */
int cuda_triangle(const struct call *c, const char *name, struct triangle_args s, int dtype,
    void *to, const void *a, const void *from);
/* Kernels of potri, for the table in solve.c. */
extern const struct kernel cuda_potri[];
