/* triangular.h - matrices times triangles and equations with them (triangular.c), for gradients
** that are made of these. */
#pragma once
#include "cuda/family.h"

/* as kernels/triangular.cu has it; lower: of A itself */
struct triangle_args {
  int64_t count, m, n, side;
  int32_t right, lower, transpose, unused;
  double  factor;
};
/* Runs "triangle_multiply" or "triangle_solve" with op(A) on matrices `from`, which of equations
** may be `to`. */
int cuda_triangle(const struct call *c, const char *name, struct triangle_args s, int dtype,
    void *to, const void *a, const void *from);
/* the kernels of potri, whose row is in solve.c with its gradient */
extern const struct kernel cuda_potri[];
