/* correlation.c - Correlation (kernels/correlation.cu). */
#include "cuda/row.h"

/* Same as in kernels/correlation.cu. */
struct correlation_args {
  int64_t n, channels, h, w, H, W, out_h, out_w, kernel, pad, range, step, shift, radius, multiply;
};
static struct correlation_args make_args(const struct call *c, const ty_desc *d, const ty_desc *out)
{
  int64_t pad = (int64_t)cuda_number(c, "pad_size", 0);
  int64_t range = (int64_t)cuda_number(c, "max_displacement", 1);
  int64_t shift = (int64_t)cuda_number(c, "stride2", 1);
  return (struct correlation_args){ d->dim[0], d->dim[1], d->dim[2], d->dim[3],
    d->dim[2] + 2 * pad, d->dim[3] + 2 * pad, out->dim[2], out->dim[3],
    (int64_t)cuda_number(c, "kernel_size", 1), pad, range, (int64_t)cuda_number(c, "stride1", 1),
    shift, range / shift, cuda_flag(c, "is_multiply") };
}

static int correlate_forward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct correlation_args s = make_args(c, d, &c->out[0].d);
  for (int i = 0; i < 2; i++)
    if (c->out[1 + i].p)
      TRY(cuda_start(c, FAMILY_correlation, "pad_image", "T=$i0", s.n * s.H * s.W * s.channels,
          (void *[]){ &c->out[1 + i].p, &c->in[i].p, &s }));
  if (!c->out[0].p) return TY_OK;
  return cuda_start(c, FAMILY_correlation, "correlate", "T=$i0", desc_count(&c->out[0].d),
      (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[1].p, &s });
}

/* Computes the gradients; in: head gradient, both images. */
static int correlate_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  struct correlation_args s = make_args(c, d, &c->in[0].d);
  for (int32_t i = 0; i < 2; i++)
    if (c->out[i].p)
      TRY(cuda_start(c, FAMILY_correlation, "correlate_back", "T=$i1", desc_count(d),
          (void *[]){ &c->out[i].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &i, &s }));
  return TY_OK;
}

static const struct kernel patches[] = { { "patches", correlate_forward, T_FLOAT }, { 0 } };
static const struct kernel patches_back[] = { { "patches", correlate_backward, T_FLOAT }, { 0 } };

const struct op_kernels cuda_correlation[] = { { "Correlation", patches, patches_back }, { 0 } };
