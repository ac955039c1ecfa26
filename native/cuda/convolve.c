/* convolve.c - Convolution and Deconvolution, each with its gradients, by cuDNN (dnn.h), and their
** biases. A deconvolution uses the convolution whose data (x) is the deconvolution's output and
** whose output (y) is its data: forward computes the gradient of x, the gradient of the data is y.
**
** If the layout pass chooses channels last, the weight is converted, too: in training at each run,
** all weights of a segment at once; for inference once. Plain arrays at the border of such a part
** are converted as well. Gradients of weights are computed with channels last and converted in
** place at the end of the segment. */
#include "cuda/dnn.h"
#include "cuda/reduce.h"
#include "cuda/turn.h"
#include "kernel/blocked.h"
#include "op/registry.h"

/* Parameter `layout`: from this value on, channels are last; -1: none is given. */
enum { LAYOUT_NHWC = 3 };

/* Returns the block of channels: all of them (channels last) for dtypes that tensor cores multiply,
** and for bytes, which are argmax masks of pooling; else 0. */
static int wanted_block(const ty_desc *d, int precision)
{
  bool wants = d->dtype == TY_F16 || d->dtype == TY_BF16 || d->dtype == TY_U8 ||
      (d->dtype == TY_F32 && precision_allows_tf32(precision));
  return wants && d->dim[1] > 1 && d->dim[1] <= INT32_MAX ? (int)d->dim[1] : 0;
}

__attribute__((constructor)) static void register_blocks(void)
{
  channel_block_register(TY_GPU, wanted_block);
}

/* -- the convolution of a call ----------------------------------------------------------------- */

static int64_t window_reach(const struct dnn_convolution *v, int i)
{
  return (v->kernel[i] - 1) * v->dilate[i] + 1;
}

/* Sets the padding before and after axis i; both are equal if the lengths allow it. */
static void set_padding(struct dnn_convolution *v, int i, int64_t pad, int64_t target)
{
  int64_t whole = v->stride[i] * (v->out[i] - 1) + window_reach(v, i);
  v->before[i] = target ? (whole - target + 1) / 2 : pad;
  int64_t span = v->in[i] + 2 * v->before[i] - window_reach(v, i);
  bool even = span >= 0 && span / v->stride[i] + 1 == v->out[i];
  v->after[i] = even ? v->before[i] : MAX(whole - v->in[i] - v->before[i], 0);
}

static bool said_last(const struct call *c)
{
  return cuda_number(c, "layout", -1) >= LAYOUT_NHWC;
}

