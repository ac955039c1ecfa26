/* convolution.c - Convolution and Convolution_v1.
**
** Candidates: a plain product if the window covers the whole image; dot products for a few
** positions; tiles for operands rounded to bfloat16 in blocks; Winograd (convolution_winograd.c)
** and oneDNN (convolution_onednn.c) where they are faster; depthwise loops; pairs of rounded
** operands; the packed product (kernel/conv/conv.h) for everything; and the definition in plain
** loops. Shapes of layouts with channels last are inferred, but no kernel here supports them.
*/
#include "op/op.h"
#include "operators/nn/convolution.h"
#include "operators/quantized/quantize.h"
#include "kernel/vec/vec.h"
#include "operators/nn/convolution_winograd.h"
#include "operators/nn/convolution_onednn.h"

static const struct param params[] = { CONV_WINDOW, CONV_REST("1024", "0", "NCW|NCHW|NCDHW|NHWC|NDHWC"), { 0 } };

const char *conv_ports(const void *param)
{
  return ((const struct conv *)param)->no_bias ? "data weight" : "data weight bias";
}

/* -- parameters -------------------------------------------------------------------------------- */

int conv_bad(const char *name, const char *expected, int64_t got)
{
  return param_fail(name, expected, "%lld", (long long)got);
}

/* Checks that a list has an entry from `least` on for each axis of the kernel. An empty list
** becomes entries of `otherwise`. */
static int check_list(
    struct dims *d, const char *name, const struct dims *kernel, int64_t otherwise, int64_t least)
{
  char want[64];
  if (!d->n)
    for (int64_t i = 0; i < kernel->n; i++) d->d[d->n++] = otherwise;
  snprintf(want, sizeof want, "%lld entries, as kernel has", (long long)kernel->n);
  if (d->n != kernel->n) return conv_bad(name, want, d->n);
  for (int64_t i = 0; i < d->n; i++)
    if (d->d[i] < least || d->d[i] > INT32_MAX)
      return conv_bad(name, least ? "entries from 1 on" : "entries from 0 on", d->d[i]);
  return TY_OK;
}

int conv_check(void *param)
{
  struct conv *p = param;
  static const int8_t axes[] = { 1, 2, 3, 2, 3 };
  if (p->kernel.n < 1 || p->kernel.n > 3)
    return conv_bad("kernel", "1, 2 or 3 entries", p->kernel.n);
  TRY(check_list(&p->kernel, "kernel", &p->kernel, 1, 1));
  TRY(check_list(&p->stride, "stride", &p->kernel, 1, 1));
  TRY(check_list(&p->dilate, "dilate", &p->kernel, 1, 1));
  TRY(check_list(&p->pad, "pad", &p->kernel, 0, 0));
  if (p->num_filter % p->num_group)
    return conv_bad("num_filter", "a multiple of num_group", p->num_filter);
  if (p->layout >= 0 && axes[p->layout] != p->kernel.n)
    return conv_bad("layout", "as many spatial axes as kernel has entries", axes[p->layout]);
  return TY_OK;
}

static int check_v1(void *param)
{
  struct conv *p = param;
  if (p->layout >= 0)
    p->layout = (int64_t[]){ LAYOUT_NCHW, LAYOUT_NHWC, LAYOUT_NCDHW, LAYOUT_NDHWC }[p->layout];
  TRY(conv_check(param));
  return p->kernel.n == 1 ? conv_bad("kernel", "2 or 3 entries", 1) : TY_OK;
}

/* -- inference --------------------------------------------------------------------------------- */

/* Returns the elements from the first to the last tap along spatial axis i. */
static int64_t window_reach(const struct conv *p, int i)
{
  return (p->kernel.d[i] - 1) * p->dilate.d[i] + 1;
}

