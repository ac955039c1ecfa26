/* cusolver.h - the part of cuSOLVER's dense interface that is used here, declared by hand as in
** driver.h. Matrices are column-major. All functions return cusolverStatus_t. */
#pragma once
#include "cuda/driver.h"

typedef struct solver_context *solver_handle;
enum { SOLVER_PLAIN = 0, SOLVER_UPPER = 1, SOLVER_VECTORS = 1 };

#define SOLVER_FUNCTIONS(_) \
  _(Create,    "cusolverDnCreate", (solver_handle *)) \
  _(SetStream, "cusolverDnSetStream", (solver_handle, cu_stream))

/* names after cusolverDnS and cusolverDnD; sizes are in elements */
#define SOLVER_TYPED(_) \
  _(getrf_size, "getrf_bufferSize", (solver_handle, int, int, void *, int, int *)) \
  _(getrf, "getrf", (solver_handle, int, int, void *, int, void *, int *, int *)) \
  _(getrs, "getrs", \
    (solver_handle, int, int, int, const void *, int, const int *, void *, int, int *)) \
  _(geqrf_size, "geqrf_bufferSize", (solver_handle, int, int, void *, int, int *)) \
  _(geqrf, "geqrf", (solver_handle, int, int, void *, int, void *, void *, int, int *)) \
  _(orgqr_size, "orgqr_bufferSize", \
    (solver_handle, int, int, int, const void *, int, const void *, int *)) \
  _(orgqr, "orgqr", \
    (solver_handle, int, int, int, void *, int, const void *, void *, int, int *)) \
  _(syevd_size, "syevd_bufferSize", \
    (solver_handle, int, int, int, const void *, int, const void *, int *)) \
  _(syevd, "syevd", \
    (solver_handle, int, int, int, void *, int, void *, void *, int, int *))

#define DECLARE(name, symbol, arguments) int (*name) arguments;
struct solver_functions { SOLVER_FUNCTIONS(DECLARE) };
struct solver_typed { SOLVER_TYPED(DECLARE) };
#undef DECLARE
