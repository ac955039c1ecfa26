/* extract.h - a graph of its own for an executor. */
#pragma once
#include "graph/graph.h"

/* Copies what the heads reach, numbered depth-first from them (the order of lists in the
** reference). merge: equal pure nodes become one, but not losses, each of which adds its gradient;
** where heads become equal by this, the later ones become copies of the first. The result keeps g
** alive and shares its texts. */
int graph_extract(
    ty_graph *g, const ty_entry *head, int nhead, bool merge, ty_graph **out, ty_entry *new_head);
/* Makes a raw copy of node `from` of a graph that `to` keeps alive; in: its inputs in `to`. */
int graph_borrow(ty_graph *to, const struct node *from, const ty_entry *in, ty_entry *out);
/* Orders what the heads reach depth-first: order[] of node indices. Returns their number; -1: out
** of memory. */
int graph_order(const ty_graph *g, const ty_entry *head, int nhead, int *order);