static struct dnn_convolution make_convolution(
    const struct call *c, enum dnn_result makes, const ty_desc *x, const ty_desc *w,
    const ty_desc *y)
{
  bool last = said_last(c);
  const void *p = c->param;
  const struct dims *stride = op_dims(c->op, p, "stride"), *dilate = op_dims(c->op, p, "dilate"),
                    *pad = op_dims(c->op, p, "pad"), *target = op_dims(c->op, p, "target_shape");
  struct dnn_convolution v = { .makes = makes, .dtype = w->dtype, .axes = x->ndim - 2,
    .channels_last = last || in_blocks(c), .aligned = 16,
    .tf32 = w->dtype == TY_F32 && precision_allows_tf32(c->precision), .n = x->dim[0],
    .groups = (int64_t)cuda_number(c, "num_group", 1), .filters = w->dim[0],
    .most = (int64_t)cuda_number(c, "workspace", 1024) << 20 };
  int first = last ? 1 : 2;
  v.channels = x->dim[last ? x->ndim - 1 : 1];
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

enum { PLAIN, TRANSPOSED };
static bool is_transposed(const struct call *c) { return cuda_what(c) == TRANSPOSED; }

/* Makes a forward convolution, with bias and relu if cuDNN has an engine for that. */
static struct dnn_convolution make_forward(const struct call *c)
{
  const ty_desc *data = &c->in[0].d, *w = &c->in[1].d, *out = &c->out[0].d;
  if (is_transposed(c)) return make_convolution(c, DNN_MAKES_X, out, w, data);
  struct dnn_convolution v = make_convolution(c, DNN_MAKES_Y, data, w, out);
  v.biased = c->nin > 2;
  v.relu = fused_act(c) == ACT_RELU;
  if ((v.biased || v.relu) && dnn_refuse(c->device, &v)) v.biased = v.relu = 0;
  return v;
}

/* Returns the convolution of a gradient; in: gradient of the output, data, weight. */
static struct dnn_convolution make_backward(const struct call *c, enum dnn_result makes, int out)
{
  const ty_desc *g = &c->in[0].d, *data = &c->in[1].d, *w = &c->in[2].d;
  bool turned = is_transposed(c);
  struct dnn_convolution v = make_convolution(c, makes, turned ? g : data, w, turned ? data : g);
  v.add = c->add >> out & 1;
  return v;
}
static struct dnn_convolution data_gradient(const struct call *c)
{
  return make_backward(c, is_transposed(c) ? DNN_MAKES_Y : DNN_MAKES_X, 0);
}
static struct dnn_convolution weight_gradient(const struct call *c)
{
  return make_backward(c, DNN_MAKES_W, 1);
}

/* -- arrays that are converted ----------------------------------------------------------------- */

/* The weight with channels last, in device memory. of, version: in inference, the array that it was
** converted from. */
struct turned_weight { cu_pointer p; int device; size_t bytes; const void *of; uint64_t version; };

/* Returns whether an operand in training can be converted together with others. */
static bool operand_joins(const struct call *c, const struct operand *a)
{
  return c->trains && in_blocks(c) && !a->block && turn_joins(&a->d);
}
static bool weight_joins(const struct call *c) { return operand_joins(c, &c->in[1]); }
static bool weight_joins_back(const struct call *c) { return operand_joins(c, &c->in[2]); }
static bool gradient_joins(const struct call *c)
{
  return operand_joins(c, &c->out[1]) && !(c->add >> 1 & 1);
}

static size_t state_bytes(const struct call *c)
{
  return in_blocks(c) && (!c->trains || weight_joins(c)) ? sizeof(struct turned_weight) : 0;
}

static size_t back_state_bytes(const struct call *c)
{
  return weight_joins_back(c) ? sizeof(struct turned_weight) : 0;
}

static void state_done(void *state)
{
  struct turned_weight *s = state;
  if (s->p && !cuda_enter(s->device)) cu_api.MemFree(s->p);
}

/* Returns whether an array is plain in a call whose other arrays have their channels last. */
static bool needs_turn(const struct call *c, const struct operand *a)
{
  return in_blocks(c) && !a->block && turn_moves(&a->d);
}

static size_t turned_bytes(const struct call *c, const struct operand *a)
{
  return needs_turn(c, a) ? align_up(desc_bytes(&a->d), ALIGN) : 0;
}

static size_t all_turned_bytes(const struct call *c)
{
  size_t bytes = 0;
  for (int i = 0; i < c->nin; i++) bytes += turned_bytes(c, &c->in[i]);
  for (int i = 0; i < c->nout; i++) bytes += turned_bytes(c, &c->out[i]);
  return bytes;
}

/* Returns in *out an operand in the layout of the convolution: the operand itself, or a piece of
** *at, which then advances. reads: converts the operand's contents. */
static int turn_operand(
    const struct call *c, const struct operand *a, bool reads, char **at, void **out)
{
  *out = a->p;
  if (!a->p || !needs_turn(c, a)) return TY_OK;
  *out = cuda_piece(at, desc_bytes(&a->d));
  return reads ? turn_last(c->device, &a->d, *out, a->p) : TY_OK;
}

static int turn_back(const struct call *c, const struct operand *a, const void *from)
{
  return a->p && a->p != from ? turn_plain(c->device, &a->d, a->p, from) : TY_OK;
}

/* Allocates memory for a converted weight. Returns false if out of memory. */
static bool reserve_weight(struct turned_weight *s, const struct call *c, size_t bytes)
{
  if (s->p && s->bytes == bytes) return true;
  if (s->p) cu_api.MemFree(s->p);
  *s = (struct turned_weight){ .device = c->device, .bytes = bytes };
  if (cu_api.MemAlloc(&s->p, bytes)) s->p = 0;
  return s->p != 0;
}

/* Returns in *out the converted weight. In inference a bound weight is converted again only if it
** has changed (kernel.packs). */
static int turned_once(const struct call *c, const struct operand *w, char **at, void **out)
{
  struct turned_weight *s = c->state;
  *out = c->prepared ? (void *)(uintptr_t)s->p : NULL;
  if (*out) return TY_OK;
  if (!s || c->trains || !w->version || !needs_turn(c, w) ||
      !reserve_weight(s, c, desc_bytes(&w->d)))
    return turn_operand(c, w, true, at, out);
  *out = (void *)(uintptr_t)s->p;
  if (s->of == w->p && s->version == *w->version) return TY_OK;
  s->of = w->p;
  s->version = *w->version;
  return turn_last(c->device, &w->d, *out, w->p);
}

enum { TURNED_AT_ONCE = 64 };

/* Converts input `weight` of each call into its state (struct together). A call without memory for
** that converts its weight itself. */
static int turn_weights(struct call *const *list, int n, int weight)
{
  struct turn all[TURNED_AT_ONCE];
  int count = 0;
  for (int i = 0; i < n; i++) {
    const struct operand *w = &list[i]->in[weight];
    struct turned_weight *s = list[i]->state;
    bool listed = !reserve_weight(s, list[i], desc_bytes(&w->d));
    void *to = (void *)(uintptr_t)s->p;
    for (int k = 0; k < count; k++) listed |= all[k].to == to; /* shared by layers */
    if (!listed) all[count++] = (struct turn){ &w->d, to, w->p };
    if (count < TURNED_AT_ONCE) continue;
    TRY(turn_many(list[i]->device, all, count, true));
    count = 0;
  }
  return turn_many(list[0]->device, all, count, true);
}
static int turn_forward(struct call *const *list, int n) { return turn_weights(list, n, 1); }
static int turn_backward(struct call *const *list, int n) { return turn_weights(list, n, 2); }

/* Converts the gradients of weights in place (struct together). */
static int turn_gradients(struct call *const *list, int n)
{
  struct turn all[TURNED_AT_ONCE];
  for (int i = 0; i < n; i += TURNED_AT_ONCE) {
    const int count = MIN(n - i, TURNED_AT_ONCE);
    for (int k = 0; k < count; k++) {
      const struct operand *g = &list[i + k]->out[1];
      all[k] = (struct turn){ &g->d, g->p, g->p };
    }
    TRY(turn_many(list[0]->device, all, count, false));
  }
  return TY_OK;
}

static const struct together weights_forward = { 1, weight_joins, turn_forward };
static const struct together weights_backward = { 2, weight_joins_back, turn_backward };
static const struct together gradients = { 1, gradient_joins, turn_gradients };

/* -- refusals and scratch ---------------------------------------------------------------------- */

static const char *refuse_operands(const struct call *c)
{
  if (in_blocks(c) && said_last(c)) return "channels last";
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
  struct dnn_convolution v = make_forward(c);
  return dnn_refuse(c->device, &v);
}

static size_t forward_scratch(const struct call *c)
{
  struct dnn_convolution v = make_forward(c);
  return align_up(dnn_workspace(c->device, &v), ALIGN) + all_turned_bytes(c);
}

static const char *backward_refuse(const struct call *c)
{
  const char *no = refuse_operands(c);
  if (no) return no;
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  no = dnn_refuse(c->device, &data);
  return no ? no : dnn_refuse(c->device, &weight);
}

/* Returns the reduction of the output's gradient to that of the bias. */
static struct reduce bias_reduction(const struct call *c)
{
  const ty_desc *g = &c->in[0].d;
  struct dnn_convolution v = data_gradient(c);
  int64_t k = g->dim[said_last(c) ? g->ndim - 1 : 1], rest = desc_count(g) / k;
  return said_last(c) || c->in[0].block ? cuda_reduce_all_but(g->dtype, rest, k, 1)
                                        : cuda_reduce_all_but(g->dtype, v.n, k, rest / v.n);
}

static size_t backward_scratch(const struct call *c)
{
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  size_t bytes = MAX(dnn_workspace(c->device, &data), dnn_workspace(c->device, &weight));
  struct reduce r = bias_reduction(c);
  if (c->nout > 2) bytes = MAX(bytes, cuda_reduce_scratch(&r));
  return align_up(bytes, ALIGN) + all_turned_bytes(c);
}

/* -- running ----------------------------------------------------------------------------------- */

/* Adds bias and relu unless the convolution includes them. */
static int add_epilogue(const struct call *c, const struct dnn_convolution *v, void *out)
{
  const ty_desc *d = &c->out[0].d;
  bool biased = c->nin > 2 && !v->biased, relu = fused_act(c) == ACT_RELU && !v->relu;
  int64_t n = desc_count(d), k = is_transposed(c) ? v->channels : v->filters;
  int64_t inner = v->channels_last ? 1 : n / v->n / k;
  void *none = NULL;
  cu_function f;
  if (!biased && !relu) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_bias, "finish", &f, "T=%s BIASED=%d RELU=%d INDEX=%s",
      cuda_type(d->dtype), biased, relu, cuda_index(n)));
  void *params[] = { &out, biased ? &c->in[2].p : &none, &n, &k, &inner };
  return cuda_run(c, f, n, params);
}