static int infer_channels(struct infer *s, const struct conv *p, int64_t channels)
{
  int n = (int)p->kernel.n;
  bool last = conv_channels_last(p);
  int64_t dim[5] = { p->num_filter };
  if (channels % p->num_group)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "%lld channels cannot be divided into %lld groups",
        (long long)channels, (long long)p->num_group);
  for (int i = 0; i < n; i++) dim[i + (last ? 1 : 2)] = p->kernel.d[i];
  dim[last ? n + 1 : 1] = channels / p->num_group;
  TRY(shape_is(s, &s->in[1], n + 2, dim));
  return s->nin > 2 ? shape_is(s, &s->in[2], 1, &p->num_filter) : TY_OK;
}

/* Infers the output's shape and the weight's from the data's. */
static int shape_from_data(struct infer *s)
{
  const struct conv *p = s->param;
  const int n = (int)p->kernel.n, first = conv_channels_last(p) ? 1 : 2;
  ty_desc *x = &s->in[0], *y = &s->out[0];
  if (!x->ndim) return TY_OK;
  if (x->ndim != n + 2)
    return infer_fail(
        s, TY_ESHAPE, x, "expected %d dimensions for a kernel of %d, got %d", n + 2, n, x->ndim);
  TRY(infer_channels(s, p, x->dim[first == 1 ? n + 1 : 1]));
  int64_t dim[5] = { x->dim[0] };
  dim[first == 1 ? n + 1 : 1] = p->num_filter;
  for (int i = 0; i < n; i++) {
    int64_t in = x->dim[first + i], whole = in + 2 * p->pad.d[i];
    if (in && whole < window_reach(p, i))
      return infer_fail(s, TY_ESHAPE, x,
          "the window takes %lld elements of axis %d, which has only %lld with its padding",
          (long long)window_reach(p, i), first + i, (long long)whole);
    dim[first + i] = in ? (whole - window_reach(p, i)) / p->stride.d[i] + 1 : 0;
  }
  return shape_is(s, y, n + 2, dim);
}

static int convolution_shape(struct infer *s)
{
  const struct conv *p = s->param;
  const int n = (int)p->kernel.n, first = conv_channels_last(p) ? 1 : 2;
  ty_desc *x = &s->in[0], *y = &s->out[0];
  TRY(shape_from_data(s));
  if (!x->ndim) return TY_OK;
  TRY(shape_dim(s, x, 0, y->dim[0]));
  for (int i = 0; i < n; i++) {
    int64_t out = y->dim[first + i];
    if (out && p->stride.d[i] == 1)
      TRY(shape_dim(s, x, first + i, out + window_reach(p, i) - 1 - 2 * p->pad.d[i]));
  }
  return TY_OK;
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* Refuses fused operations that a struct convolve_end cannot express. */
static const char *refuse_end(const struct call *c)
{
  const char *no = conv_refuse_layout(c);
  if (no) return no;
  return fused_scaling(c) && c->in[1].d.dtype != TY_F32 ? "a scale is float32" : NULL;
}

static size_t panels_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  return convolve_forward_scratch(&w);
}

static int panels_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const struct convolve_end end = conv_make_end(c);
  return convolve_forward(&w, c->in[0].p, &c->in[1], &end, c->out[0].p, c->state, c->tmp);
}

static size_t panels_back_scratch(const struct call *c)
{
  struct window w = conv_window_back(c);
  size_t a = c->out[0].p ? convolve_data_scratch(&w) : 0,
         b = c->out[1].p ? convolve_weight_scratch(&w) : 0;
  return MAX(a, b);
}

/* Computes the gradients. in: gradient of the output, data, weight. */
static int panels_backward(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p)
    TRY(convolve_data(
        &w, c->in[0].p, &c->in[2], c->out[0].p, c->add & 1, NULL, ACT_NONE, c->state, c->tmp));
  if (c->out[1].p)
    TRY(convolve_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1, c->tmp));
  conv_bias_gradient(c);
  return TY_OK;
}

/* -- a window that covers the image: Y = X W^T ------------------------------------------------- */

