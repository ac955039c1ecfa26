/* reduce.c - reductions over axes: sum, mean, prod, nansum, nanprod, max, min, _square_sum, norm,
** moments; places of extremes: argmax, argmin, argmax_channel.
**
** No axis, or an empty list, means all of them. If all axes are dropped, one of size 1 remains. The
** loops are in kernel/reduce. Integers wrap; integer means are truncated. Sums of bools are counts
** in int64; their means, norms and moments are float32. If there is a NaN, it is the extreme.
*/
#include "kernel/strided_copy.h"
#include "kernel/reduce/reduce.h"
#include "op/op.h"

/* -- reduced axes and the result's shape ------------------------------------------------------- */

struct reduce_param { struct dims axis; int64_t keepdims, exclude; };
#define AXIS(type, none) \
  { "axis",     P_SHAPE, offsetof(type, axis),     none, \
    "axis or axes to reduce; negative counts from the end; None or empty: all", NULL, NULL, 1 }, \
  { "keepdims", P_BOOL,  offsetof(type, keepdims), "False", "leave reduced axes with size 1" }
static const struct param axes_params[] = {
  AXIS(struct reduce_param, "None"),
  { "exclude",  P_BOOL,  offsetof(struct reduce_param, exclude), "False", "reduce all axes but the listed ones" },
  { 0 }
};

static uint32_t axes_mask(const struct dims *axis, bool exclude, int ndim)
{
  uint32_t mask = 0, all = (1u << ndim) - 1;
  if (axis->n <= 0) return all;
  for (int i = 0; i < axis->n; i++) mask |= 1u << (axis->d[i] < 0 ? axis->d[i] + ndim : axis->d[i]);
  return exclude ? all & ~mask : mask;
}

static int check_axes(struct infer *s, const struct dims *axis, int ndim)
{
  uint32_t seen = 0;
  for (int i = 0; i < axis->n; i++) {
    int a;
    TRY(infer_axis(s, axis->d[i], ndim, &a));
    if (seen >> a & 1) return infer_fail(s, TY_EVALUE, NULL, "axis %d is listed twice", a);
    seen |= 1u << a;
  }
  return TY_OK;
}

/* Infers out as in without the axes of the mask. Kept dims pass both ways. */
static int reduced_shape(struct infer *s, ty_desc *out, uint32_t mask, bool keep)
{
  ty_desc *in = &s->in[0];
  int64_t dim[TY_MAXDIM];
  int n = 0, index[TY_MAXDIM];
  for (int i = 0; i < in->ndim; i++) {
    bool gone = mask >> i & 1;
    if (gone && !keep) continue;
    index[n] = gone ? -1 : i;
    dim[n++] = gone ? 1 : in->dim[i];
  }
  if (!n) index[n] = -1, dim[n++] = 1;
  TRY(shape_is(s, out, n, dim));
  for (int i = 0; i < n; i++)
    if (index[i] >= 0) TRY(shape_dim(s, in, index[i], out->dim[i]));
  return TY_OK;
}

/* Infers one element: all axes are reduced, also of an unknown shape. */
static int one_element(struct infer *s) { return shape_is(s, &s->out[0], 1, (int64_t[]){ 1 }); }

static int axes_shape(struct infer *s)
{
  const struct reduce_param *p = s->param;
  int ndim = s->in[0].ndim;
  if (!ndim) return p->axis.n <= 0 && !p->keepdims ? one_element(s) : TY_OK;
  TRY(check_axes(s, &p->axis, ndim));
  return reduced_shape(s, &s->out[0], axes_mask(&p->axis, p->exclude, ndim), p->keepdims);
}

/* -- two dtypes -------------------------------------------------------------------------------- */

/* Returns the dtype in which to reduce: it can represent both data and result. */
static int common_dtype(int a, int b)
{
  if (dtype_float(a) != dtype_float(b)) return dtype_float(a) ? a : b;
  return dtype_size(a) > dtype_size(b) ? a : b;
}

