/* all_finite.c - operators on whole arrays for mixed precision and optimizers: all_finite,
** multi_all_finite, multi_sum_sq, reset_arrays, _contrib_group_adagrad_update; and
** _contrib_allclose.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"
#include "operators/optimizer/update.h"

struct arrays_param { int64_t num_arrays, init_output; };
#define COUNTED(init) \
  { "num_arrays", P_INT, offsetof(struct arrays_param, num_arrays), init, "number of inputs", \
    NULL, INPUTS_RANGE }
#define FRESH \
  { "init_output", P_BOOL, offsetof(struct arrays_param, init_output), "True", \
    "False: a 0 that is already in the output stays" }
static const struct param one_params[] = { FRESH, { 0 } }, many_params[] = { COUNTED("1"), FRESH, { 0 } };
static const struct param count_params[] = { COUNTED(NULL), { 0 } };

static int any_type(struct infer *s) { return TY_OK; }
static int any_shape(struct infer *s) { return TY_OK; }
static int flag_shape(struct infer *s)
{
  const int64_t one = 1;
  return shape_is(s, &s->out[0], 1, &one);
}
static int single_type(struct infer *s) { return type_is(s, &s->out[0], TY_F32); }
static int sums_shape(struct infer *s)
{
  int64_t n = s->nin;
  return shape_is(s, &s->out[0], 1, &n);
}

/* -- blocks of an array as float64, in parallel ------------------------------------------------ */

enum {
  PIECES = 64,                                        /* most pieces of an array */
  LEAST = 4096                                        /* fewest elements of a piece */
};
struct pieces {
  const struct operand *x;
  int64_t n, chunk;
  double (*of)(const double *x, int64_t n);
  double result[PIECES];
};

static void run_pieces(int64_t begin, int64_t end, void *context)
{
  struct pieces *p = context;
  double block[256];
  for (int64_t k = begin; k < end; k++) {
    int64_t last = MIN(p->n, (k + 1) * p->chunk);
    p->result[k] = 0;
    for (int64_t i = k * p->chunk, n; i < last; i += n) {
      n = MIN(COUNT(block), last - i);
      dtype_convert(block, TY_F64, (const char *)p->x->p + (size_t)i * dtype_size(p->x->d.dtype),
          p->x->d.dtype, n);
      p->result[k] += p->of(block, n);
    }
  }
}

/* Returns the sum of of() over blocks, which depend on the array's size alone. */
static double sum_blocks(const struct operand *x, double (*of)(const double *, int64_t))
{
  struct pieces p = { .x = x, .n = desc_count(&x->d), .of = of };
  double sum = 0;
  int64_t pieces = MAX(1, MIN(PIECES, p.n / LEAST));
  p.chunk = (p.n - 1) / pieces + 1;
  pieces = (p.n - 1) / p.chunk + 1;
  parallel_chunks(pieces, 1, run_pieces, &p);
  for (int64_t k = 0; k < pieces; k++) sum += p.result[k];
  return sum;
}

static double add_squares(const double *x, int64_t n)
{
  double lane[8] = { 0 }, sum = 0;
  for (int64_t i = 0; i < n; i++) lane[i % 8] += x[i] * x[i];
  for (int k = 0; k < 8; k++) sum += lane[k];
  return sum;
}

static double count_infinite(const double *x, int64_t n)
{
  double count = 0;
  for (int64_t i = 0; i < n; i++) count += !isfinite(x[i]);
  return count;
}

static void store_number(const struct operand *a, int64_t i, double v)
{
  dtype_convert((char *)a->p + (size_t)i * dtype_size(a->d.dtype), a->d.dtype, &v, TY_F64, 1);
}

static double get_number(const struct operand *a, int64_t i)
{
  double v;
  dtype_convert(&v, TY_F64, (const char *)a->p + (size_t)i * dtype_size(a->d.dtype), a->d.dtype, 1);
  return v;
}

/* -- kernels ----------------------------------------------------------------------------------- */

static int all_finite(struct call *c)
{
  const struct arrays_param *p = c->param;
  double ok = !p->init_output && get_number(&c->out[0], 0) == 0 ? 0 : 1;
  for (int k = 0; k < c->nin && ok != 0; k++) ok = sum_blocks(&c->in[k], count_infinite) == 0;
  store_number(&c->out[0], 0, ok);
  return TY_OK;
}

static int sum_squares(struct call *c)
{
  for (int k = 0; k < c->nin; k++) store_number(&c->out[0], k, sum_blocks(&c->in[k], add_squares));
  return TY_OK;
}

static int reset_run(struct call *c)
{
  for (int k = 0; k < c->nin; k++)
    TRY(move_zero(c->device, c->in[k].p, desc_bytes(&c->in[k].d)));
  return TY_OK;
}

/* -- two arrays -------------------------------------------------------------------------------- */

struct close { double rtol, atol; int64_t equal_nan; };
static const struct param close_params[] = {
  { "rtol",      P_FLOAT, offsetof(struct close, rtol),      "1e-05", "tolerance relative to b" },
  { "atol",      P_FLOAT, offsetof(struct close, atol),      "1e-08", "absolute tolerance" },
  { "equal_nan", P_BOOL,  offsetof(struct close, equal_nan), "1",     "NaN is close to NaN" },
  { 0 }
};

static int close_shape(struct infer *s)
{
  TRY(flag_shape(s));
  return shape_both(s, &s->in[0], &s->in[1]);
}