static const char *refuse_partial(const struct call *c, const struct window *w)
{
  const char *no = conv_refuse_layout(c);
  bool whole = w->groups == 1 && window_out(w) == 1;
  for (int a = 0; a < 3; a++) whole = whole && !w->pad[a] && w->kernel[a] == w->in[a];
  return no ? no : whole ? NULL : "the window does not cover the image";
}

static const char *refuse_whole(const struct call *c)
{
  struct window w = conv_make_window(c);
  return refuse_partial(c, &w);
}

static const char *refuse_whole_back(const struct call *c)
{
  struct window w = conv_window_back(c);
  return refuse_partial(c, &w);
}

static int whole_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const int64_t k = window_depth(&w);
  struct gemm_epilogue e = { .bias = conv_bias_of(c), .act = fused_act(c) };
  return gemm_fused(gemm_type_for(c, w.dtype), false, true, w.n, w.filters, k, c->in[0].p, k,
      c->in[1].p, k, c->out[0].p, w.filters, &e);
}

static int whole_backward(struct call *c)
{
  struct window w = conv_window_back(c);
  const int64_t k = window_depth(&w), f = w.filters;
  const int type = gemm_type_for(c, w.dtype);
  const void *g = c->in[0].p;
  if (c->out[0].p)
    TRY(gemm_one(
        type, false, false, w.n, k, f, 1, g, f, c->in[2].p, k, c->add & 1, c->out[0].p, k));
  if (c->out[1].p)
    TRY(gemm_one(
        type, true, false, f, k, w.n, 1, g, f, c->in[1].p, k, c->add >> 1 & 1, c->out[1].p, k));
  conv_bias_gradient(c);
  return TY_OK;
}

/* -- a few positions --------------------------------------------------------------------------- */

static const char *refuse_many(const struct call *c)
{
  struct window w = conv_make_window(c);
  const char *no = refuse_end(c);
  return no ? no : few_profitable(&w) ? NULL : "many positions, or a small window";
}

static size_t dots_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  return few_scratch(&w);
}

static int dots_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const struct convolve_end end = conv_make_end(c);
  few_forward(&w, c->in[0].p, c->in[1].p, &end, c->out[0].p, c->tmp);
  return TY_OK;
}

/* -- operands rounded to bfloat16 -------------------------------------------------------------- */

static const char *refuse_exact(const struct call *c)
{
  struct window w = conv_make_window(c);
  const char *no = refuse_end(c);
  if (no) return no;
  if (gemm_type_for(c, w.dtype) != GEMM_ROUNDED) return "operands are not rounded";
  return rounded_profitable(&w) ? NULL : "few images, channels, filters or taps";
}

static size_t pairs_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  return rounded_scratch(&w);
}

static int pairs_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const struct convolve_end end = conv_make_end(c);
  return rounded_forward(&w, c->in[0].p, &c->in[1], &end, c->out[0].p, c->state, c->tmp);
}

/* -- on tiles ---------------------------------------------------------------------------------- */

static const char *refuse_tiles(const struct call *c)
{
  struct window w = conv_make_window(c);
  const char *no = refuse_end(c);
  if (no) return no;
  if (gemm_type_for(c, w.dtype) != GEMM_ROUNDED) return "operands are not rounded";
  if (!c->out[0].block) return "channels are not in blocks";
  return tiles_profitable(&w) ? NULL : "no tiles, few channels, groups, or no plane";
}

static const char *refuse_tiles_back(const struct call *c)
{
  struct window w = conv_window_back(c);
  const char *no = conv_refuse_layout(c);
  if (no) return no;
  if (gemm_type_for(c, w.dtype) != GEMM_ROUNDED) return "operands are not rounded";
  if (!c->in[0].block || (c->out[0].p && !c->out[0].block)) return "channels are not in blocks";
  return tiles_profitable(&w) && tiles_weight_fits(&w)
      ? NULL
      : "no tiles, few channels, groups, or no plane";
}

static size_t tiled_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  return tiles_scratch(&w);
}

