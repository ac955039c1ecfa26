/* gradient.h - what the gradient pass is asked for and what it answers. */
#pragma once
#include "pass/rewrite.h"

/* one per value; grows with the graph */
struct descs { ty_desc *d; int cap; };
struct gradient_request {
  const ty_entry *head;
  int nhead;
  /* per head: a gradient comes for it; NULL: for all */
  const bool *head_has_grad;
  /* per node: a variable whose gradient is asked for */
  const uint8_t  *requested;
  /* per node: recompute it in the backward part; NULL: none */
  const uint8_t  *mirror;
  /* from this many contributions on: a chain of additions */
  int             cap;
};
struct gradient {                                     /* arrays of the caller */
  /* per forward node: entry of its gradient; node -1: not asked for */
  ty_entry *of;
  /* per head: the variable of its gradient; node -1: it is not read */
  ty_entry *head;
};
/* Returns whether a node's inputs may have gradients where no head gradient comes: those of losses,
** and of operators that add a part of their own. */
bool gradient_is_own(const struct node *n);
/* Returns whether a node is to be recomputed. all: whatever qualifies. */
bool node_is_mirrored(const struct node *n, bool all);
