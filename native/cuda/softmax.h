/* softmax.h - shared by softmax losses (softmax.c, kernels/softmax_loss.cu). */
#pragma once
#include "cuda/family.h"

/* Launches n threads of a kernel of the family for these dtypes of data, softmax and labels. */
int softmax_loss_start(const struct call *c, const char *name, int data, int soft, int label,
    int team, int64_t n, void **params);
/* Returns the operator's ignore_label as a whole number. */
int64_t softmax_ignored_label(const struct call *c);
/* Counts the labels that differ from ignore_label, into an int64_t in device memory. */
int softmax_count_valid(const struct call *c, const struct operand *label, void *count);
