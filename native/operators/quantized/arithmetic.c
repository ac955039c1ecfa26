/* arithmetic.c - arithmetic on 8-bit integers and their ranges (quantize.h): _contrib_quantized_*.
**
** A product of two 8-bit arrays is a 32-bit array whose unit is the product of theirs. Layers with
** weights run the operator after which they are named, in double; other operators are implemented
** here. Nothing here has a gradient.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"
#include "operators/quantized/quantize.h"

/* -- layers: op.layer, on levels in double ----------------------------------------------------- */

enum { MOST_IN = 3 };                                 /* data, weight, bias */

int layer8_shape(struct infer *s)
{
  int n = s->nin / 3;
  ty_desc in[MOST_IN], out[2] = { s->out[0] };
  struct infer layer = { op_find(s->op->layer), s->param, n, 1, in, out };
  for (int i = 0; i < n; i++) in[i] = s->in[i];
  TRY(layer.op->shape(&layer));
  for (int i = 0; i < n; i++) s->in[i] = in[i];
  s->out[0] = out[0];
  for (int i = n; i < s->nin; i++) TRY(single_shape(s, &s->in[i]));
  for (int i = 1; i < s->nout; i++) TRY(single_shape(s, &s->out[i]));
  return TY_OK;
}

int layer8_type(struct infer *s)
{
  int n = s->nin / 3;
  for (int i = n; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  for (int i = 1; i < s->nout; i++) TRY(type_is(s, &s->out[i], TY_F32));
  for (int i = 1; i < n; i++) TRY(type_is(s, &s->in[i], TY_I8));
  return n == 1 ? type_both(s, &s->in[0], &s->out[0]) : type_is(s, &s->out[0], TY_I32);
}

/* The layer on float64, in which sums of products of levels are exact. */
struct real_layer {
  struct call call;
  struct operand in[MOST_IN];
  struct operand out;
  const struct kernel *kernel;
  size_t numbers;                                     /* bytes of inputs and output */
  size_t scratch;                                     /* bytes of the kernel's own scratch */
};

/* Makes the layer's float64 call, without memory. It uses the last kernel of the layer's table, the
** plain one that accepts any dtype and shape. */
static void open_layer(const struct call *c, struct real_layer *l)
{
  const struct op *op = op_find(c->op->layer);
  int n = c->nin / 3;
  l->call = (struct call){
    .op = op, .param = c->param, .in = l->in, .out = &l->out, .nin = n, .nout = 1, .run = c->run
  };
  l->numbers = 0;
  for (int i = 0; i <= n; i++) {
    struct operand *a = i < n ? &l->in[i] : &l->out;
    *a = i < n ? c->in[i] : c->out[0];
    a->d.dtype = TY_F64;
    a->version = NULL;
    l->numbers += align_up(desc_bytes(&a->d), 64);
  }
  for (l->kernel = op->cpu; l->kernel[1].name;) l->kernel++;
  l->scratch = l->kernel->scratch ? l->kernel->scratch(&l->call) : 0;
}

static size_t layer_scratch(const struct call *c)
{
  struct real_layer l;
  open_layer(c, &l);
  return l.numbers + l.scratch;
}

static const char *layer_refuse(const struct call *c)
{
  struct real_layer l;
  if (!is_level(c->in[0].d.dtype)) return "data is neither uint8 nor int8";
  open_layer(c, &l);
  return l.kernel->refuse ? l.kernel->refuse(&l.call) : NULL;
}

/* Returns the number that a level of the result represents: a level of data times one of weight. */
static double product_unit(const struct call *c)
{
  return unit_of(c->in[0].d.dtype, range_magnitude(&c->in[c->nin / 3], &c->in[c->nin / 3 + 1])) *
      unit_of(TY_I8, range_magnitude(&c->in[c->nin / 3 + 2], &c->in[c->nin / 3 + 3]));
}

static int layer_run(struct call *c)
{
  struct real_layer l;
  int n = c->nin / 3;
  char *at = c->tmp;
  open_layer(c, &l);
  double unit = n > 1 ? product_unit(c) : 1;
  for (int i = 0; i <= n; i++) {
    struct operand *a = i < n ? &l.in[i] : &l.out;
    a->p = at;
    at += align_up(desc_bytes(&a->d), 64);
    if (i < n) dtype_convert(a->p, TY_F64, c->in[i].p, c->in[i].d.dtype, desc_count(&a->d));
  }
  if (n > 2) {
    double own = unit_of(TY_I8, range_magnitude(&c->in[7], &c->in[8])), *bias = l.in[2].p;
    for (int64_t i = 0; i < desc_count(&l.in[2].d); i++) bias[i] = bias_level(bias[i], own, unit);
  }
  l.call.tmp = at;
  TRY(l.kernel->run(&l.call));
  for (int64_t i = 0; c->out[0].p && i < desc_count(&l.out.d); i++)
    put_level(&c->out[0], i, ((double *)l.out.p)[i]);
  if (n > 1)
    put_range(c, 1, -unit * levels_of(TY_I32), unit * levels_of(TY_I32));
  else
    put_range(c, 1, real_of(&c->in[1], 0), real_of(&c->in[2], 0));
  return TY_OK;
}

const struct kernel layer8_cpu[] = { { "levels", layer_run, T_FLOAT | T_INT, layer_refuse, layer_scratch }, { 0 } };

/* -- operators that keep the range: flatten, act, embedding ------------------------------------ */

/* Infers the shapes of ranges: inputs from number `from` on, and the last two outputs. */
static int range_shapes(struct infer *s, int from)
{
  for (int i = from; i < s->nin; i++) TRY(single_shape(s, &s->in[i]));
  TRY(single_shape(s, &s->out[1]));
  return single_shape(s, &s->out[2]);
}
static int range_types(struct infer *s, int from)
{
  for (int i = from; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  TRY(type_is(s, &s->out[1], TY_F32));
  return type_is(s, &s->out[2], TY_F32);
}
static int same_types(struct infer *s)
{
  TRY(range_types(s, 1));
  return type_both(s, &s->in[0], &s->out[0]);
}
static int same_shape(struct infer *s)
{
  TRY(range_shapes(s, 1));
  return shape_both(s, &s->in[0], &s->out[0]);
}

static int flat_shape(struct infer *s)
{
  const ty_desc *d = &s->in[0];
  TRY(range_shapes(s, 1));
  if (!d->ndim) return TY_OK;
  int64_t dim[2] = { d->dim[0], 1 };
  for (int i = 1; i < d->ndim; i++) dim[1] *= d->dim[i];
  return shape_is(s, &s->out[0], 2, dim);
}

static void keep_range(struct call *c, int k)
{
  put_range(c, 1, real_of(&c->in[k], 0), real_of(&c->in[k + 1], 0));
}

static int flat_run(struct call *c)
{
  if (c->out[0].p) memmove(c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d));
  keep_range(c, 1);
  return TY_OK;
}

struct act_param { int64_t act_type; };
static const struct param act_params[] = {
  { "act_type", P_ENUM, offsetof(struct act_param, act_type), NULL, "relu; others have no 8-bit form",
    "relu|sigmoid|softrelu|softsign|tanh" }, { 0 } };
static int act_check(void *param)
{
  NEED(
      !((struct act_param *)param)->act_type, TY_EUNSUPPORTED, "parameter act_type: expected relu");
  return TY_OK;
}
static int act_run(struct call *c)
{
  for (int64_t i = 0; c->out[0].p && i < desc_count(&c->in[0].d); i++)
    put_level(&c->out[0], i, fmax(real_of(&c->in[0], i), 0));
  keep_range(c, 1);
  return TY_OK;
}

struct int8_table_param { int64_t input_dim, output_dim, dtype, sparse_grad; };
static const struct param table_params[] = {
  { "input_dim",   P_INT,   offsetof(struct int8_table_param, input_dim),   NULL,      "rows of the table", NULL, "[1,]" },
  { "output_dim",  P_INT,   offsetof(struct int8_table_param, output_dim),  NULL,      "length of a row", NULL, "[1,]" },
  { "dtype",       P_DTYPE, offsetof(struct int8_table_param, dtype),       "float32", "without effect: rows are int8" },
  { "sparse_grad", P_BOOL,  offsetof(struct int8_table_param, sparse_grad), "0",       "without effect" },
  { 0 }
};
static int table_shape(struct infer *s)
{
  const struct int8_table_param *p = s->param;
  ty_desc d = s->in[0];
  TRY(range_shapes(s, 2));
  TRY(shape_is(s, &s->in[1], 2, (int64_t[]){ p->input_dim, p->output_dim }));
  if (!d.ndim) return TY_OK;
  if (d.ndim == TY_MAXDIM)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "%d dimensions; at most %d are possible", d.ndim, TY_MAXDIM - 1);
  d.dim[d.ndim++] = p->output_dim;
  return shape_as(s, &s->out[0], &d);
}
static int table_type(struct infer *s)
{
  TRY(range_types(s, 2));
  TRY(type_is(s, &s->in[1], TY_I8));
  return type_is(s, &s->out[0], TY_I8);
}
static int table_run(struct call *c)
{
  int64_t rows = c->in[1].d.dim[0], width = c->in[1].d.dim[1];
  for (int64_t i = 0; c->out[0].p && i < desc_count(&c->in[0].d); i++)
    memcpy((char *)c->out[0].p + i * width,
        (const char *)c->in[1].p + index_at(&c->in[0], i, rows) * width, (size_t)width);
  keep_range(c, 2);
  return TY_OK;
}

