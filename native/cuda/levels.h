/* levels.h - shared by operators on 8-bit integers that represent a range. */
#pragma once
#include "cuda/family.h"

static inline bool cuda_level(int dtype) { return dtype == TY_I8 || dtype == TY_U8; }
/* Launches n threads of a kernel of kernels/levels.cu for these dtypes of data and result. levels:
** the largest level of the data; 0: the data are plain numbers. */
int cuda_start_levels(const struct call *c, const char *name, int data, int result, double levels,
    int64_t n, void **params);
/* Copies inputs k and k + 1, a range, to outputs 1 and 2. */
int cuda_keep_range(const struct call *c, int k);
/* Returns the reason to refuse a call whose data are not 8-bit integers, else NULL. */
const char *cuda_refuse_numbers(const struct call *c);
