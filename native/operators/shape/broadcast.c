/* broadcast.c - operators that repeat elements: broadcast_to, broadcast_axis, broadcast_like, tile,
** repeat.
**
** The output is a nest of axes, some of which repeat what is inside them. Forward is one strided
** copy in which those axes do not advance in the input; the gradient is the sum over them.
*/
#include "kernel/strided_copy.h"
#include "kernel/reduce/reduce.h"
#include "op/op.h"

/* The axes of the output. Bit i of `copies`: axis i repeats what is inside it. */
struct nest { int n; int64_t dim[R_AXES]; uint32_t copies; };

/* Appends an axis, unless it has size 1. copy: it repeats. */
static void nest_put(struct nest *t, int64_t dim, bool copy)
{
  if (dim == 1) return;
  if (copy) t->copies |= 1u << t->n;
  t->dim[t->n++] = dim;
}

typedef void (*nest_fn)(const void *param, const ty_desc *in, const ty_desc *out, struct nest *t);

/* Copies the input to the output along the nest. */
static int run_nest(struct call *c, nest_fn make)
{
  struct nest t = { 0 };
  struct move m = { 0 };
  int64_t to = 1, from = 1;
  make(c->param, &c->in[0].d, &c->out[0].d, &t);
  m.n = t.n;
  for (int i = t.n - 1; i >= 0; i--) {
    bool copy = t.copies >> i & 1;
    m.dim[i] = t.dim[i];
    m.to[i] = to;
    m.from[i] = copy ? 0 : from;
    to *= t.dim[i];
    if (!copy) from *= t.dim[i];
  }
  return move_run(c->device, &m, c->out[0].p, c->in[0].p, dtype_size(c->in[0].d.dtype));
}

/* Plans the sum of the head gradient over the repeating axes. */
static void plan_back(const struct call *c, nest_fn make, struct reduce *r)
{
  struct nest t = { 0 };
  make(c->param, &c->out[0].d, &c->in[0].d, &t);
  reduce_plan_axes(c->in[0].d.dtype, t.n, t.dim, t.copies, r);
}

static int sum_copies(struct call *c, nest_fn make)
{
  struct reduce r;
  plan_back(c, make, &r);
  TRY(move_zeros(c, 1));
  if (!c->out[0].p) return TY_OK;
  return reduce_sum(c->device, &r, c->in[0].p, c->out[0].p, c->add & 1, c->tmp);
}

static size_t gather_scratch(const struct call *c, nest_fn make)
{
  struct reduce r;
  plan_back(c, make, &r);
  return reduce_sum_scratch(c->device, &r);
}

/* Makes the nest of the output's axes, of which those repeat whose size differs from data's. */
static void nest_stretched(const void *param, const ty_desc *in, const ty_desc *out, struct nest *t)
{
  for (int i = 0; i < out->ndim; i++) nest_put(t, out->dim[i], in->dim[i] != out->dim[i]);
}

/* Infers the output's dims from `want` (0: unknown). Each axis of data has the wanted size or 1. */
static int stretched_shape(struct infer *s, const int64_t *want)
{
  ty_desc *in = &s->in[0];
  for (int i = 0; i < in->ndim; i++)
    if (in->dim[i] > 1 && want[i] && want[i] != in->dim[i])
      return infer_fail(s, TY_ESHAPE, in,
          "axis %d has size %lld and cannot become %lld; only size 1 is broadcast", i,
          (long long)in->dim[i], (long long)want[i]);
  return shape_is(s, &s->out[0], in->ndim, want);
}

/* -- broadcast_to ------------------------------------------------------------------------------ */

struct to { struct dims shape; };
static const struct param to_params[] = {
  { "shape", P_SHAPE, offsetof(struct to, shape), "()", "dims of the result, as many as data has; 0 keeps a dim" },
  { 0 }
};

static int to_shape(struct infer *s)
{
  const struct to *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t want[TY_MAXDIM] = { 0 };
  for (int i = 0; i < p->shape.n; i++) want[i] = MAX(p->shape.d[i], 0);
  if (!in->ndim) return shape_is(s, &s->out[0], (int)MAX(p->shape.n, 0), want);
  if (p->shape.n != in->ndim)
    return infer_fail(s, TY_ESHAPE, in,
        "it has %d dimensions, shape has %lld; expected equally many", in->ndim,
        (long long)p->shape.n);
  for (int i = 0; i < in->ndim; i++)
    if (!want[i]) want[i] = in->dim[i];
  return stretched_shape(s, want);
}

/* -- broadcast_axis ---------------------------------------------------------------------------- */