static int common_plan(const ty_desc *data, int other, uint32_t axes, struct reduce *r)
{
  ty_desc d = *data;
  d.dtype = common_dtype(d.dtype, other);
  reduce_plan(&d, axes, r);
  return d.dtype;
}

static size_t copy_bytes(int dtype, const struct operand *x)
{
  ty_desc d = x->d;
  d.dtype = dtype;
  return x->d.dtype == dtype ? 0 : align_up(desc_bytes(&d), ALIGN);
}

/* Returns the operand in a dtype: in place, or memory at *tmp, which has a converted copy if
** `filled`. */
static void *in_dtype(int dtype, const struct operand *x, bool filled, char **tmp)
{
  void *copy = *tmp;
  if (x->d.dtype == dtype) return x->p;
  if (filled) dtype_convert(copy, dtype, x->p, x->d.dtype, desc_count(&x->d));
  *tmp += copy_bytes(dtype, x);
  return copy;
}

static void put_back(const struct operand *x, const void *copy, int dtype)
{
  if (copy != x->p) dtype_convert(x->p, x->d.dtype, copy, dtype, desc_count(&x->d));
}

/* Returns the bytes of the gradient's copies. in: head gradient, then data and result as the kind
** needs. */
static size_t back_scratch(const struct call *c)
{
  int dtype = common_dtype(c->out[0].d.dtype, c->in[0].d.dtype);
  size_t bytes = copy_bytes(dtype, &c->out[0]);
  for (int i = 0; i < c->nin; i++) bytes += copy_bytes(dtype, &c->in[i]);
  return bytes;
}

static int back_run(struct call *c, int kind, bool mean)
{
  const struct operand *dx = &c->out[0];
  const uint32_t axes = c->op->reduction(c->param, dx->d.ndim).axes;
  const void *v[3] = { NULL };
  struct reduce r;
  int dtype = common_plan(&dx->d, c->in[0].d.dtype, axes, &r);
  char *tmp = c->tmp;
  if (!dx->p) return TY_OK;
  for (int i = 0; i < c->nin; i++) v[i] = in_dtype(dtype, &c->in[i], true, &tmp);
  void *to = in_dtype(dtype, dx, false, &tmp);
  reduce_back(&r, kind, to, v[1], v[2], v[0], NULL, mean ? 1 / (double)r.count : 1);
  put_back(dx, to, dtype);
  return TY_OK;
}

/* -- sum, mean, prod, nansum, nanprod, max, min ------------------------------------------------ */

static uint32_t axes_gone(const void *param, int ndim)
{
  const struct reduce_param *p = param;
  return axes_mask(&p->axis, p->exclude, ndim);
}

static void axes_plan(const struct call *c, const ty_desc *data, struct reduce *r)
{
  reduce_plan(data, axes_gone(c->param, data->ndim), r);
}

static size_t axes_scratch(const struct call *c)
{
  struct reduce r;
  axes_plan(c, &c->in[0].d, &r);
  return reduce_scratch(&r);
}

/* Infers the type of the result: data's, but `dtype` for bools. */
static int bools_type(struct infer *s, int dtype)
{
  if (s->in[0].dtype == TY_BOOL) return type_is(s, &s->out[0], dtype);
  return type_both(s, &s->in[0], &s->out[0]);
}
static int count_type(struct infer *s) { return bools_type(s, TY_I64); }
static int mean_type(struct infer *s)  { return bools_type(s, TY_F32); }

static int axes_run(struct call *c, int kind, int finish)
{
  struct reduce r;
  axes_plan(c, &c->in[0].d, &r);
  r.result = c->out[0].d.dtype;
  reduce_run(&r, kind, finish, c->in[0].p, NULL, c->out[0].p, c->add & 1, c->tmp);
  return TY_OK;
}

