/* int8_layer.c - FullyConnected and Convolution on 8-bit integers: _contrib_int8_fully_connected,
** _contrib_int8_convolution.
**
** A level q of an array represents (q - zero) scale (kernel/gemm/levels.h). Scale and zero of data,
** `sum` and result are parameters; the weight has zero 0 and an array of scales, one per output
** channel. Float32 data is rounded to int8 first. Sums are 32-bit integers; one pass over them
** makes real numbers, adds bias and `sum`, applies relu, and stores float32 or the levels of the
** next layer. Nothing here has a gradient.
*/
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/levels.h"
#include "op/op.h"
#include "operators/nn/convolution.h"

/* Parameters that both layers have besides those of FullyConnected or Convolution. */
struct level_params {
  double data_scale, out_scale, sum_scale;
  int64_t data_zero, out_zero, sum_zero, act, with_sum, out_type;
};
struct linear8 { int64_t num_hidden, no_bias, flatten; struct level_params q; };
struct conv8 { struct conv conv; struct level_params q; };

enum { OUT_F32, OUT_I8, OUT_U8 };
#define LEVELS(T) \
  { "data_scale", P_FLOAT, offsetof(struct T, q.data_scale), "0", \
    "the number that a level of the data represents; 0: of float32 data the largest magnitude of " \
    "a row (of an image) / 127" }, \
  { "data_zero",  P_INT,   offsetof(struct T, q.data_zero),  "0", \
    "the level of the data that represents 0", NULL, "[-128,255]" }, \
  { "act_type",   P_ENUM,  offsetof(struct T, q.act),        "None", "applied to the result", \
    "relu", NULL, 1 }, \
  { "with_sum",   P_BOOL,  offsetof(struct T, q.with_sum),   "0", \
    "there is an input sum, which is added before the activation" }, \
  { "sum_scale",  P_FLOAT, offsetof(struct T, q.sum_scale),  "1", \
    "the number that a level of sum represents" }, \
  { "sum_zero",   P_INT,   offsetof(struct T, q.sum_zero),   "0", \
    "the level of sum that represents 0", NULL, "[-128,255]" }, \
  { "out_type",   P_ENUM,  offsetof(struct T, q.out_type),   "float32", "dtype of the result", \
    "float32|int8|uint8" }, \
  { "out_scale",  P_FLOAT, offsetof(struct T, q.out_scale),  "1", \
    "the number that a level of the result represents" }, \
  { "out_zero",   P_INT,   offsetof(struct T, q.out_zero),   "0", \
    "the level of the result that represents 0", NULL, "[-128,255]" }

static const struct param linear_params[] = {
  { "num_hidden", P_INT,  offsetof(struct linear8, num_hidden), NULL, "columns of the output", NULL, "[1,]" },
  { "no_bias",    P_BOOL, offsetof(struct linear8, no_bias),    "0",  "there is no bias input" },
  { "flatten",    P_BOOL, offsetof(struct linear8, flatten),    "1",
    "axes 1 and on are one; else the last axis alone is contracted" },
  LEVELS(linear8), { 0 }
};
static const struct param conv_params[] = {
  CONV_WINDOW, CONV_REST("1024", "0", "NCW|NCHW|NCDHW|NHWC|NDHWC"), LEVELS(conv8), { 0 }
};

static bool is_linear(const struct op *op) { return op->param_size == sizeof(struct linear8); }

static const struct level_params *get_levels(const struct op *op, const void *param)
{
  return is_linear(op) ? &((const struct linear8 *)param)->q : &((const struct conv8 *)param)->q;
}

static const char *ports_of(bool no_bias, bool with_sum)
{
  if (no_bias) return with_sum ? "data weight scale sum" : "data weight scale";
  return with_sum ? "data weight scale bias sum" : "data weight scale bias";
}

static const char *linear_ports(const void *param)
{
  const struct linear8 *p = param;
  return ports_of(p->no_bias, p->q.with_sum);
}

static const char *conv8_ports(const void *param)
{
  const struct conv8 *p = param;
  return ports_of(p->conv.no_bias, p->q.with_sum);
}

static int check_levels(const struct level_params *q)
{
  const double scale[] = { q->data_scale, q->out_scale, q->sum_scale };
  static const char *const name[] = { "data_scale", "out_scale", "sum_scale" };
  for (int i = 0; i < 3; i++)
    if (!(scale[i] >= 0) || isinf(scale[i]) || (i && scale[i] == 0))
      return param_fail(name[i], "a finite number above 0", "%g", scale[i]);
  return TY_OK;
}

static int linear_check(void *param) { return check_levels(&((struct linear8 *)param)->q); }

