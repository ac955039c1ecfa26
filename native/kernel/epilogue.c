/* epilogue.c - the end of kernels whose loops have no place for one: a further pass over the
** output. */
#include "base/vmath.h"
#include "kernel/kernel.h"
#include "kernel/vec/vec.h"

void epilogue_act(const struct call *c)
{
  const struct operand *y = &c->out[0];
  const int act = fused_act(c);
  if (act == ACT_RELU) vec_ops_of(y->d.dtype)->relu(y->p, desc_count(&y->d));
  if (act != ACT_GELU) return;
  float *x = y->p; /* only of float32 */
  for (int64_t i = 0; i < desc_count(&y->d); i++) x[i] *= normcdf_f32(x[i]);
}