/* -- concat, in the widest of the ranges ------------------------------------------------------- */

struct join_param { int64_t num_args, dim; };
static const struct param join_params[] = {
  { "num_args", P_INT, offsetof(struct join_param, num_args), NULL, "arrays; each has a range, after all of them", NULL, "[1,65536]" },
  { "dim",      P_INT, offsetof(struct join_param, dim),      "1",  "axis along which they are put together" }, { 0 } };

/* Returns the names of the inputs, valid until this thread's next call. */
static const char *join_in(const void *param)
{
  static __thread struct text t;
  int64_t n = ((const struct join_param *)param)->num_args;
  text_clear(&t);
  for (int64_t i = 0; i < n; i++) text_add(&t, "%sarg%lld", i ? " " : "", (long long)i);
  for (int64_t i = 0; i < n; i++)
    text_add(&t, " arg%lld_min arg%lld_max", (long long)i, (long long)i);
  return text_whole(&t);
}

static int join_shape(struct infer *s)
{
  const struct join_param *p = s->param;
  int n = s->nin / 3, axis;
  ty_desc d = s->in[0];
  int64_t sum = 0;
  bool known = true;
  TRY(range_shapes(s, n));
  if (!d.ndim) return TY_OK;
  TRY(infer_axis(s, p->dim, d.ndim, &axis));
  d.dim[axis] = 0;
  for (int i = 0; i < n; i++) {
    ty_desc one = d;
    TRY(shape_as(s, &s->in[i], &one));
    known = known && s->in[i].dim[axis];
    sum += s->in[i].dim[axis];
  }
  d.dim[axis] = known ? sum : 0;
  return shape_as(s, &s->out[0], &d);
}
static int join_type(struct infer *s)
{
  TRY(range_types(s, s->nin / 3));
  for (int i = 0; i < s->nin / 3; i++) TRY(type_both(s, &s->in[i], &s->out[0]));
  return TY_OK;
}