struct axes { struct dims axis, size; };
static const struct param axes_params[] = {
  { "axis", P_SHAPE, offsetof(struct axes, axis), "()", "axes of size 1 to stretch; not negative" },
  { "size", P_SHAPE, offsetof(struct axes, size), "()", "the new size of each", NULL, SIZES_RANGE },
  { 0 }
};

static int axes_shape(struct infer *s)
{
  const struct axes *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t want[TY_MAXDIM];
  if (p->axis.n != p->size.n)
    return infer_fail(s, TY_EVALUE, NULL, "axis lists %lld axes, size has %lld entries",
        (long long)p->axis.n, (long long)p->size.n);
  if (!in->ndim) return TY_OK;
  memcpy(want, in->dim, sizeof want);
  for (int i = 0; i < p->axis.n; i++) {
    int64_t axis = p->axis.d[i];
    if (axis < 0 || axis >= in->ndim)
      return infer_fail(s, TY_EVALUE, in,
          "axis %lld of an array of %d dimensions; expected 0 to %d", (long long)axis, in->ndim,
          in->ndim - 1);
    if (in->dim[axis] > 1)
      return infer_fail(s, TY_ESHAPE, in, "axis %lld has size %lld; only size 1 is broadcast",
          (long long)axis, (long long)in->dim[axis]);
    if (p->size.d[i] < 1)
      return infer_fail(s, TY_EVALUE, NULL, "size of axis %lld is %lld; expected 1 or more",
          (long long)axis, (long long)p->size.d[i]);
    want[axis] = p->size.d[i];
  }
  return stretched_shape(s, want);
}

/* -- broadcast_like ---------------------------------------------------------------------------- */

struct broadcast_like { struct dims lhs_axes, rhs_axes; };
static const struct param like_params[] = {
  { "lhs_axes", P_SHAPE, offsetof(struct broadcast_like, lhs_axes), "None", "axes of lhs to stretch; None: all of them", NULL,
    NULL, 1 },
  { "rhs_axes", P_SHAPE, offsetof(struct broadcast_like, rhs_axes), "None",
    "axes of rhs that give their sizes, in the same order", NULL, NULL, 1 },
  { 0 }
};

static int like_shape(struct infer *s)
{
  const struct broadcast_like *p = s->param;
  const ty_desc *lhs = &s->in[0], *rhs = &s->in[1];
  int64_t want[TY_MAXDIM];
  bool all = p->lhs_axes.n < 0 && p->rhs_axes.n < 0;
  if (!all && (p->lhs_axes.n != p->rhs_axes.n || p->lhs_axes.n < 1))
    return infer_fail(
        s, TY_EVALUE, NULL, "lhs_axes and rhs_axes must list equally many axes, at least one");
  if (!lhs->ndim || !rhs->ndim) return TY_OK;
  if (all && lhs->ndim != rhs->ndim)
    return infer_fail(
        s, TY_ESHAPE, rhs, "it has %d dimensions, lhs has %d; list the axes", rhs->ndim, lhs->ndim);
  memcpy(want, all ? rhs->dim : lhs->dim, sizeof want);
  for (int i = 0; i < p->lhs_axes.n; i++) {
    int a, b;
    TRY(infer_axis(s, p->lhs_axes.d[i], lhs->ndim, &a));
    TRY(infer_axis(s, p->rhs_axes.d[i], rhs->ndim, &b));
    want[a] = rhs->dim[b];
  }
  return stretched_shape(s, want);
}

static int like_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  if (s->in[1].dtype == TY_NODTYPE) s->in[1].dtype = s->in[0].dtype;
  return TY_OK;
}

/* -- tile -------------------------------------------------------------------------------------- */

struct tile { struct dims reps; };
static const struct param tile_params[] = {
  { "reps", P_SHAPE, offsetof(struct tile, reps), NULL,
    "copies along each of the last axes; more entries than axes add axes in front", NULL, SIZES_RANGE },
  { 0 }
};

/* Returns entry i of a list that is extended in front with ones to ndim entries. */
static int64_t aligned_entry(const int64_t *d, int64_t n, int64_t i, int64_t ndim)
{
  return i + n >= ndim ? d[i + n - ndim] : 1;
}

static int tile_shape(struct infer *s)
{
  const struct tile *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t dim[R_AXES], ndim = MAX(p->reps.n, in->ndim);
  for (int i = 0; i < p->reps.n; i++)
    if (p->reps.d[i] < 1)
      return infer_fail(
          s, TY_EVALUE, NULL, "reps: expected 1 or more, got %lld", (long long)p->reps.d[i]);
  if (!in->ndim) return TY_OK;
  for (int i = 0; i < ndim; i++)
    dim[i] = aligned_entry(in->dim, in->ndim, i, ndim) *
        aligned_entry(p->reps.d, p->reps.n, i, ndim);
  return shape_is(s, &s->out[0], (int)ndim, dim);
}

