/* deconvolution.c - Deconvolution: the gradient of a convolution with respect to its data, plus a
** bias.
**
** It is the gradient of a convolution that has the data of Deconvolution as output, the output as
** data, and the input channels as filters. So forward is convolve_data, the data's gradient is
** convolve_forward, and the weight's gradient is convolve_weight with data and head gradient
** exchanged.
*/
#include "op/op.h"
#include "operators/nn/convolution.h"

static const struct param params[] = {
  CONV_WINDOW,
  { "adj",          P_SHAPE, offsetof(struct conv, adj),          "()",
    "further elements at the end of the output; (): 0", NULL, SIZES_RANGE },
  { "target_shape", P_SHAPE, offsetof(struct conv, target_shape), "()",
    "spatial shape of the output; pad and adj follow from it", NULL, SIZES_RANGE },
  CONV_REST("512", "1", "NCW|NCHW|NCDHW|NHWC|NDHWC"),
  { 0 }
};

static int deconvolution_check(void *param)
{
  struct conv *p = param;
  TRY(conv_check(param));
  if (!p->adj.n)
    for (int64_t i = 0; i < p->kernel.n; i++) p->adj.d[p->adj.n++] = 0;
  if (!p->target_shape.n)
    for (int64_t i = 0; i < p->kernel.n; i++) p->target_shape.d[p->target_shape.n++] = 0;
  if (p->adj.n != p->kernel.n) return conv_bad("adj", "as many entries as kernel has", p->adj.n);
  if (p->target_shape.n != p->kernel.n)
    return conv_bad("target_shape", "as many entries as kernel has", p->target_shape.n);
  for (int64_t i = 0; i < p->kernel.n; i++) {
    if (p->target_shape.d[i] < 0)
      return conv_bad("target_shape", "entries from 0 on", p->target_shape.d[i]);
    if (!p->target_shape.d[i] && (p->adj.d[i] < 0 || p->adj.d[i] >= p->stride.d[i]))
      return conv_bad("adj", "entries smaller than stride", p->adj.d[i]);
  }
  return TY_OK;
}

/* -- inference --------------------------------------------------------------------------------- */

/* Returns the output's size along spatial axis i without padding and adj. */
static int64_t full_size(const struct conv *p, int i, int64_t in)
{
  return p->stride.d[i] * (in - 1) + (p->kernel.d[i] - 1) * p->dilate.d[i] + 1;
}

/* Infers the output's size on spatial axis i, `axis` of the arrays; *out: 0 if it is unknown. */
static int infer_spatial_axis(struct infer *s, const struct conv *p, int i, int axis, int64_t *out)
{
  ty_desc *x = &s->in[0], *y = &s->out[0];
  int64_t in = x->dim[axis], want = p->target_shape.d[i];
  if (want) {
    if (in && full_size(p, i, in) < want)
      return infer_fail(s, TY_ESHAPE, y,
          "target_shape wants %lld elements on axis %d, but only %lld exist", (long long)want, axis,
          (long long)full_size(p, i, in));
    *out = want;
    return TY_OK;
  }
  int64_t cut = 2 * p->pad.d[i] - p->adj.d[i];
  if (!in && y->ndim == x->ndim && y->dim[axis] && p->stride.d[i] == 1)
    TRY(shape_dim(s, x, axis, in = y->dim[axis] + cut - full_size(p, i, 1) + 1));
  *out = in ? full_size(p, i, in) - cut : 0;
  if (in && *out <= 0)
    return infer_fail(s, TY_ESHAPE, y, "axis %d would have %lld elements", axis, (long long)*out);
  return TY_OK;
}

