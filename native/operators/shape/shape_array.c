/* shape_array.c - results that depend on a shape alone: shape_array, size_array,
** _contrib_index_array, _contrib_arange_like; also diag and _histogram. */
#include "kernel/strided_copy.h"
#include "op/op.h"

/* -- shape_array, size_array ------------------------------------------------------------------- */

static int shape_shape(struct infer *s)
{
  int64_t n = s->in[0].ndim; /* 0 while it is unknown */
  return shape_is(s, &s->out[0], 1, &n);
}

static int size_shape(struct infer *s) { return shape_is(s, &s->out[0], 1, (int64_t[]){ 1 }); }
static int whole_type(struct infer *s) { return type_is(s, &s->out[0], TY_I64); }

static int shape_run(struct call *c)
{
  int64_t *y = c->out[0].p;
  for (int i = 0; i < c->in[0].d.ndim; i++)
    TRY(move_fill(c->device, y + i, &c->in[0].d.dim[i], sizeof *y, 1));
  return TY_OK;
}

static int size_run(struct call *c)
{
  int64_t n = desc_count(&c->in[0].d);
  return move_fill(c->device, c->out[0].p, &n, sizeof n, 1);
}

MOVE_ANYWHERE(shape_kernels, shape_run)
MOVE_ANYWHERE(size_kernels, size_run)

/* -- _contrib_index_array ---------------------------------------------------------------------- */

struct index_array { struct dims axes; };
static const struct param index_array_params[] = {
  { "axes", P_SHAPE, offsetof(struct index_array, axes), "None", "which coordinates, in this order; None: all of them", NULL,
    NULL, 1 },
  { 0 }
};

static int index_array_shape(struct infer *s)
{
  const struct index_array *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t dim[TY_MAXDIM + 1];
  int axis;
  if (!in->ndim) return TY_OK;
  for (int i = 0; i < p->axes.n; i++) TRY(infer_axis(s, p->axes.d[i], in->ndim, &axis));
  memcpy(dim, in->dim, sizeof in->dim);
  dim[in->ndim] = p->axes.n >= 0 ? p->axes.n : in->ndim;
  return shape_is(s, &s->out[0], in->ndim + 1, dim);
}

static int index_array_run(struct call *c)
{
  const struct index_array *p = c->param;
  const ty_desc *d = &c->in[0].d;
  int64_t stride[TY_MAXDIM], n = desc_count(d), width = p->axes.n >= 0 ? p->axes.n : d->ndim,
                             *y = c->out[0].p;
  fill_strides(d, stride);
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < width; k++) {
      int64_t axis = p->axes.n < 0 ? k : axis_in(p->axes.d[k], d->ndim);
      *y++ = i / stride[axis] % d->dim[axis];
    }
  return TY_OK;
}

MOVE_KERNEL(index_array_kernels, index_array_run)

/* -- _contrib_arange_like ---------------------------------------------------------------------- */

struct count_up { double start, step; int64_t repeat; const char *ctx; int64_t axis; };
static const struct param range_params[] = {
  { "start",  P_FLOAT, offsetof(struct count_up, start),  "0",    "first value" },
  { "step",   P_FLOAT, offsetof(struct count_up, step),   "1",    "distance between values" },
  { "repeat", P_INT,   offsetof(struct count_up, repeat), "1",    "how often each value comes", NULL, "[1,2147483647]" },
  { "ctx",    P_TEXT,  offsetof(struct count_up, ctx),    "",     "device of an imperative call, as text" },
  { "axis",   P_INT,   offsetof(struct count_up, axis),   "None",
    "count along this axis only; None: all elements, in data's shape", NULL, NULL, 1 },
  { 0 }
};

/* Fails if data's integer type cannot hold the values; only whole numbers from 0 on are checked. A
** float type rounds them, as in _arange. */
static int range_fits(struct infer *s)
{
  const struct count_up *p = s->param;
  const ty_desc *in = &s->in[0];
  bool inside = p->axis >= -in->ndim && p->axis < in->ndim;
  int64_t n = p->axis == NONE ? product_of(in, 0, in->ndim)
      : inside                ? in->dim[axis_in(p->axis, in->ndim)]
                              : 0;
  double last = p->start + (double)((n - 1) / p->repeat) * p->step, most = MAX(p->start, last);
  bool whole = p->start == floor(p->start) && p->step == floor(p->step);
  if (dtype_float(in->dtype) || n < 1 || !whole) return TY_OK;
  if (MIN(p->start, last) < 0 || most >= (double)INT64_MAX) return TY_OK;
  return positions_fit(s, in, in->dtype, (int64_t)most + 1, "Cast data to a type that does");
}