/* Returns the number of axes before the first reduced one. */
static int axes_lead(const struct call *c)
{
  const uint32_t gone = axes_gone(c->param, c->in[0].d.ndim);
  return gone ? __builtin_ctz(gone) : 0;
}

#define REDUCTION(op, kind, finish, back) \
static struct axis_reduction op##_reduction(const void *param, int ndim) \
{ \
  return (struct axis_reduction){ axes_gone(param, ndim), kind, finish }; \
} \
static int op##_run(struct call *c) { return axes_run(c, kind, finish); } \
static int op##_back(struct call *c) { return back_run(c, back, finish == F_MEAN); } \
static const struct kernel op##_kernels[] = { \
  { .name = "reduce", .run = op##_run, .types = T_FLOAT | T_INT | T(TY_BF16), \
    .scratch = axes_scratch, .add = 1, .lead = axes_lead }, { 0 } \
}; \
static const struct kernel op##_back_kernels[] = { \
  { .name = "spread", .run = op##_back, .types = T_FLOAT | T_INT, .scratch = back_scratch }, { 0 } \
};
REDUCTION(sum,     R_SUM,     F_NONE, B_SUM)
REDUCTION(mean,    R_SUM,     F_MEAN,  B_SUM)
REDUCTION(nansum,  R_NANSUM,  F_NONE, B_NANSUM)
REDUCTION(prod,    R_PROD,    F_NONE, B_PROD)
REDUCTION(nanprod, R_NANPROD, F_NONE, B_NANPROD)
REDUCTION(square,  R_SQUARE,  F_NONE, B_SQUARE)
REDUCTION(max,     R_MAX,     F_NONE, B_EQUAL)
REDUCTION(min,     R_MIN,     F_NONE, B_EQUAL)

/* -- norm -------------------------------------------------------------------------------------- */

struct norm_reduce_param { int64_t ord; struct dims axis; int64_t out_dtype, keepdims; };
static const struct param norm_params[] = {
  { "ord",       P_INT,   offsetof(struct norm_reduce_param, ord),       "2",
    "1: sum of absolute values, 2: square root of the sum of squares" },
  AXIS(struct norm_reduce_param, "None"),
  { "out_dtype", P_DTYPE, offsetof(struct norm_reduce_param, out_dtype), "None",
    "dtype of the result; None: as data, float32 for bool", NULL, NULL, 1 },
  { 0 }
};

static int norm_check(void *param)
{
  static const char dtypes[] = "float16, float32, float64, bfloat16, int8, int32 or int64";
  const struct norm_reduce_param *p = param;
  int code = TY_OK;
  if (p->ord != 1 && p->ord != 2) {
    code = fail(TY_EVALUE, "parameter ord: expected 1 or 2, got %lld", (long long)p->ord);
    fail_argument("ord", "1 or 2", NULL);
  }
  else if (p->out_dtype == TY_U8 || p->out_dtype == TY_BOOL) {
    const char *got = dtype_name((int)p->out_dtype);
    code = fail(TY_EVALUE, "parameter out_dtype: expected %s, got %s", dtypes, got);
    fail_argument("out_dtype", dtypes, got);
  }
  return code;
}

static int norm_shape(struct infer *s)
{
  const struct norm_reduce_param *p = s->param;
  int ndim = s->in[0].ndim;
  if (!ndim) return p->axis.n <= 0 && !p->keepdims ? one_element(s) : TY_OK;
  TRY(check_axes(s, &p->axis, ndim));
  return reduced_shape(s, &s->out[0], axes_mask(&p->axis, false, ndim), p->keepdims);
}

static int norm_type(struct infer *s)
{
  const struct norm_reduce_param *p = s->param;
  return p->out_dtype >= 0 ? type_is(s, &s->out[0], (int)p->out_dtype) : mean_type(s);
}

static struct axis_reduction norm_reduction(const void *param, int ndim)
{
  const struct norm_reduce_param *p = param;
  const bool two = p->ord == 2;
  return (struct axis_reduction){ axes_mask(&p->axis, false, ndim), two ? R_SQUARE : R_ABS,
    two ? F_ROOT : F_NONE };
}