/* Concatenates along an axis, with all inputs rescaled to the widest range. */
static int join_run(struct call *c)
{
  int64_t axis = ((const struct join_param *)c->param)->dim, at = 0;
  int n = c->nin / 3;
  double least = INFINITY, most = -INFINITY;
  for (int i = 0; i < n; i++) {
    least = fmin(least, real_of(&c->in[n + 2 * i], 0));
    most = fmax(most, real_of(&c->in[n + 2 * i + 1], 0));
  }
  struct split out = split_at(&c->out[0].d, axis_in(axis, c->out[0].d.ndim));
  double widest = fmax(fabs(least), fabs(most));
  for (int i = 0; c->out[0].p && i < n; i++) {
    int64_t run = desc_count(&c->in[i].d) / out.outer;
    double scale = widest > 0 ? range_magnitude(&c->in[n + 2 * i], &c->in[n + 2 * i + 1]) / widest
                              : 0;
    for (int64_t o = 0; o < out.outer; o++)
      for (int64_t k = 0; k < run; k++)
        put_level(
            &c->out[0], o * out.k * out.inner + at + k, real_of(&c->in[i], o * run + k) * scale);
    at += run;
  }
  put_range(c, 1, least, most);
  return TY_OK;
}

/* -- sums and products of elements ------------------------------------------------------------- */

struct pair { double least, most; int64_t as_float; };
#define CALIBRATED(T) \
  { "min_calib_range", P_FLOAT, offsetof(struct T, least), "None", \
    "least number of an int8 result", NULL, NULL, 1 }, \
  { "max_calib_range", P_FLOAT, offsetof(struct T, most),  "None", \
    "largest number of an int8 result", NULL, NULL, 1 }