static int convolution_forward(struct call *c)
{
  struct dnn_convolution v = make_forward(c);
  char *at = (char *)c->tmp + align_up(dnn_workspace(c->device, &v), ALIGN);
  void *data, *w, *out;
  TRY(turn_operand(c, &c->in[0], true, &at, &data));
  TRY(turned_once(c, &c->in[1], &at, &w));
  TRY(turn_operand(c, &c->out[0], false, &at, &out));
  struct dnn_arrays a = { data, w, out, v.biased ? c->in[2].p : NULL };
  if (is_transposed(c)) a = (struct dnn_arrays){ out, w, data };
  TRY(dnn_run(c->device, &v, a, c->tmp));
  TRY(add_epilogue(c, &v, out));
  return turn_back(c, &c->out[0], out);
}

/* Computes a gradient. in: gradient of the output, data, weight, in the layout of the
** convolution. */
static int run_gradient(
    const struct call *c, const struct dnn_convolution *v, int k, void *const in[3], char *at)
{
  struct dnn_arrays a = { in[1], in[2], in[0] };
  void *out;
  if (!c->out[k].p) return TY_OK;
  if (c->finished_later && v->makes == DNN_MAKES_W)
    out = c->out[k].p;
  else
    TRY(turn_operand(c, &c->out[k], v->add, &at, &out));
  if (is_transposed(c)) a = (struct dnn_arrays){ in[0], in[2], in[1] };
  *(v->makes == DNN_MAKES_X ? &a.x : v->makes == DNN_MAKES_W ? &a.w : &a.y) = out;
  TRY(dnn_run(c->device, v, a, c->tmp));
  return turn_back(c, &c->out[k], out);
}