static int range_shape(struct infer *s)
{
  const struct count_up *p = s->param;
  int axis;
  if (s->in[0].ndim) TRY(range_fits(s));
  if (p->axis == NONE) return shape_both(s, &s->in[0], &s->out[0]);
  if (!s->in[0].ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, s->in[0].ndim, &axis));
  return shape_is(s, &s->out[0], 1, &s->in[0].dim[axis]);
}

static int range_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return s->in[0].ndim ? range_fits(s) : TY_OK;
}

static int range_run(struct call *c)
{
  const struct count_up *p = c->param;
  const struct operand *y = &c->out[0];
  size_t size = dtype_size(y->d.dtype);
  int64_t n = desc_count(&y->d);
  double start = p->start, step = p->step;
  if (!dtype_float(y->d.dtype)) start = trunc(start), step = trunc(step);
  for (int64_t i = 0; i < n; i++)
    set_number(elements_at(y->p, i, size), y->d.dtype, start + (double)(i / p->repeat) * step);
  return TY_OK;
}

MOVE_KERNEL(range_kernels, range_run)

/* -- diag: the k-th diagonal of a matrix, or a matrix with a given diagonal -------------------- */

struct diag { int64_t k, axis1, axis2; };
static const struct param diag_params[] = {
  { "k",     P_INT, offsetof(struct diag, k),     "0",
    "which diagonal: above the main one if positive, below if negative", NULL, SIZES_RANGE },
  { "axis1", P_INT, offsetof(struct diag, axis1), "0", "axis of the rows; negative counts from the end" },
  { "axis2", P_INT, offsetof(struct diag, axis2), "1", "axis of the columns" },
  { 0 }
};

static int64_t diagonal_length(int64_t rows, int64_t cols, int64_t k)
{
  return k < 0 ? MIN(rows + k, cols) : MIN(rows, cols - k);
}

static int diag_shape(struct infer *s)
{
  const struct diag *p = s->param;
  const ty_desc *in = &s->in[0];
  int64_t dim[TY_MAXDIM];
  int a, b, n = 0;
  if (!in->ndim) return TY_OK;
  if (in->ndim == 1) {
    dim[0] = dim[1] = in->dim[0] ? in->dim[0] + (p->k < 0 ? -p->k : p->k) : 0;
    return shape_is(s, &s->out[0], 2, dim);
  }
  TRY(infer_axis(s, p->axis1, in->ndim, &a));
  TRY(infer_axis(s, p->axis2, in->ndim, &b));
  if (a == b) return infer_fail(s, TY_EVALUE, NULL, "axis1 and axis2 are the same axis %d", a);
  for (int i = 0; i < in->ndim; i++)
    if (i != a && i != b) dim[n++] = in->dim[i];
  dim[n] = in->dim[a] && in->dim[b] ? diagonal_length(in->dim[a], in->dim[b], p->k) : 0;
  if (in->dim[a] && in->dim[b] && dim[n] < 1)
    return infer_fail(s, TY_EVALUE, in, "diagonal %lld is outside a matrix of %lld x %lld",
        (long long)p->k, (long long)in->dim[a], (long long)in->dim[b]);
  return shape_is(s, &s->out[0], n + 1, dim);
}

/* Sets m to the move from the diagonal of an array d to a dense array, and *at to the index of the
** diagonal's first element. */
static void diag_nest(const struct diag *p, const ty_desc *d, struct move *m, int64_t *at)
{
  int a = axis_in(p->axis1, d->ndim),
      b = axis_in(p->axis2, d->ndim);
  int64_t stride[TY_MAXDIM], n = diagonal_length(d->dim[a], d->dim[b], p->k), to = n;
  fill_strides(d, stride);
  for (int i = 0; i < d->ndim; i++)
    if (i != a && i != b) to *= d->dim[i];
  for (int i = 0; i < d->ndim; i++) {
    if (i == a || i == b) continue;
    to /= d->dim[i];
    move_axis(m, d->dim[i], to, stride[i]);
  }
  move_axis(m, n, 1, stride[a] + stride[b]);
  *at = p->k < 0 ? -p->k * stride[a] : p->k * stride[b];
}

