/* turn.h - arrays (n, channels, space) with their channels last, and back. */
#pragma once
#include "kernel/kernel.h"

/* Returns whether an array's elements are in another order with its channels last. */
bool turn_moves(const ty_desc *d);
/* Writes an array with its channels last. */
int  turn_last(int device, const ty_desc *d, void *to, const void *plain);
/* Writes an array with its channels second, from one with its channels last. */
int  turn_plain(int device, const ty_desc *d, void *to, const void *last);

/* One of many arrays that are turned in one launch. */
struct turn {
  const ty_desc *d;
  void *to;                                           /* may be `from` */
  const void *from;
};
/* Returns whether an array can be one of many: the channels and space of one of its first axis fit
** into a block's shared memory. */
bool turn_joins(const ty_desc *d);
/* Turns n arrays in one launch. last: as turn_last, else as turn_plain. */
int  turn_many(int device, const struct turn *list, int n, bool last);
