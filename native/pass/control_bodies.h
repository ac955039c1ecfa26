/* control_bodies.h - the bodies of control flow, for inference and expansion. */
#pragma once
#include "graph/graph.h"

/* Returns how many variables a body has. */
int body_variables(const ty_graph *body);
/* Returns the node of variable k, -1: there is none. */
int body_variable(const ty_graph *body, int64_t k);
/* Checks that a node's bodies fit its attributes and inputs. */
int control_check(const struct node *n);
/* Returns the descriptors of all values of a body, for those of the node's ports in s (infer.c).
** The caller frees them. */
int body_describe(const struct node *n, int body, struct infer *s, ty_desc **out);