/* Copies the diagonal of `wide` to `thin` or, if `put`, from `thin` into `wide`, 0 elsewhere. */
static int move_diagonal(const struct call *c, const struct diag *p, const ty_desc *wide_d,
    void *wide, void *thin, bool put)
{
  struct move m = { 0 };
  size_t size = dtype_size(wide_d->dtype);
  int64_t at;
  diag_nest(p, wide_d, &m, &at);
  if (!put) return move_run(c->device, &m, thin, elements_at(wide, at, size), size);
  for (int i = 0; i < m.n; i++) {
    int64_t t = m.to[i];
    m.to[i] = m.from[i];
    m.from[i] = t;
  }
  TRY(move_zero(c->device, wide, desc_bytes(wide_d)));
  return move_run(c->device, &m, elements_at(wide, at, size), thin, size);
}

static int diag_run(struct call *c)
{
  const struct diag *p = c->param, square = { p->k, 0, 1 };
  if (c->in[0].d.ndim == 1)
    return move_diagonal(c, &square, &c->out[0].d, c->out[0].p, c->in[0].p, true);
  return move_diagonal(c, p, &c->in[0].d, c->in[0].p, c->out[0].p, false);
}

static int diag_back(struct call *c)
{
  const struct diag *p = c->param, square = { p->k, 0, 1 };
  if (!c->out[0].p) return TY_OK;
  if (c->out[0].d.ndim == 1)
    return move_diagonal(c, &square, &c->in[0].d, c->in[0].p, c->out[0].p, false);
  return move_diagonal(c, p, &c->out[0].d, c->out[0].p, c->in[0].p, true);
}

MOVE_ANYWHERE(diag_kernels, diag_run)
MOVE_ANYWHERE(diag_back_kernels, diag_back)

/* -- _histogram -------------------------------------------------------------------------------- */

struct histogram { int64_t bin_cnt; struct reals range; };
static const struct param histogram_params[] = {
  { "bin_cnt", P_INT,    offsetof(struct histogram, bin_cnt), "None",
    "number of equal bins; None: the edges are the second input", NULL, NULL, 1 },
  { "range",   P_FLOATS, offsetof(struct histogram, range),   "None", "lower and upper end of the bins, with bin_cnt",
    NULL, NULL, 1 },
  { 0 }
};

static const char *histogram_in(const void *p)
{
  return ((const struct histogram *)p)->bin_cnt == NONE ? "data bins" : "data";
}

static int histogram_check(void *param)
{
  const struct histogram *p = param;
  if (p->bin_cnt == NONE) return TY_OK;
  NEED(p->bin_cnt > 0, TY_EVALUE, "parameter bin_cnt: expected 1 or more, got %lld",
      (long long)p->bin_cnt);
  NEED(p->range.n == 2 && p->range.d[0] < p->range.d[1], TY_EVALUE,
      "parameter range: expected two ends, the lower one first");
  return TY_OK;
}

static int histogram_shape(struct infer *s)
{
  const struct histogram *p = s->param;
  int64_t edges = p->bin_cnt == NONE ? 0 : p->bin_cnt + 1, bins;
  if (s->nin > 1 && s->in[1].ndim) {
    if (s->in[1].ndim != 1)
      return infer_fail(s, TY_ESHAPE, &s->in[1], "expected 1 dimension, got %d", s->in[1].ndim);
    edges = s->in[1].dim[0];
    if (edges == 1) return infer_fail(s, TY_ESHAPE, &s->in[1], "expected at least 2 edges, got 1");
  }
  bins = edges ? edges - 1 : 0;
  TRY(shape_is(s, &s->out[0], 1, &bins));
  return shape_is(s, &s->out[1], 1, &edges);
}

static int histogram_type(struct infer *s)
{
  TRY(type_is(s, &s->out[0], TY_I64));
  if (s->nin > 1) TRY(type_both(s, &s->in[0], &s->in[1]));
  return type_both(s, &s->in[0], &s->out[1]);
}

