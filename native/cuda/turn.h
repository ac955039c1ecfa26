/* turn.h - arrays (n, channels, space) with their channels last, and back. */
#pragma once
#include "kernel/kernel.h"

/* Returns whether the two have different layouts. */
bool turn_moves(const ty_desc *d);
int  turn_last(int device, const ty_desc *d, void *to, const void *plain);
int  turn_plain(int device, const ty_desc *d, void *to, const void *last);

/* of many arrays in one launch, each into another one or in its place */
struct turn { const ty_desc *d; void *to; const void *from; };
/* Returns whether an array can be one of many: the channels and space of one of its first axis fit
** into a block's shared memory. */
bool turn_joins(const ty_desc *d);
/* Turns n arrays in one launch. last: as turn_last, else as turn_plain. */
int  turn_many(int device, const struct turn *list, int n, bool last);
