/* leaky_relu.c - LeakyReLU: six activations that leak below zero, under one name.
**
** All but rrelu are formulas: the kernels call those of op/formula.h with an inner operator for the
** chosen act_type. prelu's gamma is along axis 1, so ones are appended to its shape. In training
** rrelu draws a slope per element, and keeps it in its second output.
*/
#include "base/philox.h"
#include "kernel/gemm/gemm.h"
#include "op/op.h"
#include "pointwise/pointwise.h"

/* FOLDED_*: of a slope below 0, where the sign of the data does not follow from the result's */
enum { RRELU, LEAKY, PRELU, ELU, SELU, GELU, FOLDED_LEAKY, FOLDED_ELU };
struct leaky { int64_t act_type; double slope, lower_bound, upper_bound; };
static const struct param params[] = {
  { "act_type",    P_ENUM,  offsetof(struct leaky, act_type),    "leaky", "which function", "rrelu|leaky|prelu|elu|selu|gelu",
    .elsewhere = "relu sigmoid tanh softrelu softsign: use Activation, which has this act_type; silu swish: use data * sigmoid(data)" },
  { "slope",       P_FLOAT, offsetof(struct leaky, slope),       "0.25",  "leaky, elu: slope or scale below 0" },
  { "lower_bound", P_FLOAT, offsetof(struct leaky, lower_bound), "0.125", "rrelu: least slope" },
  { "upper_bound", P_FLOAT, offsetof(struct leaky, upper_bound), "0.334", "rrelu: slopes stay below it" }, { 0 } };

#define INNER(name_, in_, y_, da_, db_) \
  { .name = name_, .in = in_, .param = params, .param_size = sizeof(struct leaky), \
    .formula = &(const struct formula){ y_, { da_, db_ } } }
#define LAMBDA "1.0507009873554805"
#define LAMBDA_ALPHA "1.7580993408473766"
static const struct op inner[] = {
  [LEAKY] = INNER("leaky", "data", "a > 0 ? a : $slope * a", "y > 0 ? g : $slope * g", NULL),
  [PRELU] = INNER("prelu", "data gamma", "a > 0 ? a : b * a", "a > 0 ? g : b * g", "a > 0 ? 0 : a * g"),
  [ELU]   = INNER("elu", "data", "a > 0 ? a : $slope * expm1(a)", "y > 0 ? g : g * ($slope + y)", NULL),
  [SELU]  = INNER("selu", "data", "a > 0 ? " LAMBDA " * a : " LAMBDA_ALPHA " * expm1(a)",
                  "y > 0 ? " LAMBDA " * g : g * (" LAMBDA_ALPHA " + y)", NULL),
  [GELU]  = INNER("gelu", "data", "a * normcdf(a)",
                  "g * (normcdf(a) + a * 0.39894228040143268 * exp(-0.5 * a * a))", NULL),
  [FOLDED_LEAKY] = INNER("leaky", "data", "a > 0 ? a : $slope * a", "a > 0 ? g : $slope * g", NULL),
  [FOLDED_ELU] = INNER("elu", "data", "a > 0 ? a : $slope * expm1(a)",
                       "a > 0 ? g : g * $slope * exp(a)", NULL),
};

static const struct leaky *leaky_of(const void *param) { return param; }
/* Returns the index of the function in `inner`. */
static int inner_of(const void *param)
{
  const struct leaky *p = param;
  if (p->slope < 0 && p->act_type == LEAKY) return FOLDED_LEAKY;
  if (p->slope < 0 && p->act_type == ELU) return FOLDED_ELU;
  return (int)p->act_type;
}
static int leaky_check(void *param)
{
  struct leaky *p = param; /* numbers are float32 in files of the reference */
  p->slope = to_single(p->slope);
  p->lower_bound = to_single(p->lower_bound);
  p->upper_bound = to_single(p->upper_bound);
  return TY_OK;
}
static const char *input_ports(const void *param)
{
  return leaky_of(param)->act_type == PRELU ? "data gamma" : "data";
}
static const char *output_ports(const void *param)
{
  return leaky_of(param)->act_type == RRELU ? "output mask" : "output";
}
static const char *gradient_reads(const void *param)
{
  static const char *const letters[] = { /* those of the formulas */
    [LEAKY] = "g0 o0",
    [PRELU] = "g0 i0 i1",
    [ELU] = "g0 o0",
    [SELU] = "g0 o0",
    [GELU] = "g0 i0",
    [FOLDED_LEAKY] = "g0 i0",
    [FOLDED_ELU] = "g0 i0",
    [RRELU] = "g0 o0 o1",
  };
  return letters[inner_of(param)];
}

