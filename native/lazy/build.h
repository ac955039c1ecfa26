/* build.h - makes the program of a trace. */
#pragma once
#include "lazy/kept.h"

/* Makes the program of a trace, which kept_free frees. alive: per output of the calls that run, in
** their order: an array has it, so the program must write it. */
int  trace_build(const struct trace *t, const uint8_t *alive, int noutput, struct kept **out);
/* Queues a call that sets every element of x to 1. */
int  tensor_fill_ones(ty_tensor *x);
/* Counts the outputs that trace_build's program would write to arrays, into *n. */
int  trace_count_ends(const struct trace *t, const uint8_t *alive, int noutput, int *n);