static int tiled_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const struct convolve_end end = conv_make_end(c);
  return tiles_forward(&w, c->in[0].p, c->in[0].block, &c->in[1], &end, c->out[0].p, c->state,
      c->tmp);
}

static size_t tiled_back_scratch(const struct call *c)
{
  struct window w = conv_window_back(c);
  size_t a = c->out[0].p ? tiles_data_scratch(&w) : 0,
         b = c->out[1].p ? tiles_weight_scratch(&w) : 0;
  return MAX(a, b);
}

/* Computes the gradients. in: gradient of the output, data, weight. Returns a code. */
static int tiled_backward(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p)
    TRY(tiles_data(&w, c->in[0].p, &c->in[2], c->out[0].p, c->add & 1, c->state, c->tmp));
  if (c->out[1].p)
    tiles_weight(&w, c->in[1].p, c->in[1].block, c->in[0].p, c->out[1].p, c->add >> 1 & 1, c->tmp);
  conv_bias_gradient(c);
  return TY_OK;
}

/* -- depthwise --------------------------------------------------------------------------------- */

static const char *refuse_deep(const struct call *c, const struct window *w)
{
  const char *no = refuse_end(c);
  return no ? no : depthwise_profitable(w) ? NULL : "the window sees several channels";
}

static const char *refuse_depth(const struct call *c)
{
  struct window w = conv_make_window(c);
  return refuse_deep(c, &w);
}

static const char *refuse_depth_back(const struct call *c)
{
  struct window w = conv_window_back(c);
  return refuse_deep(c, &w);
}

static int depthwise_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  const struct convolve_end end = conv_make_end(c);
  depth_forward(&w, c->in[0].p, c->in[1].p, &end, c->out[0].p, c->tmp);
  return TY_OK;
}

static size_t depthwise_scratch(const struct call *c)
{
  struct window w = conv_make_window(c);
  return depth_scratch(&w);
}

static int depthwise_backward(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p) depth_data(&w, c->in[0].p, c->in[2].p, c->out[0].p, c->add & 1);
  if (c->out[1].p) depth_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1);
  conv_bias_gradient(c);
  return TY_OK;
}

/* -- plain loops ------------------------------------------------------------------------------- */

static int reference_forward(struct call *c)
{
  struct window w = conv_make_window(c);
  convolve_reference(&w, c->in[0].p, c->in[1].p, conv_bias_of(c), c->out[0].p, false);
  epilogue_act(c);
  return TY_OK;
}

static int reference_backward(struct call *c)
{
  struct window w = conv_window_back(c);
  if (c->out[0].p) convolve_reference_data(&w, c->in[0].p, c->in[2].p, c->out[0].p, c->add & 1);
  if (c->out[1].p)
    convolve_reference_weight(&w, c->in[1].p, c->in[0].p, c->out[1].p, c->add >> 1 & 1);
  conv_bias_gradient(c);
  return TY_OK;
}

/* Returns 1: images do not depend on each other. */
static int image_lead(const struct call *c)
{
  (void)c;
  return 1;
}
enum { WEIGHT_AND_BIAS = 1 << 1 | 1 << 2 };

#define CONV_END (CAN(POST_SCALE) | CAN(POST_ACCUMULATE) | CAN(POST_ACT))

