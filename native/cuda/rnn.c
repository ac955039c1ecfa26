/* rnn.c - RNN's kernels for GPUs: recurrent_forward.c, recurrent_backward.c and lstm8.c. */
#include "cuda/recurrent.h"

/* Refuses projections, for which the CPU's kernel is used. */
static const char *back_refuse(const struct call *c)
{
  return cuda_number(c, "projection_size", -1) > 0 ? "a projection" : recurrent_refuse(c);
}

static const char SEPARATE_STEPS[] = "a launch for each step";

/* Refuses half types unless one launch computes all steps. That launch keeps states in float from
** step to step; a launch per step keeps them in arrays, which are float32 only if operands are
** converted around the kernel. */
static const char *half_refuse(const struct call *c)
{
  const char *no = recurrent_refuse(c);
  const struct recurrent r = recurrent_make(c, &c->in[0].d);
  return no || recurrence_make_plan(&r, false).samples ? no : SEPARATE_STEPS;
}

static const char *half_back_refuse(const struct call *c)
{
  const char *no = back_refuse(c);
  const struct recurrent r = recurrent_make(c, &c->in[0].d);
  return no || recurrence_make_plan(&r, true).samples ? no : SEPARATE_STEPS;
}

static const struct kernel steps[] = {
  { "half steps", recurrent_forward, T(TY_F16) | T(TY_BF16), half_refuse,
    recurrent_forward_scratch, recurrent_plans_size, recurrent_plans_done,
    .flags = K_DRAWS_ON_DEVICE | K_PRECISION },
  { "steps", recurrent_forward, T_FLOAT, recurrent_refuse, recurrent_forward_scratch,
    recurrent_plans_size, recurrent_plans_done, .flags = K_DRAWS_ON_DEVICE | K_PRECISION },
  { 0 }
};
static const struct kernel steps_back[] = {
  { "half steps", recurrent_backward, T(TY_F16) | T(TY_BF16), half_back_refuse,
    recurrent_backward_scratch, recurrent_plans_size, recurrent_plans_done,
    .flags = K_DRAWS_ON_DEVICE | K_PRECISION },
  { "steps", recurrent_backward, T_FLOAT, back_refuse, recurrent_backward_scratch,
    recurrent_plans_size, recurrent_plans_done, .flags = K_DRAWS_ON_DEVICE | K_PRECISION },
  { 0 }
};

const struct op_kernels cuda_rnn[] = {
  { "RNN", steps, steps_back },
  { "_contrib_quantized_rnn", cuda_lstm8 },
  { 0 }
};