static const struct param add_params[] = { CALIBRATED(pair), { 0 } };
static const struct param mul_params[] = {
  CALIBRATED(pair), { "enable_float_output", P_BOOL, offsetof(struct pair, as_float), "0", "the result is float32" }, { 0 } };

static int pair_check(void *param)
{
  const struct pair *p = param;
  NEED(isnan(p->least) == isnan(p->most), TY_EVALUE,
      "min_calib_range and max_calib_range: give both or none");
  return TY_OK;
}
static int pair_shape(struct infer *s)
{
  TRY(range_shapes(s, 2));
  TRY(shape_both(s, &s->in[0], &s->in[1]));
  return shape_both(s, &s->in[0], &s->out[0]);
}
static int pair_type(struct infer *s)
{
  const struct pair *p = s->param;
  TRY(range_types(s, 2));
  return type_is(s, &s->out[0], p->as_float ? TY_F32 : isnan(p->least) ? TY_I32 : TY_I8);
}

static const char *pair_refuse(const struct call *c)
{
  return is_level(c->in[0].d.dtype) && is_level(c->in[1].d.dtype)
      ? NULL
      : "the inputs are neither uint8 nor int8";
}

/* Computes the sum or product of two arrays of levels. range: that of a 32-bit result if none is
** given. */
static int pair_run(struct call *c, bool product, double range)
{
  const struct pair *p = c->param;
  double a = unit_of(c->in[0].d.dtype, range_magnitude(&c->in[2], &c->in[3])),
         b = unit_of(c->in[1].d.dtype, range_magnitude(&c->in[4], &c->in[5]));
  int to = c->out[0].d.dtype;
  double r = isnan(p->least) ? range : fmax(fabs(p->least), fabs(p->most)),
         level = r > 0 ? levels_of(to) / r : 0;
  for (int64_t i = 0; c->out[0].p && i < desc_count(&c->out[0].d); i++) {
    double x = real_of(&c->in[0], i) * a, y = real_of(&c->in[1], i) * b,
           v = product ? x * y : x + y;
    if (to == TY_F32)
      ((float *)c->out[0].p)[i] = (float)v;
    else
      put_level(&c->out[0], i, v * level);
  }
  put_range(c, 1, isnan(p->least) ? -r : p->least, isnan(p->least) ? r : p->most);
  return TY_OK;
}
static int add_run(struct call *c)
{
  return pair_run(
      c, false, range_magnitude(&c->in[2], &c->in[3]) + range_magnitude(&c->in[4], &c->in[5]));
}
static int mul_run(struct call *c)
{
  double a = unit_of(c->in[0].d.dtype, range_magnitude(&c->in[2], &c->in[3])),
         b = unit_of(c->in[1].d.dtype, range_magnitude(&c->in[4], &c->in[5]));
  return pair_run(c, true, a * b * levels_of(TY_I32));
}

/* -- batch_norm: the moving statistics, folded into one factor and one addend per channel ------ */

struct norm8 {
  double eps, momentum, least, most;
  int64_t fix_gamma, use_global_stats, output_mean_var, axis, cudnn_off;
};
#define FIELD(f) offsetof(struct norm8, f)
static const struct param norm_params[] = {
  { "eps",              P_FLOAT, FIELD(eps),              "0.001", "keeps the deviation from 0" },
  { "momentum",         P_FLOAT, FIELD(momentum),         "0.9",   "without effect" },
  { "fix_gamma",        P_BOOL,  FIELD(fix_gamma),        "1",     "gamma is 1" },
  { "use_global_stats", P_BOOL,  FIELD(use_global_stats), "0",     "without effect: moving statistics are used" },
  { "output_mean_var",  P_BOOL,  FIELD(output_mean_var),  "0",     "without effect" },
  { "axis",             P_INT,   FIELD(axis),             "1",     "axis of the channels; negative counts from the end" },
  { "cudnn_off",        P_BOOL,  FIELD(cudnn_off),        "0",     "without effect" },
  CALIBRATED(norm8), { 0 }
};

