/* rnn.c - RNN's kernels for GPUs: recurrent_forward.c, recurrent_backward.c and lstm8.c. */
#include "cuda/recurrent.h"

/* Refuses projections; the host says why. */
static const char *back_refuse(const struct call *c)
{
  return cuda_number(c, "projection_size", -1) > 0 ? "a projection" : recurrent_refuse(c);
}

static const struct kernel steps[] = {
  { "steps", recurrent_forward, T_FLOAT, recurrent_refuse, recurrent_forward_scratch,
    recurrent_plans_size, recurrent_plans_done, .flags = K_DRAWS_THERE },
  { 0 }
};
static const struct kernel steps_back[] = {
  { "steps", recurrent_backward, T_FLOAT, back_refuse, recurrent_backward_scratch,
    recurrent_plans_size, recurrent_plans_done, .flags = K_DRAWS_THERE },
  { 0 }
};

const struct op_kernels cuda_rnn[] = {
  { "RNN", steps, steps_back },
  { "_contrib_quantized_rnn", cuda_lstm8 },
  { 0 }
};
