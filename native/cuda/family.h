/* family.h - kernels of our own: a family is a file of CUDA C++ in kernels/, embedded as text, that
** is compiled for the dtypes and constants of a call. */
#pragma once
#include "cuda/cuda.h"

/* the files of kernels/, by name (sources.c) */
#define CUDA_FAMILIES(_) \
  _(convert) \
  _(sum_to)

enum cuda_family {
#define ID(name) FAMILY_##name,
  CUDA_FAMILIES(ID)
#undef ID
};

/* Kernel `name` of a family with `defines`: "T=float N=3", each word one -D. */
int cuda_family(
    int device, enum cuda_family family, const char *defines, const char *name, cu_function *out);
/* name of a dtype in kernels/prelude.cuh: "float", "f16", "i32" ... */
const char *cuda_type(int dtype);

/* What most kernels of families keep as their state: their function, found at the first run. */
struct cuda_state { cu_function f; };
size_t cuda_state_size(const struct call *c);
/* state of the call, with the function that family, defines and name give */
int cuda_state(const struct call *c, enum cuda_family family, const char *name, cu_function *out,
    const char *defines, ...) __attribute__((format(printf, 5, 6)));
/* blocks for n threads in blocks of `block`, at most so many that the device is busy */
int64_t cuda_blocks(int device, int64_t n, int block);

int cuda_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
int cuda_sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);
/* the same; add: onto what dst holds */
int cuda_sum_rows(int device, void *dst, const ty_desc *dst_d, const void *src,
    const ty_desc *src_d, bool add);

/* tables of kernels, by the names of their files */
#define CUDA_TABLES(_) \
  _(matrices)