static int norm_check(void *param)
{
  const struct norm8 *p = param;
  NEED(!isnan(p->least) && !isnan(p->most), TY_EVALUE,
      "min_calib_range and max_calib_range are needed");
  return TY_OK;
}
static int norm_shape(struct infer *s)
{
  int axis;
  TRY(range_shapes(s, 5));
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (!s->in[0].ndim) return TY_OK;
  TRY(infer_axis(s, ((const struct norm8 *)s->param)->axis, s->in[0].ndim, &axis));
  for (int i = 1; i < 5; i++) TRY(shape_is(s, &s->in[i], 1, &s->in[0].dim[axis]));
  return TY_OK;
}
static int norm_type(struct infer *s)
{
  TRY(range_types(s, 1));
  return type_is(s, &s->out[0], TY_I8);
}
static int norm_run(struct call *c)
{
  const struct norm8 *p = c->param;
  struct split s = split_at(&c->in[0].d, axis_in(p->axis, c->in[0].d.ndim));
  double unit = unit_of(c->in[0].d.dtype, range_magnitude(&c->in[5], &c->in[6])),
         r = fmax(fabs(p->least), fabs(p->most));
  for (int64_t i = 0; c->out[0].p && i < desc_count(&c->in[0].d); i++) {
    int64_t k = i / s.inner % s.k;
    double v = normalized(real_of(&c->in[0], i) * unit, p->fix_gamma ? 1 : real_of(&c->in[1], k),
        real_of(&c->in[2], k), real_of(&c->in[3], k), real_of(&c->in[4], k), p->eps);
    put_level(&c->out[0], i, r > 0 ? v * 127 / r : 0);
  }
  put_range(c, 1, p->least, p->most);
  return TY_OK;
}
static const char *data_refuse(const struct call *c)
{
  return is_level(c->in[0].d.dtype) ? NULL : "data is neither uint8 nor int8";
}

/* -- rows -------------------------------------------------------------------------------------- */

#define CPU(run_, refuse_) \
  .cpu = (const struct kernel[]){ { "levels", run_, T_FLOAT | T_INT, refuse_ }, { 0 } }
#define PARAMS(list, T) .param = list, .param_size = sizeof(struct T)
#define RESULT .out = "output min_output max_output"
#define DATA "data min_data max_data"
#define PAIR "lhs rhs lhs_min lhs_max rhs_min rhs_max"

const struct op op_arithmetic[] = {
  { .name = "_contrib_quantized_flatten", .in = DATA, RESULT, .doc = "8-bit data (n, ...) as (n, rest); the range stays.",
    .shape = flat_shape, .type = same_types, CPU(flat_run, data_refuse) },
  { .name = "_contrib_quantized_act", .in = DATA, RESULT, .doc = "The larger of 8-bit data and 0; the range stays.",
    PARAMS(act_params, act_param), .check = act_check, .shape = same_shape, .type = same_types, CPU(act_run, data_refuse) },
  { .name = "_contrib_quantized_embedding", .in = "data weight min_weight max_weight", RESULT,
    .doc = "Rows of an int8 table by index; indices outside it are clipped, the range stays.",
    PARAMS(table_params, int8_table_param), .shape = table_shape, .type = table_type, CPU(table_run, NULL) },
  { .name = "_contrib_quantized_concat", .in = "arg0", .in_of = join_in, RESULT,
    .doc = "8-bit arrays put together along an axis, brought to the widest of their ranges.",
    PARAMS(join_params, join_param), .shape = join_shape, .type = join_type, CPU(join_run, data_refuse) },
  { .name = "_contrib_quantized_elemwise_add", .in = PAIR, RESULT,
    .doc = "The sum of two 8-bit arrays in 32 bits under the sum of their ranges, or as int8 under a given one.",
    PARAMS(add_params, pair), .check = pair_check, .shape = pair_shape, .type = pair_type, CPU(add_run, pair_refuse) },
  { .name = "_contrib_quantized_elemwise_mul", .in = PAIR, RESULT,
    .doc = "The product of two 8-bit arrays in 32 bits, as int8 under a given range, or as float32.",
    PARAMS(mul_params, pair), .check = pair_check, .shape = pair_shape, .type = pair_type, CPU(mul_run, pair_refuse) },
  { .name = "_contrib_quantized_batch_norm", .in = "data gamma beta moving_mean! moving_var! min_data max_data", RESULT,
    .doc = "Batch normalisation of 8-bit data by its moving statistics, as int8 under a given range.",
    PARAMS(norm_params, norm8), .check = norm_check, .shape = norm_shape, .type = norm_type, CPU(norm_run, data_refuse) },
  { 0 }
};
