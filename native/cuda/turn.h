/* turn.h - converts arrays (n, channels, space) to channels last, and back. */
#pragma once
#include "kernel/kernel.h"

/* Returns whether channels last is another order of an array's elements. */
bool turn_moves(const ty_desc *d);
/* Converts a plain array to channels last. */
int  turn_last(int device, const ty_desc *d, void *to, const void *plain);
/* Converts an array with channels last to a plain one. */
int  turn_plain(int device, const ty_desc *d, void *to, const void *last);

/* One of several arrays that are converted in one launch. */
struct turn {
  const ty_desc *d;
  void *to;                                           /* may be `from` */
  const void *from;
};
/* Returns whether an array can be one of several: one sample fits into a block's shared memory. */
bool turn_joins(const ty_desc *d);
/* Converts n arrays in one launch: with `last` to channels last, else to plain ones. */
int  turn_many(int device, const struct turn *list, int n, bool last);
