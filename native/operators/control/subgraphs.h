/* subgraphs.h - parameters of the operators with bodies, for control_flow.c and for the pass that
** expands them (pass/control_flow.c). A location is the index, from 0, of a variable of the body in
** its order, or of an input of the node.
*/
#pragma once
#include "op/op.h"

struct foreach_param {
  int64_t num_args, num_outputs, num_out_data;
  struct ints state_locs, data_locs, remain_locs;
};
struct while_param {
  int64_t num_args, num_outputs, num_out_data, max_iterations;
  struct ints cond_locs, func_locs, var_locs;
};
struct cond_param { int64_t num_args, num_outputs; struct ints cond_locs, then_locs, else_locs; };