static size_t norm_scratch(const struct call *c)
{
  struct reduce r;
  const uint32_t axes = norm_reduction(c->param, c->in[0].d.ndim).axes;
  int dtype = common_plan(&c->in[0].d, c->out[0].d.dtype, axes, &r);
  return copy_bytes(dtype, &c->in[0]) + copy_bytes(dtype, &c->out[0]) + reduce_scratch(&r);
}

static int norm_run(struct call *c)
{
  const struct axis_reduction k = norm_reduction(c->param, c->in[0].d.ndim);
  const bool add = c->add & 1;
  const struct operand *out = &c->out[0];
  struct reduce r;
  int dtype = common_plan(&c->in[0].d, out->d.dtype, k.axes, &r);
  char *tmp = c->tmp;
  const void *x = in_dtype(dtype, &c->in[0], true, &tmp);
  void *y = in_dtype(dtype, out, add, &tmp);
  reduce_run(&r, k.kind, k.finish, x, NULL, y, add, tmp);
  put_back(out, y, dtype);
  return TY_OK;
}

/* Computes the gradient. in: head gradient, data, norm. */
static int norm_back(struct call *c)
{
  bool two = ((const struct norm_reduce_param *)c->param)->ord == 2;
  return back_run(c, two ? B_ROOT : B_SIGN, false);
}

static const struct kernel norm_kernels[] = {
  { .name = "reduce", .run = norm_run, .types = T_FLOAT | T_INT, .scratch = norm_scratch, .add = 1 }, { 0 }
};
static const struct kernel norm_back_kernels[] = {
  { .name = "spread", .run = norm_back, .types = T_FLOAT | T_INT, .scratch = back_scratch }, { 0 }
};

/* -- moments ----------------------------------------------------------------------------------- */

struct moments { struct dims axes; int64_t keepdims; };
static const struct param moments_params[] = {
  { "axes",     P_SHAPE, offsetof(struct moments, axes),     "None",  "axes to reduce; negative counts from the end",
    NULL, NULL, 1 },
  { "keepdims", P_BOOL,  offsetof(struct moments, keepdims), "False", "leave reduced axes with size 1" },
  { 0 }
};

static int moments_shape(struct infer *s)
{
  const struct moments *p = s->param;
  int ndim = s->in[0].ndim;
  if (p->axes.n < 0)
    return infer_fail(s, TY_EVALUE, NULL, "parameter axes: expected a list of axes, got None");
  if (!ndim) return shape_both(s, &s->out[0], &s->out[1]);
  TRY(check_axes(s, &p->axes, ndim));
  for (int k = 0; k < 2; k++)
    TRY(reduced_shape(s, &s->out[k], axes_mask(&p->axes, false, ndim), p->keepdims));
  return TY_OK;
}

static int moments_type(struct infer *s)
{
  TRY(mean_type(s));
  return type_both(s, &s->out[0], &s->out[1]);
}

static size_t mean_bytes(const struct call *c) { return align_up(desc_bytes(&c->out[0].d), ALIGN); }

static struct axis_reduction moments_reduction(const void *param, int ndim)
{
  const struct moments *p = param;
  return (struct axis_reduction){ axes_mask(&p->axes, false, ndim), R_SUM, F_MEAN };
}

/* Returns the bytes of data in the type of the moments, of the mean, in case output 0 is unused,
** and of the reductions' scratch. */
static size_t moments_scratch(const struct call *c)
{
  struct reduce r;
  const uint32_t axes = moments_reduction(c->param, c->in[0].d.ndim).axes;
  int dtype = common_plan(&c->in[0].d, c->out[0].d.dtype, axes, &r);
  return copy_bytes(dtype, &c->in[0]) + mean_bytes(c) + reduce_scratch(&r);
}

