/* convolve.c - Convolution and Deconvolution, each with its gradients, by cuDNN (dnn.h), and their
** biases. A deconvolution is the gradient of a convolution whose data is its output: forward makes
** that x, the gradient of its data that y. */
#include "cuda/dnn.h"
#include "cuda/fold.h"
#include "op/registry.h"

/* of the parameter `layout`: from this one on channels come last; -1: none given */
enum { LAYOUT_NHWC = 3 };

/* -- which convolution a call is --------------------------------------------------------------- */

static int64_t reach(const struct dnn_convolution *v, int i)
{
  return (v->kernel[i] - 1) * v->dilate[i] + 1;
}

/* Zeros in front of and behind axis i, as many behind as in front where the lengths allow. */
static void set_padding(struct dnn_convolution *v, int i, int64_t pad, int64_t target)
{
  int64_t whole = v->stride[i] * (v->out[i] - 1) + reach(v, i);
  v->before[i] = target ? (whole - target + 1) / 2 : pad;
  int64_t span = v->in[i] + 2 * v->before[i] - reach(v, i);
  bool even = span >= 0 && span / v->stride[i] + 1 == v->out[i];
  v->behind[i] = even ? v->before[i] : MAX(whole - v->in[i] - v->before[i], 0);
}

static struct dnn_convolution convolution_of(
    const struct call *c, enum dnn_result makes, const ty_desc *x, const ty_desc *w,
    const ty_desc *y)
{
  const void *p = c->param;
  const struct dims *stride = op_dims(c->op, p, "stride"), *dilate = op_dims(c->op, p, "dilate"),
                    *pad = op_dims(c->op, p, "pad"), *target = op_dims(c->op, p, "target_shape");
  struct dnn_convolution v = { .makes = makes, .dtype = w->dtype, .axes = x->ndim - 2,
    .channels_last = cuda_number(c, "layout", -1) >= LAYOUT_NHWC, .aligned = 16, .n = x->dim[0],
    .groups = (int64_t)cuda_number(c, "num_group", 1), .filters = w->dim[0],
    .most = (int64_t)cuda_number(c, "workspace", 1024) << 20 };
  int first = v.channels_last ? 1 : 2;
  v.channels = x->dim[v.channels_last ? x->ndim - 1 : 1];
  for (int i = 0; i < v.axes; i++) {
    v.in[i] = x->dim[first + i];
    v.out[i] = y->dim[first + i];
    v.kernel[i] = w->dim[first + i];
    v.stride[i] = stride->d[i];
    v.dilate[i] = dilate->d[i];
    set_padding(&v, i, pad->d[i], target ? target->d[i] : 0);
  }
  return v;
}

static bool transposed(const struct call *c) { return !strcmp(c->op->name, "Deconvolution"); }

static struct dnn_convolution forward_of(const struct call *c)
{
  const ty_desc *data = &c->in[0].d, *w = &c->in[1].d, *out = &c->out[0].d;
  if (transposed(c)) return convolution_of(c, DNN_MAKES_X, out, w, data);
  struct dnn_convolution v = convolution_of(c, DNN_MAKES_Y, data, w, out);
  v.biased = c->nin > 2;
  v.relu = fused_act(c) == ACT_RELU;
  return v;
}

/* of a gradient; in: gradient of the output, data, weight */
static struct dnn_convolution backward_of(const struct call *c, enum dnn_result makes, int out)
{
  const ty_desc *g = &c->in[0].d, *data = &c->in[1].d, *w = &c->in[2].d;
  bool turned = transposed(c);
  struct dnn_convolution v = convolution_of(c, makes, turned ? g : data, w, turned ? data : g);
  v.add = c->add >> out & 1;
  return v;
}
static struct dnn_convolution data_gradient(const struct call *c)
{
  return backward_of(c, transposed(c) ? DNN_MAKES_Y : DNN_MAKES_X, 0);
}
static struct dnn_convolution weight_gradient(const struct call *c)
{
  return backward_of(c, DNN_MAKES_W, 1);
}

/* -- refusals and scratch ---------------------------------------------------------------------- */

static const char *refuse_operands(const struct call *c)
{
  for (int i = 0; i < c->nin; i++) {
    if (c->in[i].d.dtype != c->in[0].d.dtype) return "operands of several dtypes";
    if (!desc_count(&c->in[i].d)) return "an empty operand";
  }
  return NULL;
}

static const char *forward_refuse(const struct call *c)
{
  const char *no = refuse_operands(c);
  if (no || !desc_count(&c->out[0].d)) return no ? no : "an empty result";
  struct dnn_convolution v = forward_of(c);
  return dnn_refuse(c->device, &v);
}