static int conv8_check(void *param)
{
  struct conv8 *p = param;
  TRY(conv_check(&p->conv));
  if (conv_channels_last(&p->conv))
    return fail(TY_EVALUE, "parameter layout: expected channels second, got channels last");
  return check_levels(&p->q);
}

/* -- inference --------------------------------------------------------------------------------- */

/* Infers data, weight and bias as FullyConnected or Convolution does, whose inputs lack the scales
** (input 2 here) and `sum` (the last one). */
static int layer_shape(struct infer *s)
{
  const bool linear = is_linear(s->op);
  const struct linear8 *l = s->param;
  const struct conv8 *v = s->param;
  const bool biased = linear ? !l->no_bias : !v->conv.no_bias;
  const struct op *op = op_find(linear ? "FullyConnected" : "Convolution");
  int64_t channels = linear ? l->num_hidden : v->conv.num_filter;
  ty_desc in[3] = { s->in[0], s->in[1] }, out = s->out[0];
  if (biased) in[2] = s->in[3];
  struct infer layer = { op, s->param, biased ? 3 : 2, 1, in, &out };
  TRY(op->shape(&layer));
  s->in[0] = in[0];
  s->in[1] = in[1];
  if (biased) s->in[3] = in[2];
  s->out[0] = out;
  TRY(shape_is(s, &s->in[2], 1, &channels));
  return get_levels(s->op, s->param)->with_sum ? shape_both(s, &s->in[s->nin - 1], &s->out[0])
                                             : TY_OK;
}

static int layer_type(struct infer *s)
{
  static const int types[] = { [OUT_F32] = TY_F32, [OUT_I8] = TY_I8, [OUT_U8] = TY_U8 };
  const struct level_params *q = get_levels(s->op, s->param);
  const int floats = s->nin - (q->with_sum ? 1 : 0);
  TRY(type_is(s, &s->in[1], TY_I8));
  for (int i = 2; i < floats; i++) TRY(type_is(s, &s->in[i], TY_F32));
  return type_is(s, &s->out[0], types[q->out_type]);
}

/* -- both layers ------------------------------------------------------------------------------- */

/* rounding a number to a level: 0.17 ns, an estimate */
#define ENTER_NS (PARALLEL_CHUNK_NS / 60000)
/* computing a result from a sum: 0.33 ns, an estimate */
#define LEAVE_NS (PARALLEL_CHUNK_NS / 30000)



static bool is_level_type(int dtype) { return dtype == TY_I8 || dtype == TY_U8; }

static const char *layer8_refuse(const struct call *c, int64_t terms)
{
  const struct level_params *q = get_levels(c->op, c->param);
  const int data = c->in[0].d.dtype;
  if (data != TY_F32 && !is_level_type(data)) return "data is neither float32 nor 8-bit integers";
  if (is_level_type(data) && q->data_scale == 0) return "8-bit data without data_scale";
  if (data == TY_F32 && q->data_zero) return "float32 data with data_zero";
  const int addend = c->in[c->nin - 1].d.dtype;
  if (q->with_sum && addend != TY_F32 && !is_level_type(addend))
    return "sum is neither float32 nor 8-bit integers";
  return terms <= LEVELS_TERMS ? NULL : "sums of so many products may not fit 32 bits";
}

static struct level_row make_level_row(const struct call *c, bool no_bias)
{
  const struct level_params *q = get_levels(c->op, c->param);
  return (struct level_row){ .scale = c->in[2].p,
    .bias = no_bias ? NULL : c->in[3].p,
    .unit = (float)q->data_scale,
    .addend = q->with_sum ? c->in[c->nin - 1].p : NULL,
    .addend_type = c->in[c->nin - 1].d.dtype,
    .addend_scale = (float)q->sum_scale,
    .addend_zero = (float)q->sum_zero,
    .relu = q->act == 0,
    .out_type = c->out[0].d.dtype,
    .inverse = (float)(1 / q->out_scale),
    .zero = (float)q->out_zero };
}

/* -- FullyConnected ---------------------------------------------------------------------------- */

struct linear_pass {
  const struct call *c;
  const struct level_params *q;
  int64_t n;                                          /* columns of the result */
  int64_t k;                                          /* columns of the data */
  uint8_t *data;                                      /* levels of float32 data */
  int32_t *sums;
  float *unit;                                        /* per row: number of a level of the data */
  struct level_row row;                               /* common to all rows */
};

/* Bytes of the parts of scratch, in their order. */
struct linear_parts {
  size_t data;
  size_t sums;
  size_t unit;
  size_t zero_term;
  size_t all;
};

/* Returns whether results are computed while sums are in registers: float32 results without `sum`.
** Others need a second pass over the sums, in scratch. */
static bool ends_in_registers(const struct call *c)
{
  return c->out[0].d.dtype == TY_F32 && !get_levels(c->op, c->param)->with_sum;
}

