/* attention.h - what a device answers to the rewrite of attention (pass/attention.c), and a limit
** that the kernels share. */
#pragma once
#include "base/base.h"

/* A larger window of the operator is cut to this, so that sums of positions do not overflow. */
#define ATTENTION_MOST_WINDOW (INT64_C(1) << 60)

/* The widths by which the way of an attention is chosen. */
struct attention_widths {
  int device;
  int dtype;
  int precision;                                      /* of products of float32: PRECISION_* */
  int64_t queries;                                    /* how many */
  int64_t key;                                        /* numbers of a head's key */
  int64_t value;                                      /* numbers of a head's value */
};
/* Returns whether on the device the attention operator multiplies on the same kind of cores (tensor
** cores or ordinary ones) as products of its types. */
bool attention_multiplies_alike(const struct attention_widths *h);
/* Registers the answer of a back end for devices of a kind. */
void attention_register(int kind, bool (*alike)(const struct attention_widths *h));
