/* cumsum.c - running sums along an axis, or of the flattened array. */
#include "kernel/strided_copy.h"
#include "op/op.h"

enum {
  COLUMNS = 256,                                      /* columns of a unit of work */
  LOOK = 64                                           /* rows between checks for Ctrl-C */
};
struct cumsum_param { int64_t axis, dtype; };
static const struct param running_params[] = {
  { "axis",  P_INT,   offsetof(struct cumsum_param, axis),  "None",
    "axis along which sums run, not negative; None: the flattened array", NULL, NULL, 1 },
  { "dtype", P_DTYPE, offsetof(struct cumsum_param, dtype), "None",
    "dtype of the result; None: as data, int64 for bool", NULL, NULL, 1 },
  { 0 }
};

static int running_shape(struct infer *s)
{
  const struct cumsum_param *p = s->param;
  const ty_desc *in = &s->in[0];
  if (p->axis != NONE) {
    TRY(shape_both(s, &s->in[0], &s->out[0]));
    if (in->ndim && (p->axis < 0 || p->axis >= in->ndim))
      return infer_fail(s, TY_EVALUE, in,
          "axis %lld of an array of %d dimensions; expected 0 to %d", (long long)p->axis, in->ndim,
          in->ndim - 1);
    return TY_OK;
  }
  int64_t n = in->ndim ? product_of(in, 0, in->ndim) : 0;
  return shape_is(s, &s->out[0], 1, &n);
}

static int running_type(struct infer *s)
{
  const struct cumsum_param *p = s->param;
  if (p->dtype >= 0) return type_is(s, &s->out[0], (int)p->dtype);
  if (s->in[0].dtype == TY_BOOL) return type_is(s, &s->out[0], TY_I64);
  return type_both(s, &s->in[0], &s->out[0]);
}

struct running_sums { void *y; const void *x; int64_t k, inner, blocks; bool back; };

/* Running sums over k rows of up to COLUMNS columns; rows are `inner` apart; y may be x. A sum
** has its array's own precision; integers wrap, a bool is whether a sum is not 0. */
#define RUNNING(T, ACC) \
static void running_##T(int64_t begin, int64_t end, void *context) \
{ \
  const struct running_sums *s = context; \
  for (int64_t u = begin; u < end; u++) { \
    int64_t column = u % s->blocks * COLUMNS, n = MIN(COLUMNS, s->inner - column), \
        step = s->inner; \
    int64_t at = u / s->blocks * s->k * step + column; \
    if (s->back) at += (s->k - 1) * step, step = -step; \
    const T *x = (const T *)s->x + at; \
    T *y = (T *)s->y + at; \
    ACC sum[COLUMNS] = { 0 }, one = 0; \
    if (n == 1) for (int64_t i = 0; i < s->k; i++) one += (ACC)x[i * step], y[i * step] = (T)one; \
    else for (int64_t i = 0; i < s->k && (i % LOOK || !stop_wanted()); i++, x += step, y += step) \
      for (int64_t j = 0; j < n; j++) sum[j] += (ACC)x[j], y[j] = (T)sum[j]; \
  } \
}
RUNNING(float, float)
RUNNING(double, double)
RUNNING(uint8_t, uint64_t)
RUNNING(int8_t, uint64_t)
RUNNING(int32_t, uint64_t)
RUNNING(int64_t, uint64_t)
RUNNING(bool, uint64_t)

/* Writes running sums of x along the axis to y, both of `dtype`. back: from the end. */
static void run_sums(const struct call *c, int dtype, void *y, const void *x, bool back)
{
  const ty_desc *d = &c->in[0].d;
  int64_t axis = ((const struct cumsum_param *)c->param)->axis, n = desc_count(d);
  struct running_sums s = { y, x, n, 1, 1, back };
  if (axis != NONE) s.k = d->dim[axis], s.inner = product_of(d, (int)axis + 1, d->ndim);
  s.blocks = (s.inner + COLUMNS - 1) / COLUMNS;
  parallel_fn body = dtype == TY_F32 ? running_float
      : dtype == TY_F64              ? running_double
      : dtype == TY_I8               ? running_int8_t
      : dtype == TY_I32              ? running_int32_t
      : dtype == TY_I64              ? running_int64_t
      : dtype == TY_BOOL             ? running_bool
                                     : running_uint8_t;
  parallel_for_stoppable(
      n / (s.k * s.inner) * s.blocks, elements_ns(s.k * MIN(s.inner, COLUMNS)), body, &s);
}

static int running_run(struct call *c)
{
  int from = c->in[0].d.dtype, to = c->out[0].d.dtype;
  const void *x = c->in[0].p;
  if (from != to) dtype_convert(c->out[0].p, to, x, from, desc_count(&c->in[0].d)), x = c->out[0].p;
  run_sums(c, to, c->out[0].p, x, false);
  return TY_OK;
}

/* Computes the gradient; sums are in data's dtype, as in the reference. */
static int running_back(struct call *c)
{
  int from = c->in[0].d.dtype, to = c->out[0].d.dtype;
  const void *g = c->in[0].p;
  void *dx = c->out[0].p;
  if (!dx) return TY_OK;
  if (from != to) dtype_convert(dx, to, g, from, desc_count(&c->in[0].d)), g = dx;
  run_sums(c, to, dx, g, true);
  return TY_OK;
}

static const struct kernel running_kernels[] = {
  { .name = "lines", .run = running_run, .types = T_FLOAT | T_INT }, { 0 }
};
static const struct kernel running_back_kernels[] = {
  { .name = "lines", .run = running_back, .types = T_FLOAT | T_INT }, { 0 }
};

const struct op op_cumsum[] = {
  { .name = "_np_cumsum", .alias = "cumsum",
    .doc = "Running sums along an axis; of bools in int64. The gradient is the running sum of the head gradient from the other end.",
    .in = "a", .param = running_params, .param_size = sizeof(struct cumsum_param), .shape = running_shape,
    .type = running_type,
    .grad = "g0", .cpu = running_kernels, .back_cpu = running_back_kernels },
  { 0 }
};
