/* create.c - creates arrays: constants, ranges, the identity matrix.
**
** A 0 in `shape` is an unknown dim, inferred from readers. Values are computed in double, block by
** block, and converted; _arange truncates start and step for integer types, as in the reference.
** Only callers read `ctx`.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

#define CTX(T) \
  { "ctx", P_TEXT, offsetof(struct T, ctx), "", "device of an imperative call, as text" }
#define DTYPE(T) \
  { "dtype", P_DTYPE, offsetof(struct T, dtype), "float32", "element type of the result", \
    .none = 1 }

/* -- constants --------------------------------------------------------------------------------- */

struct constant { struct dims shape; const char *ctx; int64_t dtype; double value; };

static int constant_shape(struct infer *s)
{
  const struct constant *p = s->param;
  for (int i = 0; i < p->shape.n; i++)
    if (p->shape.d[i] < 0)
      return infer_fail(
          s, TY_EVALUE, NULL, "shape has the negative dim %lld", (long long)p->shape.d[i]);
  return p->shape.n > 0 ? shape_is(s, &s->out[0], (int)p->shape.n, p->shape.d) : TY_OK;
}

static int constant_type(struct infer *s)
{
  const struct constant *p = s->param;
  return type_is(s, &s->out[0], p->dtype < 0 ? TY_F32 : (int)p->dtype);
}

static int free_type(struct infer *s)
{
  const struct constant *p = s->param;
  return type_is(s, &s->out[0], p->dtype < 0 ? TY_NODTYPE : (int)p->dtype);
}

/* Checks dtype, which is a number here, as in files, and may have any value. */
static int free_check(
    void *param)
{
  int64_t code = ((const struct constant *)param)->dtype;
  NEED(code < 0 || (code <= TY_BF16 && dtype_size((int)code)), TY_EVALUE,
      "dtype %lld is no element type", (long long)code);
  return TY_OK;
}

static int fill_constant(struct call *c, double v)
{
  const struct operand *y = &c->out[0];
  uint64_t one = 0;
  int64_t n = desc_count(&y->d);
  if (!y->p) return TY_OK;
  if (v == 0 && !signbit(v)) return move_zeros(c, 0);
  dtype_convert(&one, y->d.dtype, &v, TY_F64, 1);
  return move_fill(c->device, y->p, &one, dtype_size(y->d.dtype), n);
}

static int zeros_run(struct call *c) { return fill_constant(c, 0); }
static int ones_run(struct call *c) { return fill_constant(c, 1); }
static int full_run(struct call *c)
{
  return fill_constant(c, ((const struct constant *)c->param)->value);
}

static struct attention_part attention_constant(const void *param, int ndim)
{
  (void)ndim;
  return (struct attention_part){ ATTENTION_CONSTANT,
    .number = ((const struct constant *)param)->value };
}

MOVE_ANYWHERE(zeros_cpu, zeros_run)
MOVE_ANYWHERE(ones_cpu, ones_run)
MOVE_ANYWHERE(full_cpu, full_run)

static const struct param constant_param[] = {
  { "shape", P_SHAPE, offsetof(struct constant, shape), "()", "shape of the result; 0 is unknown", .none = 1 },
  CTX(constant), DTYPE(constant), { 0 } };
static const struct param free_param[] = {
  { "shape", P_SHAPE, offsetof(struct constant, shape), "None", "shape of the result; 0 is unknown", .none = 1 },
  CTX(constant),
  { "dtype", P_INT, offsetof(struct constant, dtype), "-1", "code of the element type; -1: from the readers" }, { 0 } };
static const struct param full_param[] = {
  { "shape", P_SHAPE, offsetof(struct constant, shape), "None", "shape of the result; 0 is unknown", .none = 1 },
  CTX(constant), DTYPE(constant),
  { "value", P_FLOAT, offsetof(struct constant, value), NULL, "every element" }, { 0 } };
static const struct param value_param[] = { { "src", P_FLOAT, offsetof(struct constant, value), "0", "every element" }, { 0 } };

static int any_shape(struct infer *s) { return TY_OK; }

/* -- ranges ------------------------------------------------------------------------------------ */

struct range_of {
  double start, stop, step;
  int64_t repeat, infer_range, num, endpoint, dtype;
  const char *ctx;
};

static bool is_integer(int dtype) { return !dtype_float(dtype); }

