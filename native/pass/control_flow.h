/* control_flow.h - control flow (_foreach, _while_loop, _cond). */
#pragma once
#include "graph/graph.h"

/* Returns whether some node has bodies. */
bool control_used(const ty_graph *g);