static int deconvolution_shape(struct infer *s)
{
  const struct conv *p = s->param;
  const int n = (int)p->kernel.n;
  const bool last = conv_channels_last(p);
  ty_desc *x = &s->in[0], *y = &s->out[0];
  if (!x->ndim) return TY_OK;
  if (x->ndim != n + 2)
    return infer_fail(
        s, TY_ESHAPE, x, "expected %d dimensions for a kernel of %d, got %d", n + 2, n, x->ndim);
  int64_t channels = x->dim[last ? n + 1 : 1], weight[5] = { channels }, dim[5] = { x->dim[0] };
  if (channels % p->num_group)
    return infer_fail(s, TY_ESHAPE, x, "%lld channels cannot be divided into %lld groups",
        (long long)channels, (long long)p->num_group);
  weight[last ? n + 1 : 1] = p->num_filter / p->num_group;
  dim[last ? n + 1 : 1] = p->num_filter;
  for (int i = 0; i < n; i++) {
    weight[i + (last ? 1 : 2)] = p->kernel.d[i];
    TRY(infer_spatial_axis(s, p, i, i + (last ? 1 : 2), &dim[i + (last ? 1 : 2)]));
  }
  TRY(shape_is(s, &s->in[1], n + 2, weight));
  if (s->nin > 2) TRY(shape_is(s, &s->in[2], 1, &p->num_filter));
  TRY(shape_is(s, y, n + 2, dim));
  return shape_dim(s, x, 0, y->dim[0]);
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* Returns the window of a deconvolution with data x and output y. pad is the padding before the
** first element; that after the last one follows from the sizes. */
static struct window window_for(
    const struct conv *p, const ty_desc *x, const ty_desc *weight, const ty_desc *y)
{
  struct conv q = *p;
  for (int i = 0; i < (int)p->kernel.n; i++)
    if (p->target_shape.d[i])
      q.pad.d[i] = (full_size(p, i, x->dim[i + 2]) - p->target_shape.d[i] + 1) / 2;
  return conv_window(&q, y, weight, x);
}

static struct window make_window(const struct call *c)
{
  return window_for(c->param, &c->in[0].d, &c->in[1].d, &c->out[0].d);
}
static struct window window_back(const struct call *c)
{
  return window_for(c->param, &c->in[1].d, &c->in[2].d, &c->in[0].d);
}

static size_t panels_scratch(const struct call *c)
{
  struct window w = make_window(c);
  return convolve_data_scratch(&w);
}

static int panels_forward(struct call *c)
{
  struct window w = make_window(c);
  return convolve_data(
      &w, c->in[0].p, &c->in[1], c->out[0].p, false, conv_bias_of(c), fused_act(c), c->state,
      c->tmp);
}

/* Returns the bytes of scratch, including the data's gradient if the call adds it. in: head
** gradient, data, weight. */
static size_t panels_back_scratch(const struct call *c)
{
  struct window w = window_back(c);
  size_t a = convolve_forward_scratch(&w), b = convolve_weight_scratch(&w);
  return align_up(MAX(a, b), ALIGN) + (c->add & 1 ? desc_bytes(&c->out[0].d) : 0);
}

static int data_gradient(struct call *c, const struct window *w)
{
  size_t a = convolve_forward_scratch(w), b = convolve_weight_scratch(w);
  const struct operand *out = &c->out[0];
  bool add = c->add & 1;
  void *to = add ? (char *)c->tmp + align_up(MAX(a, b), ALIGN) : out->p;
  const struct convolve_end none = { 0 };
  TRY(convolve_forward(w, c->in[0].p, &c->in[2], &none, to, c->state, c->tmp));
  if (add) add_to(w->dtype, desc_count(&out->d), to, out->p);
  return TY_OK;
}

static int panels_backward(struct call *c)
{
  struct window w = window_back(c);
  if (c->out[0].p) TRY(data_gradient(c, &w));
  if (c->out[1].p)
    TRY(convolve_weight(&w, c->in[0].p, c->in[1].p, c->out[1].p, c->add >> 1 & 1, c->tmp));
  conv_bias_gradient(c);
  return TY_OK;
}

/* -- plain loops ------------------------------------------------------------------------------- */

static int reference_forward(struct call *c)
{
  struct window w = make_window(c);
  convolve_reference_data(&w, c->in[0].p, c->in[1].p, c->out[0].p, false);
  if (conv_bias_of(c)) {
    const int64_t n = desc_count(&c->out[0].d),
                  spatial = n / c->out[0].d.dim[0] / c->out[0].d.dim[1],
                  channels = c->out[0].d.dim[1];
    for (int64_t i = 0; i < n; i++)
      if (w.dtype == TY_F64)
        ((double *)c->out[0].p)[i] += ((const double *)conv_bias_of(c))[i / spatial % channels];
      else
        ((float *)c->out[0].p)[i] += ((const float *)conv_bias_of(c))[i / spatial % channels];
  }
  epilogue_act(c);
  return TY_OK;
}

static int reference_backward(struct call *c)
{
  struct window w = window_back(c);
  if (c->out[0].p) convolve_reference(&w, c->in[0].p, c->in[2].p, NULL, c->out[0].p, c->add & 1);
  if (c->out[1].p)
    convolve_reference_weight(&w, c->in[0].p, c->in[1].p, c->out[1].p, c->add >> 1 & 1);
  conv_bias_gradient(c);
  return TY_OK;
}

static const struct kernel cpu[] = {
  { .name = "panels", .run = panels_forward, .types = T_FLOAT, .refuse = conv_refuse_layout,
    .scratch = panels_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done,
    .fuses = CAN(POST_ACT) },
  { .name = "reference", .run = reference_forward, .types = T_FLOAT, .refuse = conv_refuse_last,
    .fuses = CAN(POST_ACT) },
  { 0 }
};
static const struct kernel back[] = {
  { .name = "panels", .run = panels_backward, .types = T_FLOAT, .refuse = conv_refuse_layout,
    .scratch = panels_back_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done, .add = 7 },
  { .name = "reference", .run = reference_backward, .types = T_FLOAT, .refuse = conv_refuse_last,
    .add = 7 },
  { 0 }
};

const struct op op_deconvolution[] = { {
  .name = "Deconvolution", .alias = "_npx_deconvolution",
  .doc = "Transposed convolution of data (N, C, spatial) with weight (C, num_filter / num_group, kernel) plus bias "
         "(num_filter,). "
         "Output (N, num_filter, stride (in - 1) + dilate (kernel - 1) + 1 - 2 pad + adj). Gradients of all inputs.",
  .in = "data weight bias", .out = "output", .in_of = conv_ports, .param = params, .param_size = sizeof(struct conv),
  .check = deconvolution_check,
  .shape = deconvolution_shape, .grad = "g0 i0 i1", .cpu = cpu, .back_cpu = back,
}, { 0 } };