/* Returns the number of elements of start, start + step, ... before stop, each `repeat` times; < 0:
** the step does not lead to stop, or there are too many. */
static int64_t arange_count(const struct range_of *p)
{
  double from = isnan(p->stop) ? 0 : p->start, to = isnan(p->stop) ? p->start : p->stop;
  if (p->step == 0 || (to - from) / p->step < 0) return -1;
  double n = ceil((to - from) / p->step);
  return n * (double)p->repeat < 9e15 ? (int64_t)n * p->repeat : -1;
}

static int arange_shape(struct infer *s)
{
  const struct range_of *p = s->param;
  if (p->infer_range && isnan(p->stop))
    return s->out[0].ndim && s->out[0].ndim != 1
        ? infer_fail(s, TY_ESHAPE, NULL, "the result has one dimension")
        : TY_OK;
  int64_t n = arange_count(p);
  if (n <= 0)
    return infer_fail(s, TY_EVALUE, NULL, "from %g to %g by %g there is nothing",
        isnan(p->stop) ? 0 : p->start, isnan(p->stop) ? p->start : p->stop, p->step);
  return shape_is(s, &s->out[0], 1, &n);
}

static int range_type(struct infer *s)
{
  const struct range_of *p = s->param;
  return type_is(s, &s->out[0], p->dtype < 0 ? TY_F32 : (int)p->dtype);
}

enum { BLOCK_ELEMENTS = 512 };                        /* elements computed at a time */

/* Sets y[i] to value(p, i, dtype of y) for all i, converted from double. */
static void generate_values(
    const struct operand *y, const void *p, double (*value)(const void *p, int64_t i, int dtype))
{
  double block[BLOCK_ELEMENTS];
  int64_t n = desc_count(&y->d);
  if (!y->p) return;
  for (int64_t from = 0; from < n; from += BLOCK_ELEMENTS) {
    int64_t k = MIN(n - from, BLOCK_ELEMENTS);
    for (int64_t i = 0; i < k; i++) block[i] = value(p, from + i, y->d.dtype);
    dtype_convert(
        (char *)y->p + (size_t)from * dtype_size(y->d.dtype), y->d.dtype, block, TY_F64, k);
  }
}

static double arange_value(const void *param, int64_t i, int dtype)
{
  const struct range_of *p = param;
  double start = isnan(p->stop) && !p->infer_range ? 0 : p->start, step = p->step;
  if (is_integer(dtype)) start = trunc(start), step = trunc(step);
  return start + (double)(i / p->repeat) * step;
}

static int arange_run(struct call *c)
{
  generate_values(&c->out[0], c->param, arange_value);
  return TY_OK;
}

static int linspace_shape(struct infer *s)
{
  const struct range_of *p = s->param;
  return shape_is(s, &s->out[0], 1, &p->num);
}

static double linspace_value(const void *param, int64_t i, int dtype)
{
  const struct range_of *p = param;
  double parts = (double)(p->endpoint ? p->num - 1 : p->num);
  return parts > 0 ? p->start + (double)i * ((p->stop - p->start) / parts) : p->start;
}

static int linspace_run(struct call *c)
{
  generate_values(&c->out[0], c->param, linspace_value);
  return TY_OK;
}

static const struct kernel arange_cpu[]   = { { "arange", arange_run, T_ANY }, { 0 } };
static const struct kernel linspace_cpu[] = { { "linspace", linspace_run, T_ANY }, { 0 } };

static const struct param arange_param[] = {
  { "start", P_FLOAT, offsetof(struct range_of, start), NULL, "first value; without stop the end of a range from 0" },
  { "stop", P_FLOAT, offsetof(struct range_of, stop), "None", "end, not included", .none = 1 },
  { "step", P_FLOAT, offsetof(struct range_of, step), "1", "distance of neighbours" },
  { "repeat", P_INT, offsetof(struct range_of, repeat), "1", "how often each value is repeated", .range = "[1,2147483647]" },
  { "infer_range", P_BOOL, offsetof(struct range_of, infer_range), "0", "take the length from the readers" },
  CTX(range_of), DTYPE(range_of), { 0 } };
static const struct param linspace_param[] = {
  { "start", P_FLOAT, offsetof(struct range_of, start), NULL, "first value" },
  { "stop", P_FLOAT, offsetof(struct range_of, stop), NULL, "last value" },
  { "num", P_INT, offsetof(struct range_of, num), NULL, "how many", .range = "[1,]" },
  { "endpoint", P_BOOL, offsetof(struct range_of, endpoint), "1", "include stop" },
  { "step", P_FLOAT, offsetof(struct range_of, step), "1", "not used" },
  { "repeat", P_INT, offsetof(struct range_of, repeat), "1", "not used", .range = "[1,2147483647]" },
  { "infer_range", P_BOOL, offsetof(struct range_of, infer_range), "0", "not used" },
  CTX(range_of), DTYPE(range_of), { 0 } };