static int moments_run(struct call *c)
{
  struct reduce r;
  const uint32_t axes = moments_reduction(c->param, c->in[0].d.ndim).axes;
  int dtype = common_plan(&c->in[0].d, c->out[0].d.dtype, axes, &r);
  char *tmp = c->tmp;
  const void *x = in_dtype(dtype, &c->in[0], true, &tmp);
  void *mean = c->out[0].p ? c->out[0].p : tmp;
  tmp += mean_bytes(c);
  reduce_run(&r, R_SUM, F_MEAN, x, NULL, mean, false, tmp);
  if (c->out[1].p) reduce_run(&r, R_DEVIATION, F_MEAN, x, mean, c->out[1].p, false, tmp);
  return TY_OK;
}

/* Returns the bytes of the gradient's copies. in: the two head gradients, data, mean. */
static size_t moments_back_scratch(const struct call *c)
{
  int dtype = c->in[0].d.dtype;
  return copy_bytes(dtype, &c->in[2]) + copy_bytes(dtype, &c->out[0]);
}

static int moments_back(struct call *c)
{
  struct reduce r;
  const struct operand *dx = &c->out[0];
  const uint32_t axes = moments_reduction(c->param, dx->d.ndim).axes;
  int dtype = common_plan(&dx->d, c->in[0].d.dtype, axes, &r);
  char *tmp = c->tmp;
  if (!dx->p) return TY_OK;
  const void *x = in_dtype(dtype, &c->in[2], true, &tmp);
  void *to = in_dtype(dtype, dx, false, &tmp);
  reduce_back(&r, B_DEVIATION, to, x, c->in[3].p, c->in[0].p, c->in[1].p, 1 / (double)r.count);
  put_back(dx, to, dtype);
  return TY_OK;
}

static const struct kernel moments_kernels[] = {
  { .name = "reduce", .run = moments_run, .types = T_FLOAT | T_INT, .scratch = moments_scratch }, { 0 }
};
static const struct kernel moments_back_kernels[] = {
  { .name = "spread", .run = moments_back, .types = T_FLOAT | T_INT, .scratch = moments_back_scratch }, { 0 }
};

/* -- argmax, argmin ---------------------------------------------------------------------------- */

struct arg_param { int64_t axis, keepdims, dtype; };
#define ARG_DTYPE \
  { "dtype", P_DTYPE, offsetof(struct arg_param, dtype), "None", \
    "dtype of the positions; None: as data, which must hold them", NULL, NULL, 1 }
static const struct param arg_params[] = {
  { "axis",     P_INT,  offsetof(struct arg_param, axis),     "None",
    "axis to search; negative counts from the end; None: the flattened array", NULL, NULL, 1 },
  { "keepdims", P_BOOL, offsetof(struct arg_param, keepdims), "False", "leave the axis with size 1" },
  ARG_DTYPE,
  { 0 }
};
static const struct param channel_params[] = { ARG_DTYPE, { 0 } };

static int arg_check(void *param)
{
  const struct arg_param *p = param;
  return p->dtype < 0 ? TY_OK : check_position_dtype(p->dtype);
}

static int channel_check(void *param)
{
  ((struct arg_param *)param)->axis = 1;
  return arg_check(param);
}

/* Fails if the result's type cannot represent all positions along the axis. */
static int positions_along_fit(struct infer *s)
{
  const struct arg_param *p = s->param;
  const ty_desc *in = &s->in[0];
  bool inside = p->axis >= -in->ndim && p->axis < in->ndim;
  int64_t n = p->axis == NONE ? product_of(in, 0, in->ndim)
      : inside                ? in->dim[axis_in(p->axis, in->ndim)]
                              : 0;
  if (!in->ndim) return TY_OK;
  if (p->dtype >= 0) return positions_fit(s, NULL, (int)p->dtype, n, NULL);
  return positions_fit(s, in, in->dtype, n, "parameter dtype gives positions a type of their own");
}

