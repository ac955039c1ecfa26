/* attention.h - what the rewrite of attention in users' graphs asks of a device, and what its
** kernels share. */
#pragma once
#include "base/base.h"

/* A larger window of the operator is cut to this, so that sums of positions do not overflow. */
#define ATTENTION_MOST_WINDOW (INT64_C(1) << 60)

/* What decides which attention a device computes. */
struct attention_widths {
  int device;
  int dtype;
  int precision;                                      /* of products of float32: PRECISION_* */
  int64_t queries;                                    /* how many */
  int64_t key;                                        /* numbers of a head's key */
  int64_t value;                                      /* numbers of a head's value */
};
/* Returns whether the operator multiplies there as products of its types do: both on tensor cores,
** or on ordinary ones. Back ends register their answer. */
bool attention_multiplies_alike(const struct attention_widths *h);
void attention_register(int kind, bool (*alike)(const struct attention_widths *h));