/* -- identity ---------------------------------------------------------------------------------- */

struct eye { int64_t n, m, k, dtype; const char *ctx; };

static int eye_shape(struct infer *s)
{
  const struct eye *p = s->param;
  return shape_is(s, &s->out[0], 2, (int64_t[]){ p->n, p->m > 0 ? p->m : p->n });
}

static int eye_type(struct infer *s)
{
  int64_t dtype = ((const struct eye *)s->param)->dtype;
  return type_is(s, &s->out[0], dtype < 0 ? TY_F32 : (int)dtype);
}

static double eye_value(const void *param, int64_t i, int dtype)
{
  const struct eye *p = param;
  int64_t cols = p->m > 0 ? p->m : p->n;
  return i % cols == i / cols + p->k;
}

static int eye_run(struct call *c)
{
  generate_values(&c->out[0], c->param, eye_value);
  return TY_OK;
}
static const struct kernel eye_cpu[] = { { "eye", eye_run, T_ANY }, { 0 } };

static const struct param eye_param[] = {
  { "N", P_INT, offsetof(struct eye, n), NULL, "rows", .range = "[1,]" },
  { "M", P_INT, offsetof(struct eye, m), "0", "columns; 0: as many as rows", .range = "[0,]" },
  { "k", P_INT, offsetof(struct eye, k), "0", "which diagonal: above the main one if positive" },
  CTX(eye), DTYPE(eye), { 0 } };

const struct op op_create[] = {
  { .name = "_zeros", .doc = "An array of `shape` filled with 0.", .in = "", .param = constant_param,
      .param_size = sizeof(struct constant),
    .shape = constant_shape, .type = constant_type, .flags = OP_ZERO_GRAD, .cpu = zeros_cpu },
  { .name = "_ones", .doc = "An array of `shape` filled with 1.", .in = "", .param = constant_param,
      .param_size = sizeof(struct constant),
    .shape = constant_shape, .type = constant_type, .flags = OP_ZERO_GRAD, .cpu = ones_cpu },
  { .name = "_full", .alias = "_npi_full", .doc = "An array of `shape` filled with `value`.", .in = "", .param = full_param,
      .param_size = sizeof(struct constant),
    .shape = constant_shape, .type = constant_type, .flags = OP_ZERO_GRAD, .cpu = full_cpu,
    .attention = attention_constant },
  { .name = "_zeros_without_dtype", .doc = "Zeros whose element type follows from their readers.", .in = "", .param = free_param,
      .param_size = sizeof(struct constant),
    .check = free_check, .shape = constant_shape, .type = free_type, .flags = OP_ZERO_GRAD, .cpu = zeros_cpu },
  { .name = "_NoGradient", .doc = "Zeros of whatever shape and element type their readers want: where no gradient comes from.", .in = "",
    .shape = any_shape, .type = any_shape, .flags = OP_ZERO_GRAD, .cpu = zeros_cpu },
  { .name = "_set_value", .doc = "Fills the array given as `out` with `src`.", .in = "", .param = value_param,
      .param_size = sizeof(struct constant),
    .shape = any_shape, .type = any_shape, .flags = OP_ZERO_GRAD, .cpu = full_cpu },
  { .name = "_arange", .doc = "The numbers from start before stop in steps of step, each `repeat` times; one dimension.", .in = "",
      .param = arange_param,
    .param_size = sizeof(struct range_of), .shape = arange_shape, .type = range_type, .flags = OP_ZERO_GRAD, .cpu = arange_cpu },
  { .name = "_linspace", .alias = "_npi_linspace", .doc = "`num` numbers from start to stop at equal distances; one dimension.",
      .in = "", .param = linspace_param,
    .param_size = sizeof(struct range_of), .shape = linspace_shape, .type = range_type, .flags = OP_ZERO_GRAD, .cpu = linspace_cpu },
  { .name = "_eye", .doc = "A matrix (N, M) with 1 on its k-th diagonal and 0 elsewhere.", .in = "", .param = eye_param,
      .param_size = sizeof(struct eye),
    .shape = eye_shape, .type = eye_type, .flags = OP_ZERO_GRAD, .cpu = eye_cpu },
  { 0 } };