static int arg_shape(struct infer *s)
{
  const struct arg_param *p = s->param;
  int ndim = s->in[0].ndim, axis;
  if (!ndim) return p->axis == NONE && !p->keepdims ? one_element(s) : TY_OK;
  if (p->axis == NONE) {
    TRY(reduced_shape(s, &s->out[0], (1u << ndim) - 1, p->keepdims));
    return positions_along_fit(s);
  }
  TRY(infer_axis(s, p->axis, ndim, &axis));
  TRY(reduced_shape(s, &s->out[0], 1u << axis, p->keepdims));
  return positions_along_fit(s);
}

static int arg_type(struct infer *s)
{
  const struct arg_param *p = s->param;
  if (p->dtype >= 0)
    TRY(type_is(s, &s->out[0], (int)p->dtype));
  else
    TRY(type_both(s, &s->in[0], &s->out[0]));
  return positions_along_fit(s);
}

struct search {
  int dtype;                                          /* of x */
  const char *x;
  size_t size;                                        /* of an element of x */
  const struct operand *to;
  bool least;
  int64_t k, inner, blocks;
};

static void set_position(const struct search *s, int64_t i, int64_t position)
{
  const int dtype = s->to->d.dtype;
  set_number(elements_at(s->to->p, i, dtype_size(dtype)), dtype, (double)position);
}

static void search_rows(int64_t begin, int64_t end, void *context)
{
  const struct search *s = context;
  int64_t index[BEST_RESULTS];
  for (int64_t i = begin; i < end; i += BEST_RESULTS) {
    const int64_t n = MIN(BEST_RESULTS, end - i);
    reducer_best_rows(s->dtype, index, elements_at(s->x, i * s->k, s->size), s->least, n, s->k);
    for (int64_t j = 0; j < n; j++) set_position(s, i + j, index[j]);
  }
}

static void search_columns(int64_t begin, int64_t end, void *context)
{
  const struct search *s = context;
  int64_t index[BEST_RESULTS];
  for (int64_t u = begin; u < end; u++) {
    int64_t j = u % s->blocks * BEST_RESULTS, n = MIN(BEST_RESULTS, s->inner - j),
            outer = u / s->blocks;
    reducer_best_cols(s->dtype, index, elements_at(s->x, outer * s->k * s->inner + j, s->size),
        s->least, s->k, s->inner, n);
    for (int64_t i = 0; i < n; i++) set_position(s, outer * s->inner + j + i, index[i]);
  }
}

static int search_run(struct call *c, bool least)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t axis = ((const struct arg_param *)c->param)->axis;
  struct search s = { d->dtype, c->in[0].p, dtype_size(d->dtype),
    &c->out[0], least, desc_count(d), 1, 1 };
  int64_t outer = 1;
  if (axis != NONE) {
    int a = axis_in(axis, d->ndim);
    outer = product_of(d, 0, a);
    s.k = d->dim[a];
    s.inner = product_of(d, a + 1, d->ndim);
  }
  s.blocks = (s.inner + BEST_RESULTS - 1) / BEST_RESULTS;
  if (s.inner == 1)
    parallel_for_stoppable(outer, elements_ns(s.k), search_rows, &s);
  else
    parallel_for_stoppable(
        outer * s.blocks, elements_ns(s.k * MIN(s.inner, BEST_RESULTS)), search_columns, &s);
  return TY_OK;
}

static int argmax_run(struct call *c) { return search_run(c, false); }
static int argmin_run(struct call *c) { return search_run(c, true); }
static const struct kernel argmax_kernels[] = {
  { .name = "search", .run = argmax_run, .types = T_FLOAT | T_INT }, { 0 }
};
static const struct kernel argmin_kernels[] = {
  { .name = "search", .run = argmin_run, .types = T_FLOAT | T_INT }, { 0 }
};

/* -- rows -------------------------------------------------------------------------------------- */

