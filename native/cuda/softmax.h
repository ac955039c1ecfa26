/* softmax.h - functions shared by softmax losses (softmax.c, linear_cross_entropy.c;
** kernels/softmax_loss.cu). */
#pragma once
#include "cuda/family.h"

/* Launches n threads of kernel `name` of kernels/softmax_loss.cu for these dtypes of data, softmax
** and labels. params: addresses of its parameters. */
int softmax_loss_start(const struct call *c, const char *name, int data, int soft, int label,
    int team, int64_t n, void **params);
/* Returns the operator's ignore_label, truncated to an integer and clipped to +-1e15. */
int64_t softmax_ignored_label(const struct call *c);
/* Writes the number of labels that differ from ignore_label to `count`, an int64_t in device
** memory. */
int softmax_count_valid(const struct call *c, const struct operand *label, void *count);
