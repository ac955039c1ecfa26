/* attention.h - shared by the rewrite of attention in users' graphs (pass/attention.c) and kernels
** of attention. */
#pragma once
#include "base/base.h"

/* The largest window; larger ones are reduced to it, so that sums of positions do not overflow. */
#define ATTENTION_MOST_WINDOW (INT64_C(1) << 60)

/* The sizes on which a device's choice of attention kernel depends. */
struct attention_widths {
  int device;
  int dtype;
  int precision;                                      /* of products of float32: PRECISION_* */
  int64_t queries;                                    /* number of queries */
  int64_t key;                                        /* numbers of a head's key */
  int64_t value;                                      /* numbers of a head's value */
};
/* Returns whether the attention operator multiplies like plain products of its dtypes on that
** device: both on tensor cores, or both on ordinary ones. */
bool attention_multiplies_alike(const struct attention_widths *h);
/* Registers a back end's function for devices of a kind. */
void attention_register(int kind, bool (*alike)(const struct attention_widths *h));