static void nest_tiled(const void *param, const ty_desc *in, const ty_desc *out, struct nest *t)
{
  const struct tile *p = param;
  for (int i = 0; i < out->ndim; i++) {
    nest_put(t, aligned_entry(p->reps.d, p->reps.n, i, out->ndim), true);
    nest_put(t, aligned_entry(in->dim, in->ndim, i, out->ndim), false);
  }
}

/* -- repeat ------------------------------------------------------------------------------------ */

struct repeat { int64_t repeats, axis; };
static const struct param repeat_params[] = {
  { "repeats", P_INT, offsetof(struct repeat, repeats), NULL,   "how often each element comes", NULL, "[1,2147483647]" },
  { "axis",    P_INT, offsetof(struct repeat, axis),    "None",
    "axis along which; negative counts from the end; None: data is flattened first", NULL, NULL, 1 },
  { 0 }
};

static int repeat_shape(struct infer *s)
{
  const struct repeat *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t dim[TY_MAXDIM];
  int axis;
  if (!in->ndim) return TY_OK;
  if (p->axis == NONE) {
    dim[0] = size_times(product_of(in, 0, in->ndim), p->repeats);
    return shape_is(s, &s->out[0], 1, dim);
  }
  TRY(infer_axis(s, p->axis, in->ndim, &axis));
  memcpy(dim, in->dim, sizeof dim);
  dim[axis] = size_times(dim[axis], p->repeats);
  return shape_is(s, &s->out[0], in->ndim, dim);
}

static void nest_repeated(const void *param, const ty_desc *in, const ty_desc *out, struct nest *t)
{
  const struct repeat *p = param;
  int axis = p->axis == NONE ? in->ndim - 1 : axis_in(p->axis, in->ndim);
  nest_put(t, product_of(in, 0, axis + 1), false);
  nest_put(t, p->repeats, true);
  nest_put(t, product_of(in, axis + 1, in->ndim), false);
}

/* -- rows -------------------------------------------------------------------------------------- */

#define NEST(nest) \
static int nest##_run(struct call *c) { return run_nest(c, nest); } \
static int nest##_back(struct call *c) { return sum_copies(c, nest); } \
static size_t nest##_scratch(const struct call *c) { return gather_scratch(c, nest); } \
MOVE_ANYWHERE(nest##_kernels, nest##_run) \
static const struct kernel nest##_back_kernels[] = { \
  { .name = "sum", .run = nest##_back, .types = T_FLOAT | T_INT, .scratch = nest##_scratch, .add = 1, \
    .flags = K_ANYWHERE }, { 0 } \
};
NEST(nest_stretched)
NEST(nest_tiled)
NEST(nest_repeated)
#define KERNELS(nest) .grad = "g0", .cpu = nest##_kernels, .back_cpu = nest##_back_kernels

const struct op op_broadcast[] = {
  { .name = "broadcast_to", KERNELS(nest_stretched),
    .doc = "Stretches axes of size 1 to the sizes in `shape`. The gradient is summed over them.",
    .in = "data", .param = to_params, .param_size = sizeof(struct to), .shape = to_shape },
  { .name = "broadcast_axis", .alias = "broadcast_axes", KERNELS(nest_stretched),
    .doc = "Stretches the listed axes of size 1. The gradient is summed over them.",
    .in = "data", .param = axes_params, .param_size = sizeof(struct axes), .shape = axes_shape },
  { .name = "broadcast_like", KERNELS(nest_stretched),
    .doc = "Stretches axes of size 1 of lhs to the sizes that rhs has there. The gradient of lhs is summed over them; "
           "rhs gets none.",
    .in = "lhs rhs", .param = like_params, .param_size = sizeof(struct broadcast_like), .shape = like_shape, .type = like_type },
  { .name = "tile", .alias = "_npi_tile", KERNELS(nest_tiled),
    .doc = "Copies of the whole array side by side along each axis. The gradient is the sum over the copies.",
    .in = "data", .param = tile_params, .param_size = sizeof(struct tile), .shape = tile_shape, .flags = OP_NAMED_INPUT },
  { .name = "repeat", .alias = "_np_repeat", KERNELS(nest_repeated),
    .doc = "Each element several times in a row, along an axis or flattened. The gradient is the sum over the repeats.",
    .in = "data", .param = repeat_params, .param_size = sizeof(struct repeat), .shape = repeat_shape, .flags = OP_NAMED_INPUT },
  { 0 }
};