static int convolution_backward(struct call *c)
{
  struct dnn_convolution data = data_gradient(c), weight = weight_gradient(c);
  size_t workspace = MAX(dnn_workspace(c->device, &data), dnn_workspace(c->device, &weight));
  struct reduce r = bias_reduction(c);
  if (c->nout > 2) workspace = MAX(workspace, cuda_reduce_scratch(&r));
  char *at = (char *)c->tmp + align_up(workspace, ALIGN);
  void *in[3];
  for (int i = 0; i < 3; i++) {
    bool read = c->out[0].p || c->out[1].p;
    in[i] = c->in[i].p;
    if (read && i == 2)
      TRY(turned_once(c, &c->in[i], &at, &in[i]));
    else if (read)
      TRY(turn_operand(c, &c->in[i], true, &at, &in[i]));
  }
  TRY(run_gradient(c, &data, 0, in, at));
  TRY(run_gradient(c, &weight, 1, in, at));
  if (c->nout < 3 || !c->out[2].p) return TY_OK;
  struct cuda_reduce f = { R_SUM, F_NONE, c->in[0].d.dtype, c->in[0].p, .y = c->out[2].p,
    .add = c->add >> 2 & 1 };
  return cuda_reduce(c->device, &r, &f, c->tmp);
}

/* -- the table: half types through float32 where cuDNN has no engine for them ------------------ */

static const struct kernel convolution[] = {
  { "cudnn", convolution_forward, T_FLOATS, forward_refuse, forward_scratch, state_bytes,
    state_done, .packs = 2, .flags = K_PRECISION, .blocks = IN_BLOCKS(1, 1),
    .before = &weights_forward, .fuses = CAN(POST_ACT) },
  { "cudnn32", convolution_forward, T_FLOAT, forward_refuse, forward_scratch,
    .flags = K_PRECISION, .fuses = CAN(POST_ACT) },
  { 0 }
};
static const struct kernel deconvolution[] = {
  { "cudnn", convolution_forward, T_FLOATS, forward_refuse, forward_scratch, state_bytes,
    state_done, .packs = 2, .flags = K_PRECISION, .blocks = IN_BLOCKS(1, 1),
    .before = &weights_forward },
  { "cudnn32", convolution_forward, T_FLOAT, forward_refuse, forward_scratch,
    .flags = K_PRECISION },
  { 0 }
};
static const struct kernel back[] = {
  { "cudnn", convolution_backward, T_FLOATS, backward_refuse, backward_scratch, back_state_bytes,
    state_done, .packs = 3, .add = 7, .flags = K_PRECISION, .blocks = IN_BLOCKS(3, 1),
    .before = &weights_backward, .after = &gradients },
  { "cudnn32", convolution_backward, T_FLOAT, backward_refuse, backward_scratch, .add = 7,
    .flags = K_PRECISION },
  { 0 }
};
const struct op_kernels cuda_convolve[] = {
  { "Convolution", convolution, back },
  { "Convolution_v1", convolution, back },
  { "Deconvolution", deconvolution, back, TRANSPOSED },
  { 0 }
};
