/* pooling.c - Pooling, Pooling_v1, and pooling of 8-bit data: parameters, inference, kernels. The
** work is done in pooling_geometry.c, pooling_forward.c and pooling_backward.c.
*/
#include "operators/nn/pooling.h"
#include "operators/quantized/quantize.h"

#define FIELD(f) offsetof(struct pool_param, f)
static const struct param pool_params[] = {
  { "kernel",             P_SHAPE, FIELD(kernel),             "()",    "size of the window: 1, 2 or 3 numbers", NULL, SIZES_RANGE },
  { "pool_type",          P_ENUM,  FIELD(pool_type),          "max",   "what a window becomes", "avg|lp|max|sum" },
  { "global_pool",        P_BOOL,  FIELD(global_pool),        "0",
    "one window over everything; kernel, stride and pad have no effect" },
  { "cudnn_off",          P_BOOL,  FIELD(cudnn_off),          "0",     "without effect on results" },
  { "pooling_convention", P_ENUM,  FIELD(pooling_convention), "valid",
    "the output's size: valid rounds down, full up; same is data / stride, rounded up, on one axis without pad",
    "full|same|valid" },
  { "stride",             P_SHAPE, FIELD(stride),             "()",    "step of the window; () is 1", NULL, SIZES_RANGE },
  { "pad",                P_SHAPE, FIELD(pad),                "()",    "elements around the data; () is 0", NULL, SIZES_RANGE },
  { "p_value",            P_INT,   FIELD(p_value),            "None",  "power of lp pooling: 1, 2 or 3", NULL, NULL, 1 },
  { "count_include_pad",  P_BOOL,  FIELD(count_include_pad),  "None",
    "avg divides by the window's size with padding (None, true) or without", NULL, NULL, 1 },
  { "layout",             P_ENUM,  FIELD(layout),             "None",  "order of the axes; None: channels on axis 1",
    LAYOUTS, NULL, 1 },
  { 0 }
};

/* The older operator: fewer parameters, other enums. */
static const struct param pool1_params[] = {
  { "kernel",             P_SHAPE, FIELD(kernel),             "()",    "size of the window: 2 or 3 numbers", NULL, SIZES_RANGE },
  { "pool_type",          P_ENUM,  FIELD(pool_type),          "max",   "what a window becomes", "avg|max|sum" },
  { "global_pool",        P_BOOL,  FIELD(global_pool),        "0",
    "one window over everything; kernel, stride and pad have no effect" },
  { "pooling_convention", P_ENUM,  FIELD(pooling_convention), "valid",
    "rounding of the output's size: valid down, full up", "full|valid" },
  { "stride",             P_SHAPE, FIELD(stride),             "()",    "step of the window; () is 1", NULL, SIZES_RANGE },
  { "pad",                P_SHAPE, FIELD(pad),                "()",    "zeros around the data; () is 0", NULL, SIZES_RANGE },
  { 0 }
};

static int pool_check(void *param)
{
  struct pool_param *p = param;
  int64_t n = p->kernel.n;
  if (!p->global_pool)
    NEED(n >= 1 && n <= 3, TY_EVALUE, "parameter kernel: expected 1 to 3 numbers, got %lld",
        (long long)n);
  NEED(p->pool_type != POOL_LP || p->p_value != NONE, TY_EVALUE,
      "p_value: pool_type lp needs 1, 2 or 3");
  NEED(p->pool_type != POOL_LP || (p->p_value >= 1 && p->p_value <= 3), TY_EVALUE,
      "parameter p_value: expected 1, 2 or 3, got %lld", (long long)p->p_value);
  for (int64_t i = 0; !p->global_pool && i < n; i++)
    NEED(p->kernel.d[i] > 0, TY_EVALUE, "parameter kernel: expected positive numbers, got %lld",
        (long long)p->kernel.d[i]);
  NEED(p->global_pool || !p->stride.n || p->stride.n == n, TY_EVALUE,
      "parameter stride: expected %lld numbers, as kernel has, got %lld", (long long)n,
      (long long)p->stride.n);
  NEED(p->global_pool || !p->pad.n || p->pad.n == n, TY_EVALUE,
      "parameter pad: expected %lld numbers, as kernel has, got %lld", (long long)n,
      (long long)p->pad.n);
  for (int64_t i = 0; !p->global_pool && i < p->stride.n; i++)
    NEED(p->stride.d[i] > 0, TY_EVALUE, "parameter stride: expected positive numbers, got %lld",
        (long long)p->stride.d[i]);
  for (int64_t i = 0; !p->global_pool && i < p->pad.n; i++) {
    NEED(p->pad.d[i] >= 0, TY_EVALUE, "parameter pad: expected 0 or more, got %lld",
        (long long)p->pad.d[i]);
    NEED(p->pooling_convention != POOL_SAME || p->pad.d[i] == 0, TY_EVALUE,
        "pad: pooling_convention same takes no padding, got %lld", (long long)p->pad.d[i]);
  }
  return TY_OK;
}

