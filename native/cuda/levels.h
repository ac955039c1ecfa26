/* levels.h - what operators on 8-bit integers of a range share. */
#pragma once
#include "cuda/family.h"

static inline bool cuda_level(int dtype) { return dtype == TY_I8 || dtype == TY_U8; }
/* Gives a kernel of kernels/levels.cu on numbers of these types. */
int cuda_levels_family(
    const struct call *c, const char *name, int data, int result, cu_function *f);
/* Outputs 1 and 2, a range, become inputs k and k + 1. */
int cuda_keep_range(const struct call *c, int k);
/* refuses data that are no 8-bit integers */
const char *cuda_refuse_numbers(const struct call *c);
