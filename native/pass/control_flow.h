/* control_flow.h - control flow (_foreach, _while_loop, _cond): inference through the bodies,
** and their expansion. */
#pragma once
#include "graph/graph.h"

/* What the bodies say about a node's inputs and outputs; INFER_SHAPES or INFER_TYPES as `what`. */
int  control_infer(const struct node *n, struct infer *s, int what);
bool control_used(const ty_graph *g);                 /* some node has bodies */
