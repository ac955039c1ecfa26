/* control_flow.h - control flow (_foreach, _while_loop, _cond): inference through the bodies,
** and their expansion. */
#pragma once
#include "graph/graph.h"

/* What the bodies say about a node's inputs and outputs; INFER_SHAPES or INFER_TYPES as `what`. */
int  control_infer(const struct node *n, struct infer *s, int what);
bool control_used(const ty_graph *g);                 /* some node has bodies */
/* A copy of g without bodies. to_node[i]: the copy of node i (-1: expanded); head[] is moved. */
int control_expand(
    ty_graph *g, const ty_desc *desc, ty_entry *head, int nhead, ty_graph **out, int *to_node);