static size_t forward_scratch(const struct call *c)
{
  struct dnn_convolution v = forward_of(c);
  return dnn_workspace(c->device, &v);
}

static const char *backward_refuse(const struct call *c)
{
  const char *no = refuse_operands(c);
  if (no) return no;
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  no = dnn_refuse(c->device, &data);
  return no ? no : dnn_refuse(c->device, &weight);
}

/* what stays of the output's gradient in that of the bias */
static struct reduce bias_fold(const struct call *c)
{
  const ty_desc *g = &c->in[0].d;
  struct dnn_convolution v = data_gradient(c);
  int64_t k = g->dim[v.channels_last ? g->ndim - 1 : 1], rest = desc_count(g) / k;
  return v.channels_last ? cuda_fold_rest(g->dtype, rest, k, 1)
                         : cuda_fold_rest(g->dtype, v.n, k, rest / v.n);
}

static size_t backward_scratch(const struct call *c)
{
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  size_t bytes = MAX(dnn_workspace(c->device, &data), dnn_workspace(c->device, &weight));
  if (c->nout < 3) return bytes;
  struct reduce r = bias_fold(c);
  return MAX(bytes, cuda_fold_scratch(&r));
}

/* -- running ----------------------------------------------------------------------------------- */

static int add_bias(const struct call *c, const struct dnn_convolution *v)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = desc_count(d), k = v->channels, inner = v->channels_last ? 1 : n / v->n / k;
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_bias, "add_bias", &f, "T=%s INDEX=%s", cuda_type(d->dtype),
      cuda_index(n)));
  void *params[] = { &c->out[0].p, &c->in[2].p, &n, &k, &inner };
  return cuda_run(c, f, n, params);
}

static int forward(struct call *c)
{
  struct dnn_convolution v = forward_of(c);
  void *data = c->in[0].p, *w = c->in[1].p, *out = c->out[0].p;
  struct dnn_arrays a = { data, w, out, v.biased ? c->in[2].p : NULL };
  if (!transposed(c)) return dnn_run(c->device, &v, a, c->tmp);
  TRY(dnn_run(c->device, &v, (struct dnn_arrays){ out, w, data }, c->tmp));
  return c->nin > 2 ? add_bias(c, &v) : TY_OK;
}

static int gradient(const struct call *c, const struct dnn_convolution *v, int out)
{
  struct dnn_arrays a = { c->in[1].p, c->in[2].p, c->in[0].p };
  if (transposed(c)) a = (struct dnn_arrays){ c->in[0].p, c->in[2].p, c->in[1].p };
  *(v->makes == DNN_MAKES_X ? &a.x : v->makes == DNN_MAKES_W ? &a.w : &a.y) = c->out[out].p;
  return c->out[out].p ? dnn_run(c->device, v, a, c->tmp) : TY_OK;
}

static int backward(struct call *c)
{
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  TRY(gradient(c, &data, 0));
  TRY(gradient(c, &weight, 1));
  if (c->nout < 3 || !c->out[2].p) return TY_OK;
  struct reduce r = bias_fold(c);
  struct cuda_fold f = { R_SUM, F_NONE, c->in[0].d.dtype, c->in[0].p, .y = c->out[2].p,
    .add = c->add >> 2 & 1 };
  return cuda_fold(c->device, &r, &f, c->tmp);
}

/* -- the table: half types through float32 where cuDNN has no engine for them ------------------ */

static const struct kernel convolution[] = {
  { "cudnn", forward, T_FLOATS, forward_refuse, forward_scratch, .fuses = CAN(POST_ACT) },
  { "cudnn32", forward, T_FLOAT, forward_refuse, forward_scratch, .fuses = CAN(POST_ACT) },
  { 0 }
};
static const struct kernel deconvolution[] = {
  { "cudnn", forward, T_FLOATS, forward_refuse, forward_scratch },
  { "cudnn32", forward, T_FLOAT, forward_refuse, forward_scratch },
  { 0 }
};
static const struct kernel back[] = {
  { "cudnn", backward, T_FLOATS, backward_refuse, backward_scratch, .add = 7 },
  { "cudnn32", backward, T_FLOAT, backward_refuse, backward_scratch, .add = 7 },
  { 0 }
};
const struct op_kernels cuda_convolve[] = {
  { "Convolution", convolution, back },
  { "Convolution_v1", convolution, back },
  { "Deconvolution", deconvolution, back },
  { 0 }
};
