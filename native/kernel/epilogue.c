/* epilogue.c - the end of kernels whose loops have no place for one: a further pass over the
** output. */
#include "kernel/kernel.h"
#include "kernel/vec/vec.h"

void epilogue_act(const struct call *c)
{
  const struct operand *y = &c->out[0];
  if (fused_act(c) == ACT_RELU) vec_ops_of(y->d.dtype)->relu(y->p, desc_count(&y->d));
}
