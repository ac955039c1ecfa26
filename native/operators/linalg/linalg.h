/* linalg.h - common parts of the operators on matrices. An array (..., rows, columns) is a stack of
** row-major matrices. */
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/lapack.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

static inline int64_t row_count(const ty_desc *d) { return d->dim[d->ndim - 2]; }
static inline int64_t column_count(const ty_desc *d) { return d->dim[d->ndim - 1]; }
static inline int64_t stack_count(const ty_desc *d)
{
  return desc_count(d) / (row_count(d) * column_count(d));
}
static inline size_t matrix_bytes(const ty_desc *d)
{
  return (size_t)(row_count(d) * column_count(d)) * dtype_size(d->dtype);
}

/* Returns the address of part i of an array that is divided into `parts` equal parts; NULL if the
** array is unused. */
static inline void *part_of(const struct operand *a, int64_t i, int64_t parts)
{
  return a->p ? (char *)a->p + (size_t)(i * (desc_count(&a->d) / parts)) * dtype_size(a->d.dtype)
              : NULL;
}
static inline void *matrix_of(const struct operand *a, int64_t i)
{
  return part_of(a, i, stack_count(&a->d));
}

/* Checks that there are at least two dimensions, and that the sizes of a matrix fit LAPACK's
** int. */
int matrix_check(struct infer *s, const ty_desc *d);
/* Does matrix_check, and merges the last two dimensions, which must be equal. */
int square_check(struct infer *s, ty_desc *d);
/* Converts a result of stack_run to a code, with a failure such as "matrix 3 is not positive
** definite". */
int stack_report(int64_t bad, const char *what);
/* Converts a result of stack_run for matrix functions that fail only if out of memory, or never. */
int products_report(int64_t bad);