static int leaky_shape(struct infer *s)
{
  const ty_desc *d = &s->in[0];
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (leaky_of(s->param)->act_type == RRELU) return shape_as(s, &s->out[1], d);
  if (leaky_of(s->param)->act_type != PRELU || !d->ndim || s->in[1].ndim) return TY_OK;
  int64_t size = d->ndim > 1 ? d->dim[1] : 1;
  return shape_is(s, &s->in[1], 1, &size);
}

static int leaky_act(const void *param)
{
  return leaky_of(param)->act_type == GELU ? ACT_GELU : ACT_NONE;
}

/* -- formulas ---------------------------------------------------------------------------------- */

static bool is_random(const struct call *c) { return leaky_of(c->param)->act_type == RRELU; }
static const char *no_row(const struct call *c)
{
  if (in_blocks(c) && leaky_of(c->param)->act_type == PRELU) return "channels in blocks";
  return is_random(c) ? "random slopes" : NULL;
}

/* Infers gamma (C) against data (N, C, ...) as (C, 1, ...). Given with more dims it covers the
** leading axes. */
static ty_desc gamma_shape(const ty_desc *gamma, const ty_desc *data)
{
  ty_desc d = *gamma;
  bool channel = gamma->ndim == 1 && data->ndim > 1;
  d.ndim = channel ? data->ndim - 1 : data->ndim;
  for (int i = gamma->ndim; i < d.ndim; i++) d.dim[i] = 1;
  return d;
}

struct inner_call { struct call c; struct operand in[4], out[2]; };

/* Fills in the call of the inner operator for a call of LeakyReLU. */
static void hand_over(const struct call *c, bool backward, struct inner_call *r)
{
  r->c = *c;
  r->c.op = &inner[inner_of(c->param)];
  r->c.in = r->in;
  r->c.out = r->out;
  memcpy(r->in, c->in, sizeof *c->in * (size_t)MIN(c->nin, 4));
  memcpy(r->out, c->out, sizeof *c->out * (size_t)MIN(c->nout, 2));
  if (leaky_of(c->param)->act_type != PRELU) return;
  const ty_desc *data = &c->in[0].d; /* backward: the head gradient has the same shape */
  int gamma = backward ? 2 : 1;
  r->in[gamma].d = gamma_shape(&c->in[gamma].d, data);
  if (backward) r->out[1].d = gamma_shape(&c->out[1].d, data);
}

/* bytes that stay in the first cache between a copy and the function */
enum { GELU_PIECE = 8 << 10 };

/* Computes gelu of float32 in place, piece by piece, with the bits of the formula, whose program
** would read memory once more. */
static void gelu_range(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const float *x = c->in[0].p;
  float *y = c->out[0].p;
  const int64_t most = GELU_PIECE / (int64_t)sizeof *y;
  for (int64_t i = begin; i < end; i += most) {
    const int64_t n = MIN(most, end - i);
    if (y != x) memcpy(y + i, x + i, (size_t)n * sizeof *y);
    gemm_act(TY_F32, ACT_GELU, n, y + i);
  }
}

/* Computes the gradient of gelu in one pass; the formula's program would need five. */
static void gelu_back_range(int64_t begin, int64_t end, void *context)
{
  const struct call *c = context;
  const float *g = c->in[0].p, *x = c->in[1].p;
  gemm_gelu_back(end - begin, x + begin, g + begin, (float *)c->out[0].p + begin);
}

/* Returns whether a call is gelu of float32 on the CPU. */
static bool is_plain_gelu(const struct call *c)
{
  return leaky_act(c->param) == ACT_GELU && c->in[0].d.dtype == TY_F32 && c->device == TY_CPU;
}

static int leaky_forward(struct call *c)
{
  struct inner_call r;
  if (is_plain_gelu(c)) {
    if (c->out[0].p) parallel_for(desc_count(&c->in[0].d), 2 * NS_ELEMENT, gelu_range, c);
    return TY_OK;
  }
  hand_over(c, false, &r);
  return formula_kernel->run(&r.c);
}