static const struct kernel cpu[] = {
  { .name = "product", .run = whole_forward, .types = T_FLOAT, .refuse = refuse_whole,
    .flags = K_PRECISION, .fuses = CAN(POST_ACT) },
  { .name = "dots", .run = dots_forward, .types = T_FLOAT, .refuse = refuse_many,
    .scratch = dots_scratch, .fuses = CONV_END },
  { .name = "tiles", .run = tiled_forward, .types = T(TY_F32), .refuse = refuse_tiles,
    .scratch = tiled_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done,
    .flags = K_PRECISION, .blocks = IN_BLOCKS(1, 1), .fuses = CONV_END, .lead = image_lead,
    .whole = WEIGHT_AND_BIAS },
  WINOGRAD_CONV
  ONEDNN_CONV
  { .name = "rows", .run = depthwise_forward, .types = T_FLOAT, .refuse = refuse_depth,
    .scratch = depthwise_scratch, .fuses = CONV_END },
  { .name = "pairs", .run = pairs_forward, .types = T(TY_F32), .refuse = refuse_exact,
    .scratch = pairs_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done,
    .flags = K_PRECISION, .fuses = CONV_END, .lead = image_lead, .whole = WEIGHT_AND_BIAS },
  { .name = "panels", .run = panels_forward, .types = T_FLOAT, .refuse = refuse_end,
    .scratch = panels_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done,
    .fuses = CONV_END, .lead = image_lead, .whole = WEIGHT_AND_BIAS },
  { .name = "reference", .run = reference_forward, .types = T_FLOAT, .refuse = conv_refuse_last,
    .fuses = CAN(POST_ACT) },
  { 0 }
};
static const struct kernel back[] = {
  { .name = "product", .run = whole_backward, .types = T_FLOAT, .refuse = refuse_whole_back,
    .add = 7, .flags = K_PRECISION },
  { .name = "tiles", .run = tiled_backward, .types = T(TY_F32), .refuse = refuse_tiles_back,
    .scratch = tiled_back_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done, .add = 7,
    .flags = K_PRECISION, .blocks = IN_BLOCKS(3, 1) },
  WINOGRAD_CONV_BACK
  ONEDNN_CONV_BACK
  { .name = "rows", .run = depthwise_backward, .types = T_FLOAT, .refuse = refuse_depth_back,
    .add = 7 },
  { .name = "panels", .run = panels_backward, .types = T_FLOAT, .refuse = conv_refuse_layout,
    .scratch = panels_back_scratch, .state = gemm_kept_bytes, .done = gemm_kept_done, .add = 7 },
  { .name = "reference", .run = reference_backward, .types = T_FLOAT, .refuse = conv_refuse_last,
    .add = 7 },
  { 0 }
};

static const struct param params_v1[] = { CONV_WINDOW, CONV_REST("1024", "0", "NCHW|NHWC|NCDHW|NDHWC"), { 0 } };

static const char *layer8_ports(const void *param)
{
  return ((const struct conv *)param)->no_bias ? "data weight" LAYER8_RANGES
                                               : "data weight bias" LAYER8_RANGES
                                                 " min_bias max_bias";
}

const struct op op_convolution[] = { {
  .name = "Convolution", .alias = "_npx_convolution", .flags = OP_SPARED,
  .doc = "Cross-correlation of data (N, C, spatial) with weight (num_filter, C / num_group, kernel) plus bias "
         "(num_filter,); zeros outside. "
         "Output (N, num_filter, floor((in + 2 pad - dilate (kernel - 1) - 1) / stride) + 1). Gradients of all inputs.",
  .in = "data weight bias", .out = "output", .in_of = conv_ports, .param = params, .param_size = sizeof(struct conv),
  .check = conv_check,
  .shape = convolution_shape, .grad = "g0 i0 i1", .shown = "g0 i0 i1 i2", .cpu = cpu, .back_cpu = back,
}, {
  .name = "Convolution_v1",
  .doc = "As Convolution with two or three spatial axes; the data's shape is not inferred from the output's.",
  .in = "data weight bias", .out = "output", .in_of = conv_ports, .param = params_v1, .param_size = sizeof(struct conv),
  .check = check_v1,
  .shape = shape_from_data, .grad = "g0 i0 i1", .shown = "g0 i0 i1 i2", .cpu = cpu, .back_cpu = back,
}, {
  .name = "_contrib_quantized_conv",
  .doc = "Convolution of 8-bit data with an int8 weight, and the range of its 32-bit result.",
  .in = "data weight bias", .out = "output min_output max_output", .in_of = layer8_ports,
  .param = params, .param_size = sizeof(struct conv), .check = conv_check, .shape = layer8_shape, .type = layer8_type,
  .layer = "Convolution", .cpu = layer8_cpu,
}, { 0 } };