/* Returns the bin that contains v; -1: none. A bin includes its lower edge, the last one also its
** upper edge. */
static int64_t find_bin(const double *edge, int64_t bins, double v)
{
  int64_t low = 0, high = bins;
  if (!(v >= edge[0] && v <= edge[bins])) return -1;
  while (high - low > 1) {
    int64_t middle = (low + high) / 2;
    if (v >= edge[middle])
      low = middle;
    else
      high = middle;
  }
  return low;
}

static size_t histogram_scratch(const struct call *c)
{
  return sizeof(double) * (size_t)(desc_count(&c->out[1].d) + 1);
}

static int histogram_run(struct call *c)
{
  const struct histogram *p = c->param;
  int64_t bins = desc_count(&c->out[0].d), n = desc_count(&c->in[0].d), *count = c->out[0].p;
  double *edge = c->tmp;
  struct operand one = { NULL, c->out[1].d, NULL };
  size_t size = dtype_size(one.d.dtype);
  for (int64_t i = 0; i <= bins; i++) { /* edges are rounded to data's dtype */
    uint64_t v = 0;
    one.p = c->out[1].p ? elements_at(c->out[1].p, i, size) : &v;
    set_number(one.p, one.d.dtype,
        c->nin > 1 ? real_of(&c->in[1], i)
                   : p->range.d[0] + (double)i * (p->range.d[1] - p->range.d[0]) / (double)bins);
    edge[i] = real_of(&one, 0);
  }
  if (!count) return TY_OK;
  memset(count, 0, sizeof *count * (size_t)bins);
  for (int64_t i = 0; i < n; i++) {
    int64_t bin = find_bin(edge, bins, real_of(&c->in[0], i));
    if (bin >= 0) count[bin]++;
  }
  return TY_OK;
}

static const struct kernel histogram_kernels[] = {
  { .name = "count", .run = histogram_run, .types = T_ANY, .scratch = histogram_scratch }, { 0 }
};

/* -- rows -------------------------------------------------------------------------------------- */

const struct op op_shape_array[] = {
  { .name = "shape_array", .alias = "_npx_shape_array",
    .doc = "The dims of data as int64. No gradient flows.",
    .in = "data", .shape = shape_shape, .type = whole_type, .flags = OP_ZERO_GRAD, .cpu = shape_kernels },
  { .name = "size_array",
    .doc = "The number of elements of data as one int64. No gradient flows.",
    .in = "data", .shape = size_shape, .type = whole_type, .flags = OP_ZERO_GRAD, .cpu = size_kernels },
  { .name = "_contrib_index_array",
    .doc = "For each element of data its coordinates, as int64 along a new last axis. No gradient flows.",
    .in = "data", .param = index_array_params, .param_size = sizeof(struct index_array), .shape = index_array_shape,
    .type = whole_type,
    .flags = OP_ZERO_GRAD | OP_NAMED_INPUT, .cpu = index_array_kernels },
  { .name = "_contrib_arange_like", .alias = "_npx_arange_like",
    .doc = "start, start + step, ... in the shape of data, or as many as one of its axes has. No gradient flows.",
    .in = "data", .param = range_params, .param_size = sizeof(struct count_up), .shape = range_shape,
    .type = range_type, .flags = OP_ZERO_GRAD, .cpu = range_kernels },
  { .name = "diag",
    .doc = "The k-th diagonal along two axes as the last axis; of a vector, the matrix that has it as its k-th "
           "diagonal. The gradient goes back to the same places.",
    .in = "data", .param = diag_params, .param_size = sizeof(struct diag), .shape = diag_shape, .grad = "g0",
    .cpu = diag_kernels, .back_cpu = diag_back_kernels, .flags = OP_NAMED_INPUT },
  { .name = "_histogram", .alias = "_npi_histogram",
    .doc = "How many elements are in each bin, as int64, and the edges of the bins. What is outside is not counted. "
           "No gradient.",
    .in = "data bins", .in_of = histogram_in, .out = "output0 output1", .param = histogram_params,
    .param_size = sizeof(struct histogram),
    .check = histogram_check, .shape = histogram_shape, .type = histogram_type, .cpu = histogram_kernels },
  { 0 }
};