static int leaky_backward(struct call *c)
{
  struct inner_call r;
  if (is_plain_gelu(c)) {
    if (c->out[0].p) parallel_for(desc_count(&c->in[0].d), 2 * NS_ELEMENT, gelu_back_range, c);
    return TY_OK;
  }
  hand_over(c, true, &r);
  return formula_back_kernel->run(&r.c);
}

static size_t leaky_state_bytes(const struct call *c) { return formula_kernel->state(c); }
static size_t back_scratch(const struct call *c)
{
  struct inner_call r;
  hand_over(c, true, &r);
  return formula_back_kernel->scratch(&r.c);
}

/* -- rrelu ------------------------------------------------------------------------------------- */

static bool draws_slopes(const void *param, bool is_train)
{
  return leaky_of(param)->act_type == RRELU && is_train;
}

static const char *no_random(const struct call *c)
{
  return is_random(c) ? NULL : "no random slopes";
}

#define RANDOM(T, dtype) \
  static void draw_##dtype(int64_t begin, int64_t end, void *context) \
  { \
    const struct call *c = context; \
    const struct leaky *p = c->param; \
    const T *x = c->in[0].p; \
    T *y = c->out[0].p, *mask = c->out[1].p; \
    for (int64_t i = begin; i < end; i++) { \
      double slope = (p->lower_bound + p->upper_bound) / 2; \
      if (c->run->is_train) { \
        struct philox r = philox(c->run->rng.seed, c->run->rng.counter, c->node, (uint64_t)i); \
        slope = p->lower_bound + (p->upper_bound - p->lower_bound) * unit_f64(r.w[0], r.w[1]); \
      } \
      if (mask) mask[i] = (T)slope; \
      if (y) y[i] = x[i] > 0 ? x[i] : (T)slope * x[i]; \
    } \
  } \
  static void leak_##dtype(int64_t begin, int64_t end, void *context) \
  { \
    const struct call *c = context; \
    const T *g = c->in[0].p, *y = c->in[1].p, *mask = c->in[2].p; \
    T *dx = c->out[0].p; \
    for (int64_t i = begin; dx && i < end; i++) dx[i] = y[i] > 0 ? g[i] : mask[i] * g[i]; \
  }
RANDOM(float, f32)
RANDOM(double, f64)

static int random_forward(struct call *c)
{
  parallel_for(desc_count(&c->in[0].d), NS_FUNCTION,
      c->in[0].d.dtype == TY_F64 ? draw_f64 : draw_f32, c);
  return TY_OK;
}

static int random_backward(struct call *c)
{
  parallel_for(desc_count(&c->in[0].d), NS_ELEMENT,
      c->in[0].d.dtype == TY_F64 ? leak_f64 : leak_f32, c);
  return TY_OK;
}

static const struct kernel cpu[] = {
  { "row", leaky_forward, T_ANY, .refuse = no_row, .state = leaky_state_bytes,
    .flags = K_ANYWHERE | K_ALIKE, .blocks = IN_BLOCKS(1, 1) },
  { "rrelu", random_forward, T(TY_F32) | T(TY_F64), .refuse = no_random },
  { 0 }
};
static const struct kernel back_cpu[] = {
  { "row_back", leaky_backward, T_ANY, .refuse = no_row, .scratch = back_scratch,
    .state = leaky_state_bytes, .flags = K_ANYWHERE },
  { "rrelu_back", random_backward, T(TY_F32) | T(TY_F64), .refuse = no_random },
  { 0 }
};

const struct op op_leaky_relu[] = {
  { .name = "LeakyReLU", .alias = "_npx_leaky_relu", .in = "data gamma", .in_of = input_ports,
    .out_of = output_ports, .param = params, .param_size = sizeof(struct leaky),
    .check = leaky_check, .shape = leaky_shape,
    .doc = "data above 0; below: slope data (leaky), slope (e^data - 1) (elu), its scaled form (selu), gamma data along axis 1 (prelu), "
           "random slopes in training and their mean otherwise (rrelu); gelu is data times the normal distribution function. Same shape; "
           "prelu's gamma has one element per channel, or one.",
    .grad_of = gradient_reads, .inplace = "0=0", .cpu = cpu, .back_cpu = back_cpu,
    .flags = OP_RANDOM, .draws = draws_slopes, .activation_of = leaky_act },
  { 0 }
};
