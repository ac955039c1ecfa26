/* turn.h - arrays (n, channels, space) with their channels last, and back. */
#pragma once
#include "kernel/kernel.h"

/* Returns whether the two have different layouts. */
bool turn_moves(const ty_desc *d);
int  turn_last(int device, const ty_desc *d, void *to, const void *plain);
int  turn_plain(int device, const ty_desc *d, void *to, const void *last);
