/* updates.c - AdaGrad with one history per row (kernels/updates.cu). Other updates are formulas. */
#include "cuda/row.h"

/* Same as in kernels/updates.cu. */
struct row_args { int64_t rows, n; double lr, epsilon, rescale, clip; };
static int64_t adagrad_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[0].d;
  *(struct row_args *)s = (struct row_args){ d->dim[0], desc_count(d) / d->dim[0],
    cuda_number(c, "lr", 0), cuda_number(c, "epsilon", 0), cuda_number(c, "rescale_grad", 1),
    cuda_number(c, "clip_gradient", -1) };
  return d->dim[0] * CUDA_BLOCK;
}

static const struct kernel rows[] = {
  { "rows", CUDA_ROW(FAMILY_updates, "row_adagrad", "T=$i0 TEAM=256", "o0 i0 i1 i2~ s",
    adagrad_sizes), .types = T_FLOAT }, { 0 }
};

const struct op_kernels cuda_updates[] = {
  { "_contrib_group_adagrad_update", rows, NULL },
  { 0 }
};