/* Replaces the choices of Pooling_v1 by Pooling's numbers, and checks. */
static int pool1_check(void *param)
{
  static const int type[] = { POOL_AVG, POOL_MAX, POOL_SUM };
  static const int convention[] = { POOL_FULL, POOL_VALID };
  struct pool_param *p = param;
  p->pool_type = type[p->pool_type];
  p->pooling_convention = convention[p->pooling_convention];
  p->p_value = NONE;
  p->count_include_pad = p->layout = -1;
  p->pad_is_zeros = true;
  return pool_check(param);
}

/* -- inference --------------------------------------------------------------------------------- */

/* Returns whether the gradient reads a byte per window: the tap of its maximum. */
static bool has_argmax(const struct pool_param *p)
{
  int64_t taps = 1;
  for (int64_t i = 0; i < p->kernel.n; i++) taps = MIN(taps, NO_TAP) * p->kernel.d[i];
  return p->pool_type == POOL_MAX && !p->global_pool && p->kernel.n > 0 && p->kernel.n < 3 &&
      !layout_channels_last(p->layout) && taps <= NO_TAP;
}

static int pool_type(struct infer *s)
{
  if (s->nout > 1) TRY(type_is(s, &s->out[1], TY_U8));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int pool_shape(struct infer *s)
{
  const struct pool_param *p = s->param;
  ty_desc d = s->in[0], *in = &s->in[0];
  if (!d.ndim) return TY_OK;
  if (d.ndim < 3 || d.ndim > 5)
    return infer_fail(s, TY_ESHAPE, in,
        "expected 3 to 5 dimensions (batch, channels, 1 to 3 of space), got %d", d.ndim);
  if (!p->global_pool && p->kernel.n != d.ndim - 2)
    return infer_fail(s, TY_ESHAPE, in,
        "kernel has %lld numbers, but data has %d dimensions of space", (long long)p->kernel.n,
        d.ndim - 2);
  if (!p->global_pool && p->pooling_convention == POOL_SAME && d.ndim != 3)
    return infer_fail(s, TY_ESHAPE, in,
        "pooling_convention same takes 3 dimensions (batch, channels, width), got %d", d.ndim);
  for (int i = 0; i < d.ndim - 2; i++) {
    int64_t *size = &d.dim[layout_first_axis(p->layout) + i];
    struct pool_axis a = pool_make_axis(p, *size, i);
    if (*size && a.kernel > a.in + 2 * a.pad)
      return infer_fail(s, TY_ESHAPE, in,
          "kernel %lld is larger than the data with its padding, %lld, on axis %d",
          (long long)a.kernel, (long long)(a.in + 2 * a.pad), layout_first_axis(p->layout) + i);
    *size = p->global_pool ? 1 : *size ? a.out : 0;
  }
  if (s->nout > 1) TRY(shape_as(s, &s->out[1], &d));
  return shape_as(s, &s->out[0], &d);
}

/* -- kernels ----------------------------------------------------------------------------------- */

static int pool_forward(struct call *c)
{
  struct pool p = pool_make(c, &c->in[0]);
  p.lowest = dtype_lowest(stored_dtype(c, 0));
  p.x = c->in[0].p;
  p.out = c->out[0].p ? c->out[0].p : c->tmp;
  p.argmax = c->nout > 1 && has_argmax(c->param) ? c->out[1].p : NULL;
  if (c->out[0].p || p.argmax) pool_run(&p);
  return TY_OK;
}

/* Computes the gradient. in: head gradient, then the argmax of max, or data and output for max and
** lp. */
static int pool_backward(struct call *c)
{
  struct pool p = pool_make(c, &c->out[0]);
  p.back = true;
  p.dy = c->in[0].p;
  p.masked = find_fused(c, POST_ACT_GRAD);
  if (c->nin == 2 || p.masked)
    p.argmax = c->in[1].p;
  else if (c->nin > 2)
    p.x = c->in[1].p;
  if (c->nin > 2) p.y = c->in[2].p;
  p.out = c->out[0].p;
  if (p.out) pool_run(&p);
  return TY_OK;
}

static const char *pool1_grad(const void *param)
{
  int64_t type = ((const struct pool_param *)param)->pool_type;
  return type == POOL_MAX || type == POOL_LP ? "g0 i0 o0" : "g0";
}
static const char *pool_grad(const void *param)
{
  return has_argmax(param) ? "g0 o1" : pool1_grad(param);
}

/* Returns the bytes of the maxima, if only their argmax is requested. */
static size_t pool_scratch(const struct call *c)
{
  return c->out[0].p ? 0 : desc_bytes(&c->out[0].d);
}

static const char *pool_refuse(const struct call *c)
{
  if (!dtype_float(c->out[0].d.dtype)) return "data is not of a float dtype";
  const struct pool_param *p = c->param;
  return in_blocks(c) && layout_channels_last(p->layout) ? "channels last" : NULL;
}

static int pool_lead(const struct call *c)
{
  return layout_channels_last(((const struct pool_param *)c->param)->layout) ? 1 : 2;
}

static const struct kernel pool_cpu[] = {
  { "taps", pool_forward,  T_FLOAT | T(TY_U8), pool_refuse, pool_scratch, .flags = K_ALIKE, .blocks = IN_BLOCKS(1, 3),
    .lead = pool_lead }, { 0 }
};
static const struct kernel pool_back_cpu[] = {
  { "taps", pool_backward, T_FLOAT | T(TY_U8), pool_refuse, .flags = K_ALIKE,
    .blocks = IN_BLOCKS(7, 1), .fuses = CAN(POST_ACT_GRAD) }, { 0 }
};

/* Returns how many more outputs the reference has: its max pooling with channels on axis 1 has a
** workspace as an output. */
static int further_outputs(const void *param)
{
  const struct pool_param *p = param;
  return p->pool_type == POOL_MAX && !layout_channels_last(p->layout);
}

const struct op op_pooling[] = {
  { .name = "Pooling", .alias = "_npx_pooling", .in = "data", .out = "output {argmax}",
    .doc = "Maximum, mean, sum or power mean over windows of 1 to 3 axes. The gradient of max goes to the first "
           "maximum of a window.",
    .param = pool_params, .param_size = sizeof(struct pool_param), .check = pool_check, .shape = pool_shape, .type = pool_type,
    .grad_of = pool_grad, .further_outputs = further_outputs, .cpu = pool_cpu, .back_cpu = pool_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "Pooling_v1", .in = "data",
    .doc = "Older pooling over windows of 2 or 3 axes: padding counts as zeros, avg divides by the whole window, and "
           "every maximum of a window gets its gradient.",
    .param = pool1_params, .param_size = sizeof(struct pool_param), .check = pool1_check, .shape = pool_shape,
    .grad_of = pool1_grad,
    .cpu = pool_cpu, .back_cpu = pool_back_cpu, .flags = OP_NAMED_INPUT },
  { .name = "_contrib_quantized_pooling", .in = "data min_data max_data", .out = "output min_output max_output",
    .doc = "Pooling of 8-bit data, means rounded to the nearest level; the range stays.",
    .param = pool_params, .param_size = sizeof(struct pool_param), .check = pool_check, .shape = layer8_shape, .type = layer8_type,
    .layer = "Pooling", .cpu = layer8_cpu },
  { 0 }
};
