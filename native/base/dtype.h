/* dtype.h - sizes, names and ranges of element types (TY_F32 ...). */
#pragma once
#include "base/base.h"

/* Returns the bytes of an element; 0 for TY_NODTYPE. */
size_t  dtype_size(int dtype);
/* Returns "float32" and so on; "unknown" for a number that is no dtype. */
const char *dtype_name(int dtype);
/* Finds a dtype by its name; TY_EDTYPE: there is none. */
int     dtype_parse(const char *name, int *dtype);
/* Returns whether it is float32, float64, float16 or bfloat16. */
bool    dtype_float(int dtype);
/* Returns the largest n such that the type represents all integers 0 .. n - 1 exactly. */
int64_t dtype_counts(int dtype);
/* Returns the lowest finite number of a float dtype. */
double  dtype_lowest(int dtype);
