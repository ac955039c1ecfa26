/* updates.c - AdaGrad with one history a row (kernels/updates.cu). Other updates are formulas. */
#include "cuda/family.h"

struct row_args { int64_t rows, n; double lr, epsilon, rescale, clip; };
static int row_steps(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct row_args s = { d->dim[0], desc_count(d) / d->dim[0], cuda_number(c, "lr", 0),
    cuda_number(c, "epsilon", 0), cuda_number(c, "rescale_grad", 1),
    cuda_number(c, "clip_gradient", -1) };
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_updates, "row_adagrad", &f,
      "T=%s TEAM=256", cuda_type(d->dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s };
  return cuda_run(c, f, s.rows * CUDA_BLOCK, params);
}

static const struct kernel rows[] = { { "rows", row_steps, T_FLOAT }, { 0 } };

const struct op_kernels cuda_updates[] = {
  { "_contrib_group_adagrad_update", rows, NULL },
  { 0 }
};