static int close_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->in[1]));
  return type_is(s, &s->out[0], TY_U8);
}

/* Returns whether two numbers are close; an infinity is close only to itself. */
static bool is_close(const struct close *p, double a, double b)
{
  if (isnan(a) || isnan(b)) return p->equal_nan && isnan(a) && isnan(b);
  return a == b || (!isinf(a) && !isinf(b) && fabs(a - b) <= p->atol + p->rtol * fabs(b));
}

static int allclose_run(struct call *c)
{
  bool all = true;
  for (int64_t i = 0; all && i < desc_count(&c->in[0].d); i++)
    all = is_close(c->param, get_number(&c->in[0], i), get_number(&c->in[1], i));
  store_number(&c->out[0], 0, all);
  return TY_OK;
}

/* -- one history per row ----------------------------------------------------------------------- */

static const struct param group_params[] = { RATE, RESCALE, CLIP, NUMBER(epsilon, "1e-05", "keeps the divisor from 0"), { 0 } };

static int group_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->in[1]));
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (!s->in[0].ndim || s->in[2].ndim == 1)
    return shape_dim(s, &s->in[2], 0, s->in[0].ndim ? s->in[0].dim[0] : 0);
  int64_t dim[TY_MAXDIM] = { s->in[0].dim[0] };
  for (int i = 1; i < s->in[0].ndim; i++) dim[i] = 1;
  return shape_is(s, &s->in[2], s->in[0].ndim, dim);
}

#define GROUP_ADAGRAD(T) \
  static inline T cut_##T(T x, T limit) \
  { return limit < 0 ? x : x > limit ? limit : x < -limit ? -limit : x; } \
  static void group_##T(int64_t begin, int64_t end, void *context) \
  { \
    const struct call *c = context; \
    const struct update *u = c->param; \
    int64_t n = desc_count(&c->in[0].d) / c->in[0].d.dim[0]; \
    T *history = c->in[2].p, scale = (T)u->rescale_grad, limit = (T)u->clip_gradient; \
    for (int64_t r = begin; r < end; r++) { \
      const T *w = (const T *)c->in[0].p + r * n, *g = (const T *)c->in[1].p + r * n; \
      T *out = (T *)c->out[0].p + r * n; \
      double sum = 0; \
      for (int64_t i = 0; i < n; i++) \
      { T x = cut_##T(scale * g[i], limit); sum += (double)x * x; } \
      history[r] = (T)(history[r] + sum / (double)n); \
      T step = (T)(u->lr / sqrt(history[r] + u->epsilon)); \
      for (int64_t i = 0; i < n; i++) out[i] = w[i] - step * cut_##T(scale * g[i], limit); \
    } \
  }
GROUP_ADAGRAD(float)
GROUP_ADAGRAD(double)

static int group_adagrad(struct call *c)
{
  int64_t rows = c->in[0].d.dim[0], n = desc_count(&c->in[0].d) / rows;
  parallel_for(rows, elements_ns(n), c->in[0].d.dtype == TY_F64 ? group_double : group_float, c);
  return TY_OK;
}

MOVE_ANYWHERE(reset_kernels, reset_run)
#define CPU(name, run, types) .cpu = (const struct kernel[]){ { name, run, types }, { 0 } }
#define LOOK(params_, shape_, type_) \
  .param = params_, .param_size = sizeof(struct arrays_param), .shape = shape_, .type = type_

const struct op op_all_finite[] = {
  { .name = "all_finite", .in = "data", .doc = "1 if no element of data is infinite or NaN, else 0; shape (1,), float32.",
    LOOK(one_params, flag_shape, single_type), CPU("all_finite", all_finite, T_ANY), .flags = OP_NAMED_INPUT },
  { .name = "multi_all_finite", .in = "array_*num_arrays",
    .doc = "1 if no element of any input is infinite or NaN, else 0; shape (1,), float32.",
    LOOK(many_params, flag_shape, single_type), CPU("all_finite", all_finite, T_ANY) },
  { .name = "multi_sum_sq", .in = "array_*num_arrays",
    .doc = "The sum of squares of each input; shape (number of inputs,), float32.",
    LOOK(count_params, sums_shape, single_type), CPU("sum_squares", sum_squares, T_ANY) },
  { .name = "reset_arrays", .in = "array_!*num_arrays", .out = "", .doc = "Sets all inputs to zero, in place; it has no output.",
    LOOK(count_params, any_shape, any_type), .cpu = reset_kernels },
  { .name = "_contrib_allclose", .in = "a b", .flags = OP_ZERO_GRAD,
    .doc = "1 if |a - b| <= atol + rtol |b| everywhere, else 0; shape (1,), uint8. The gradient is zero.",
    .param = close_params, .param_size = sizeof(struct close), .shape = close_shape, .type = close_type,
    CPU("allclose", allclose_run, T_ANY) },
  { .name = "_contrib_group_adagrad_update", .flags = OP_NUMBERED_INPUTS, .in = "weight grad history!",
    .doc = "AdaGrad with one history per row: the mean square of the row's rescaled, clipped gradient is added to it.",
    .param = group_params, .param_size = sizeof(struct update), .check = update_check, .shape = group_shape, .inplace = "0=0",
    CPU("group_adagrad", group_adagrad, T(TY_F32) | T(TY_F64)) },
  { 0 }
};
