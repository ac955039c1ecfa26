/* epilogue.c - fused operations as a separate pass over the output. See epilogue.h. */
#include "kernel/gemm/gemm.h"
#include "kernel/kernel.h"
#include "kernel/vec/vec.h"

void epilogue_act(const struct call *c)
{
  const struct operand *y = &c->out[0];
  const int act = fused_act(c);
  if (act == ACT_RELU) vec_ops_of(y->d.dtype)->relu(y->p, desc_count(&y->d));
  if (act != ACT_GELU) return;
  gemm_act(TY_F32, ACT_GELU, desc_count(&y->d), y->p);
}
