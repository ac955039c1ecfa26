/* gradient.h - what the gradient pass is asked for and what it answers. */
#pragma once
#include "graph/graph.h"

struct descs { ty_desc *d; int cap; };                /* one per value; grows with the graph */
struct gradient_wish {
  const ty_entry *head; int nhead;
  const uint8_t  *wanted;                             /* per node: a variable whose gradient is asked for */
  const uint8_t  *mirror;                             /* per node: recompute it in the backward part; NULL: none */
  int             cap;                                /* from this many contributions on: a chain of additions */
};
struct gradient {                                     /* arrays of the caller */
  ty_entry *of;                                       /* per forward node: entry of its gradient; node -1: not asked for */
  ty_entry *head;                                     /* per head: the variable of its gradient; node -1: nobody reads it */
};
int  gradient_append(ty_graph *g, struct descs *d, const struct gradient_wish *wish, struct gradient *out);
bool mirrored(const struct node *n, bool all);        /* is this node to be recomputed? all: whatever qualifies */
