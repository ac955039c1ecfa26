/* dtype.h - element types: TY_F32 and its like, in bytes and words. */
#pragma once
#include "base/base.h"

size_t  dtype_size(int dtype);                        /* bytes of an element; 0 for TY_NODTYPE */
const char *dtype_name(int dtype);                    /* "float32"; "unknown" */
int     dtype_parse(const char *name, int *dtype);    /* TY_EDTYPE */
bool    dtype_float(int dtype);                       /* float32 float64 float16 bfloat16 */
/* Returns the largest n such that all of 0 .. n - 1 are numbers of the type. */
int64_t dtype_counts(int dtype);
double  dtype_lowest(int dtype);                      /* lowest finite number of a float dtype */
