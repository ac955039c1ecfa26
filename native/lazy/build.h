/* build.h - makes the program of a trace. */
#pragma once
#include "lazy/kept.h"

/* Makes the program. alive: outputs of the calls that run which it keeps for others. */
int  trace_build(const struct trace *t, const uint8_t *alive, int noutput, struct kept **out);
/* Sets every element to 1, in the order of the array's device. */
int  tensor_fill_ones(ty_tensor *x);
/* Counts the values that a program of the trace would write to arrays. */
int  trace_count_ends(const struct trace *t, const uint8_t *alive, int noutput, int *n);
