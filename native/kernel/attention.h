/* attention.h - what the rewrite of attention in users' graphs asks of a device. */
#pragma once
#include "base/base.h"

/* Of _contrib_attention on a device: how many queries, and numbers of a head's key and value;
** precision: PRECISION_*, of products of float32. */
struct attention_widths { int device, dtype, precision; int64_t queries, key, value; };
/* Returns whether the operator multiplies there as products of its types do: both on tensor cores,
** or on ordinary ones. Back ends register their answer. */
bool attention_multiplies_alike(const struct attention_widths *h);
void attention_register(int kind, bool (*alike)(const struct attention_widths *h));