#define REDUCES(op) \
  .in = "data", .param = axes_params, .param_size = sizeof(struct reduce_param), \
  .shape = axes_shape, .reduction = op##_reduction, \
  .cpu = op##_kernels, .back_cpu = op##_back_kernels
#define ARG_EXTREME .in = "data", .flags = OP_ZERO_GRAD, .param_size = sizeof(struct arg_param), \
  .shape = arg_shape, .type = arg_type

const struct op op_reduce[] = {
  { .name = "sum", .alias = "sum_axis _sparse_sum", .grad = "g0", REDUCES(sum),
    .type = count_type,
    .doc = "Sum over axes; of bools their count, in int64. Every summed element gets the head gradient." },
  { .name = "mean", .alias = "_sparse_mean", .grad = "g0", REDUCES(mean),
    .type = mean_type,
    .doc = "Mean over axes; of bools in float32, of other integers truncated. Every element gets the head gradient "
           "divided by their number." },
  { .name = "prod", .grad = "g0 i0 o0", REDUCES(prod),
    .doc = "Product over axes. The gradient is the head gradient times the product over the element; where an element "
           "is 0 it is NaN or infinite." },
  { .name = "nansum", .grad = "g0 i0", REDUCES(nansum),
    .type = count_type,
    .doc = "Sum over axes that passes over NaN; of bools in int64. The gradient is that of sum, 0 at NaN." },
  { .name = "nanprod", .grad = "g0 i0 o0", REDUCES(nanprod),
    .doc = "Product over axes that passes over NaN. The gradient is that of prod, 0 at NaN." },
  { .name = "max", .alias = "max_axis", .grad = "g0 i0 o0", REDUCES(max),
    .doc = "Largest element over axes. Every element equal to it gets the head gradient." },
  { .name = "min", .alias = "min_axis", .grad = "g0 i0 o0", REDUCES(min),
    .doc = "Smallest element over axes. Every element equal to it gets the head gradient." },
  { .name = "_square_sum", .grad = "g0 i0", .back = "_backward_square_sum", REDUCES(square),
    .type = count_type,
    .doc = "Sum of squares over axes; of bools in int64. The gradient is twice the element times the head gradient." },
  { .name = "norm", .alias = "_sparse_norm",
    .doc = "Sum of absolute values, or root of the sum of squares, over axes; of bools in float32. The gradient is "
           "the sign of the element, or the element over the norm (NaN at 0).",
    .in = "data", .param = norm_params, .param_size = sizeof(struct norm_reduce_param), .check = norm_check, .shape = norm_shape,
    .type = norm_type, .reduction = norm_reduction,
    .grad = "g0 i0 o0", .cpu = norm_kernels, .back_cpu = norm_back_kernels },
  { .name = "moments",
    .doc = "Mean and variance (divided by the number of elements) over axes; of bools in float32, of other integers "
           "truncated. Both have gradients.",
    .in = "data", .out = "output0 output1", .param = moments_params, .param_size = sizeof(struct moments),
    .shape = moments_shape, .type = moments_type, .reduction = moments_reduction,
    .grad = "g0 g1 i0 o0", .cpu = moments_kernels, .back_cpu = moments_back_kernels, .flags = OP_NAMED_INPUT },
  { .name = "argmax", ARG_EXTREME,
    .doc = "Place of the first largest element, counted from 0, in data's dtype or `dtype`. No gradient flows.",
    .param = arg_params, .check = arg_check, .cpu = argmax_kernels },
  { .name = "argmin", ARG_EXTREME,
    .doc = "Place of the first smallest element, counted from 0, in data's dtype or `dtype`. No gradient flows.",
    .param = arg_params, .check = arg_check, .cpu = argmin_kernels },
  { .name = "argmax_channel", ARG_EXTREME,
    .doc = "Place of the first largest element along axis 1, in data's dtype or `dtype`. No gradient flows.",
    .param = channel_params, .check = channel_check, .cpu = argmax_kernels },
  { 0 }
};
