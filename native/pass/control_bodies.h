/* control_bodies.h - what the expansion of control flow asks about bodies. */
#pragma once
#include "graph/graph.h"

int body_variables(const ty_graph *body);             /* how many */
/* The descriptors of all values of a body, for those of the node's ports in s; the caller frees
** them. */
int body_describe(const struct node *n, int body, struct infer *s, ty_desc **out);