static struct linear_parts make_linear_parts(const struct call *c, int64_t m, int64_t n, int64_t k)
{
  struct linear_parts p = { 0 };
  if (c->in[0].d.dtype == TY_F32) p.data = align_up((size_t)(m * k), ALIGN);
  if (!ends_in_registers(c)) p.sums = align_up((size_t)(m * n) * sizeof(int32_t), ALIGN);
  p.unit = align_up((size_t)m * sizeof(float), ALIGN);
  p.zero_term = align_up((size_t)n * sizeof(int32_t), ALIGN);
  p.all = p.data + p.sums + p.unit + p.zero_term;
  return p;
}

static int64_t linear_rows(const struct call *c)
{
  return desc_count(&c->out[0].d) / c->in[1].d.dim[0];
}

static size_t linear_scratch(const struct call *c)
{
  return make_linear_parts(c, linear_rows(c), c->in[1].d.dim[0], c->in[1].d.dim[1]).all;
}

static const char *linear_refuse(const struct call *c)
{
  return layer8_refuse(c, c->in[1].d.dim[1]);
}

/* Writes the levels of rows of float32 data, and the number that a level of each row represents. */
static void make_level_rows(int64_t begin, int64_t end, void *context)
{
  const struct linear_pass *x = context;
  const int64_t k = x->k;
  for (int64_t i = begin; i < end; i++) {
    const float *row = (const float *)x->c->in[0].p + i * k;
    const float unit =
        x->q->data_scale > 0 ? (float)x->q->data_scale : levels_magnitude(k, row) / 127;
    levels_make(k, row, unit > 0 ? 1 / unit : 0, GEMM_LEVELS_SHIFT, x->data + i * k);
    x->unit[i] = unit;
  }
}

static void finish_level_rows(int64_t begin, int64_t end, void *context)
{
  const struct linear_pass *x = context;
  const size_t size = dtype_size(x->row.out_type);
  for (int64_t i = begin; i < end; i++) {
    struct level_row r = x->row;
    r.n = x->n;
    r.per_column = true;
    r.sum = x->sums + i * x->n;
    r.unit = x->unit[i];
    if (r.addend)
      r.addend = (const char *)r.addend + (size_t)(i * x->n) * dtype_size(r.addend_type);
    r.out = (char *)x->c->out[0].p + (size_t)(i * x->n) * size;
    levels_finish(&r);
  }
}

/* Applies the fused activation of the next node, which treats 8-bit results as plain integers: relu
** changes the negative ones, of which uint8 has none. */
static void apply_epilogue_act(const struct call *c)
{
  const struct operand *y = &c->out[0];
  int8_t *level = y->p;
  if (y->d.dtype == TY_F32)
    epilogue_act(c);
  else if (y->d.dtype == TY_I8 && fused_act(c) == ACT_RELU)
    for (int64_t i = 0; i < desc_count(&y->d); i++) level[i] = level[i] < 0 ? 0 : level[i];
}

struct weight_sums {
  const int8_t *w;
  int64_t k;                                          /* columns */
  int32_t *sum;                                       /* per row */
};

static void sum_rows(int64_t begin, int64_t end, void *context)
{
  const struct weight_sums *x = context;
  for (int64_t i = begin; i < end; i++) {
    const int8_t *w = x->w + i * x->k;
    int32_t sum = 0;
    for (int64_t j = 0; j < x->k; j++) sum += w[j];
    x->sum[i] = sum;
  }
}

/* Returns the weight packed for products of a type, owned by the state. *sum: the sums of its rows,
** in the same block. NULL: out of memory. */
static const void *keep_weight(
    struct gemm_kept *state, int type, const struct operand *w, const int32_t **sum)
{
  const int64_t n = w->d.dim[0], k = w->d.dim[1];
  const size_t bytes = align_up(gemm_pack_bytes(type, n, k), ALIGN);
  bool fresh;
  char *packed = gemm_kept_buffer(state, w, bytes + (size_t)n * sizeof(int32_t), &fresh);
  if (!packed) return NULL;
  struct weight_sums x = { w->p, k, (int32_t *)(packed + bytes) };
  if (!fresh) {
    gemm_pack(type, true, n, k, w->p, k, packed);
    parallel_for(n, cost_ns(NS_BYTE, k), sum_rows, &x);
  }
  *sum = x.sum;
  return packed;
}

static int linear_run(struct call *c)
{
  const struct linear8 *p = c->param;
  const struct operand *w = &c->in[1], *data = &c->in[0];
  const int64_t m = linear_rows(c), n = w->d.dim[0], k = w->d.dim[1];
  const struct linear_parts z = make_linear_parts(c, m, n, k);
  const bool real = data->d.dtype == TY_F32, ends = ends_in_registers(c);
  const int type = real ? GEMM_LEVELS : data->d.dtype == TY_U8 ? GEMM_U8 : GEMM_S8;
  const int32_t zero = real ? GEMM_LEVELS_SHIFT : (int32_t)p->q.data_zero, *sum;
  char *at = c->tmp;
  struct linear_pass x = { c, &p->q, n, k, (uint8_t *)at, (int32_t *)(at + z.data),
    (float *)(at + z.data + z.sums), make_level_row(c, p->no_bias) };
  int32_t *zero_term = (int32_t *)(at + z.data + z.sums + z.unit);
  const void *packed = keep_weight(c->state, type, w, &sum);
  NEED(packed, TY_EMEMORY, "out of memory: packed weight of %lld bytes",
      (long long)gemm_pack_bytes(type, n, k));
  for (int64_t i = 0; i < n; i++) zero_term[i] = sum[i] * zero;
  if (real)
    parallel_for_stoppable(m, cost_ns(ENTER_NS, k), make_level_rows, &x);
  else
    for (int64_t i = 0; i < m; i++) x.unit[i] = (float)p->q.data_scale;
  /* registers hold one activation: the layer's own relu, which comes first; else the epilogue's */
  const bool both = x.row.relu && fused_act(c);
  const struct gemm_epilogue e = { .bias = x.row.bias,
    .act = x.row.relu ? ACT_RELU : fused_act(c),
    .unit = x.unit,
    .scale = x.row.scale,
    .zero_term = zero_term };
  TRY(gemm_packed(type, false, m, n, k, real ? x.data : data->p, k, packed,
      ends ? c->out[0].p : x.sums, n, ends ? &e : NULL));
  if (!ends) {
    x.row.zero_term = zero_term;
    parallel_for_stoppable(m, cost_ns(LEAVE_NS, n), finish_level_rows, &x);
  }
  if (!ends || both) apply_epilogue_act(c);
  return TY_OK;
}

/* -- Convolution ------------------------------------------------------------------------------- */

static struct window make_window(const struct call *c)
{
  const struct conv8 *p = c->param;
  return conv_window(&p->conv, &c->in[0].d, &c->in[1].d, &c->out[0].d);
}

static size_t conv_scratch(const struct call *c)
{
  struct window w = make_window(c);
  return convolve_levels_scratch(&w, c->in[0].d.dtype);
}

static const char *conv_refuse(const struct call *c)
{
  struct window w = make_window(c);
  return layer8_refuse(c, window_depth(&w));
}

static int conv_run(struct call *c)
{
  const struct conv8 *p = c->param;
  struct convolve_levels v = { .w = make_window(c),
    .dtype = c->in[0].d.dtype,
    .x = c->in[0].p,
    .weight = &c->in[1],
    .zero = (int32_t)p->q.data_zero - (c->in[0].d.dtype == TY_U8 ? 128 : 0),
    .scale = (float)p->q.data_scale,
    .row = make_level_row(c, p->conv.no_bias) };
  v.row.out = c->out[0].p;
  return convolve_levels(&v, c->state, c->tmp);
}

static const struct kernel linear_cpu[] = { { "int8", linear_run, T_FLOAT | T_INT, linear_refuse, linear_scratch,
  gemm_kept_bytes, gemm_kept_done, .fuses = CAN(POST_ACT) | CAN_GELU }, { 0 } };
static const struct kernel conv_cpu[] = { { "int8", conv_run, T_FLOAT | T_INT, conv_refuse, conv_scratch,
  gemm_kept_bytes, gemm_kept_done }, { 0 } };

const struct op op_int8_layer[] = {
  { .name = "_contrib_int8_fully_connected", .in = "data weight scale bias", .in_of = linear_ports, .out = "output",
    .doc = "FullyConnected of 8-bit data, or of float32 data that becomes int8, with an int8 weight of which a level "
           "represents scale[row]. Bias float32; the output float32 or 8-bit levels. No gradient.",
    .param = linear_params, .param_size = sizeof(struct linear8), .check = linear_check, .shape = layer_shape,
    .type = layer_type, .cpu = linear_cpu },
  { .name = "_contrib_int8_convolution", .in = "data weight scale bias", .in_of = conv8_ports, .out = "output",
    .doc = "Convolution of 8-bit data, or of float32 data that becomes int8, with an int8 weight of which a level "
           "represents scale[filter]. Bias float32; the output float32 or 8-bit levels. No gradient.",
    .param = conv_params, .param_size = sizeof(struct conv8), .check = conv8_check, .shape = layer_shape,
    .type = layer_type, .cpu = conv_cpu }, { 0 } };
