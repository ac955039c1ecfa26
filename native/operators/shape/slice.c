/* slice.c - parts of an array: slice (crop), slice_axis, slice_like, _slice_assign,
** _slice_assign_scalar.
**
** A part is, per axis, a first index, a step and a length. It is one strided copy; the gradient
** copies the head gradient into zeros. Bounds follow Python's slices: negative ones count from the
** end, others are clipped. A part without elements is refused. Dims that are not cut are inferred
** in both directions.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

struct slice_part { int64_t first[TY_MAXDIM], step[TY_MAXDIM], n[TY_MAXDIM]; };

/* -- bounds ------------------------------------------------------------------------------------ */

struct slice_bounds { struct dims begin, end, step; };
#define BOUND_PARAMS(type) \
  { "begin", P_SHAPE, offsetof(type, b.begin), NULL, \
    "first index per leading axis; negative counts from the end, None is the start", \
    .none = NONE_ENTRY }, \
  { "end",   P_SHAPE, offsetof(type, b.end),   NULL, \
    "one after the last index; None is all to the end", .none = NONE_ENTRY }, \
  { "step",  P_SHAPE, offsetof(type, b.step),  "()", \
    "distance between indices, may be negative; None or missing: 1", .none = NONE_ENTRY }

static int64_t entry_at(const struct dims *d, int i) { return i < d->n ? d->d[i] : NONE; }

static int check_bounds(struct infer *s, const struct slice_bounds *b, int ndim)
{
  if (b->begin.n != b->end.n)
    return infer_fail(s, TY_EVALUE, NULL,
        "begin has %lld entries, end has %lld; expected equally many", (long long)b->begin.n,
        (long long)b->end.n);
  if (b->begin.n > ndim)
    return infer_fail(s, TY_EVALUE, &s->in[0], "begin has %lld entries for %d dimensions",
        (long long)b->begin.n, ndim);
  if (b->step.n > 0 && b->step.n != b->begin.n)
    return infer_fail(s, TY_EVALUE, NULL,
        "step has %lld entries, begin has %lld; expected equally many", (long long)b->step.n,
        (long long)b->begin.n);
  for (int i = 0; i < b->step.n; i++)
    if (b->step.d[i] == 0) return infer_fail(s, TY_EVALUE, NULL, "step of axis %d is 0", i);
  return TY_OK;
}

/* Sets entry i of p from the bounds of axis i, whose size is known. n = 0: the part is empty. */
static void cut_axis(const struct slice_bounds *b, int i, int64_t size, struct slice_part *p)
{
  int64_t step = entry_at(&b->step, i), begin = entry_at(&b->begin, i), end = entry_at(&b->end, i);
  if (step == NONE) step = 1;
  int64_t low = step > 0 ? 0 : -1,
          high = step > 0 ? size : size - 1; /* limits of begin and end */
  begin = begin == NONE ? (step > 0 ? low : high) : begin < 0 ? begin + size : begin;
  end = end == NONE ? (step > 0 ? high : low) : end < 0 ? MAX(end + size, -1) : end;
  begin = MAX(low, MIN(begin, high));
  end = MAX(low, MIN(end, high));
  p->first[i] = begin;
  p->step[i] = step;
  int64_t gap = step > 0 ? end - begin : begin - end,
          stride = step > 0 ? step
      : step == INT64_MIN   ? INT64_MAX
                            : -step;
  p->n[i] = gap > 0 ? (gap - 1) / stride + 1 : 0;
}

/* Returns whether the part has all of axis i. */
static bool whole_axis(const struct slice_bounds *b, int i)
{
  int64_t step = entry_at(&b->step, i), begin = entry_at(&b->begin, i), end = entry_at(&b->end, i);
  return (step == NONE || step == 1) && (begin == NONE || begin == 0) && end == NONE;
}

static void cut_all(const struct slice_bounds *b, const ty_desc *d, struct slice_part *p)
{
  for (int i = 0; i < d->ndim; i++) cut_axis(b, i, d->dim[i], p);
}

/* Returns the part's length along an axis of unknown size, assumed to contain the bounds; 0: it
** does not follow from them. */
static int64_t between_bounds(const struct slice_bounds *b, int i)
{
  int64_t step = entry_at(&b->step, i), begin = entry_at(&b->begin, i), end = entry_at(&b->end, i);
  if (step == NONE) step = 1;
  if (begin == NONE || end == NONE || (begin < 0) != (end < 0)) return 0;
  if (step <= 0 || end <= begin) return 0;
  return (end - begin - 1) / step + 1;
}

/* Infers the shapes of data and its part. Dims that are not cut are inferred both ways. */
static int part_shape(struct infer *s, const struct slice_bounds *b, ty_desc *data, ty_desc *out)
{
  struct slice_part p;
  int64_t dim[TY_MAXDIM];
  if (!data->ndim) return TY_OK;
  TRY(check_bounds(s, b, data->ndim));
  for (int i = 0; i < data->ndim; i++) {
    dim[i] = between_bounds(b, i);
    if (!data->dim[i]) continue;
    cut_axis(b, i, data->dim[i], &p);
    dim[i] = p.n[i];
    if (!dim[i])
      return infer_fail(s, TY_ESHAPE, data, "nothing is left of axis %d with size %lld", i,
          (long long)data->dim[i]);
  }
  TRY(shape_is(s, out, data->ndim, dim));
  for (int i = 0; i < data->ndim; i++)
    if (whole_axis(b, i)) TRY(shape_dim(s, data, i, out->dim[i]));
  return TY_OK;
}

/* -- moving parts ------------------------------------------------------------------------------ */

/* Copies part p of the array `data` to a dense array, or back. */
static int move_part(const struct call *c, const struct slice_part *p, const ty_desc *d, void *data,
    void *dense, bool back)
{
  struct move m = { 0 };
  int64_t stride[TY_MAXDIM], at = 0, inner = 1;
  size_t size = dtype_size(d->dtype);
  fill_strides(d, stride);
  for (int i = 0; i < d->ndim; i++) inner *= p->n[i], at += p->first[i] * stride[i];
  for (int i = 0; i < d->ndim; i++) {
    inner /= p->n[i];
    int64_t jump = p->n[i] > 1 ? p->step[i] * stride[i] : 0;
    if (back)
      move_axis(&m, p->n[i], jump, inner);
    else
      move_axis(&m, p->n[i], inner, jump);
  }
  void *part = elements_at(data, at, size);
  return move_run(c->device, &m, back ? part : dense, back ? dense : part, size);
}

static int take_part(struct call *c, const struct slice_part *p)
{
  return move_part(c, p, &c->in[0].d, c->in[0].p, c->out[0].p, false);
}

/* Computes the gradients: of data the head gradient in the part, 0 elsewhere; of a second input
** 0. */
static int put_part(
    struct call *c, const struct slice_part *p)
{
  const struct operand *dx = &c->out[0];
  TRY(move_zeros(c, 1));
  if (!dx->p) return TY_OK;
  if (desc_count(&dx->d) != desc_count(&c->in[0].d)) TRY(move_zeros(c, 0));
  return move_part(c, p, &dx->d, dx->p, c->in[0].p, true);
}

/* -- slice ------------------------------------------------------------------------------------- */

struct slice { struct slice_bounds b; };
static const struct param slice_params[] = { BOUND_PARAMS(struct slice), { 0 } };

static int slice_shape(struct infer *s)
{
  return part_shape(s, &((const struct slice *)s->param)->b, &s->in[0], &s->out[0]);
}

static int slice_run(struct call *c)
{
  struct slice_part p;
  cut_all(&((const struct slice *)c->param)->b, &c->in[0].d, &p);
  return take_part(c, &p);
}

static int slice_back(struct call *c)
{
  struct slice_part p;
  cut_all(&((const struct slice *)c->param)->b, &c->out[0].d, &p);
  return put_part(c, &p);
}

/* -- slice_axis -------------------------------------------------------------------------------- */

struct along { int64_t axis, begin, end; };
static const struct param along_params[] = {
  { "axis",  P_INT, offsetof(struct along, axis),  NULL, "axis that is cut; negative counts from the end" },
  { "begin", P_INT, offsetof(struct along, begin), NULL, "first index; negative counts from the end" },
  { "end",   P_INT, offsetof(struct along, end),   NULL, "one after the last index; None is all to the end", NULL,
    NULL, 1 },
  { 0 }
};

/* Returns index i, from the end if negative, in 0 .. size; -1: it is below, size + 1: above. */
static int64_t index_within(int64_t i, int64_t size)
{
  return i >= 0 ? MIN(i, size + 1) : i < -size ? -1 : i + size;
}

static void along_part(const struct along *p, const ty_desc *d, struct slice_part *out)
{
  int axis = axis_in(p->axis, d->ndim);
  for (int i = 0; i < d->ndim; i++) out->first[i] = 0, out->step[i] = 1, out->n[i] = d->dim[i];
  int64_t size = d->dim[axis], begin = index_within(p->begin, size),
          end = p->end == NONE ? size : index_within(p->end, size);
  out->first[axis] = begin;
  out->n[axis] = end - begin;
}

/* Returns the part's length along an axis of unknown size, assumed to contain the bounds; 0: it
** does not follow from them. */
static int64_t between_ends(const struct along *p)
{
  if (p->end == NONE) return p->begin < 0 ? -p->begin : 0;
  return (p->begin < 0) == (p->end < 0) ? MAX(p->end - p->begin, 0) : 0;
}

static int along_shape(struct infer *s)
{
  const struct along *p = s->param;
  ty_desc *in = &s->in[0];
  struct slice_part part;
  int axis;
  if (!in->ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, in->ndim, &axis));
  along_part(p, in, &part);
  int64_t size = in->dim[axis], begin = part.first[axis], end = begin + part.n[axis];
  if (size && (begin < 0 || begin >= end || end > size))
    return infer_fail(s, TY_EVALUE, in, "begin %lld and end %lld do not fit axis %d with size %lld",
        (long long)p->begin, p->end == NONE ? (long long)size : (long long)p->end, axis,
        (long long)size);
  if (!size) part.n[axis] = between_ends(p);
  TRY(shape_is(s, &s->out[0], in->ndim, part.n));
  for (int i = 0; i < in->ndim; i++)
    if (i != axis) TRY(shape_dim(s, in, i, s->out[0].dim[i]));
  return TY_OK;
}

static int along_run(struct call *c)
{
  struct slice_part p;
  along_part(c->param, &c->in[0].d, &p);
  return take_part(c, &p);
}

static int along_back(struct call *c)
{
  struct slice_part p;
  along_part(c->param, &c->out[0].d, &p);
  return put_part(c, &p);
}

/* -- slice_like -------------------------------------------------------------------------------- */

struct slice_like { struct dims axes; };
static const struct param like_params[] = {
  { "axes", P_SHAPE, offsetof(struct slice_like, axes), "()",
    "axes cut to the sizes of shape_like; empty: all of them. Negative counts from the end" },
  { 0 }
};

static int like_shape(struct infer *s)
{
  const struct slice_like *p = s->param;
  ty_desc *in = &s->in[0], *like = &s->in[1];
  int64_t dim[TY_MAXDIM];
  if (!in->ndim || !like->ndim) return TY_OK;
  if (p->axes.n <= 0 && in->ndim != like->ndim)
    return infer_fail(s, TY_ESHAPE, like, "it has %d dimensions, data has %d; list the axes to cut",
        like->ndim, in->ndim);
  memcpy(dim, in->dim, sizeof dim);
  for (int i = 0; i < (p->axes.n > 0 ? p->axes.n : in->ndim); i++) {
    int a = i, b = i;
    if (p->axes.n > 0) TRY(infer_axis(s, p->axes.d[i], in->ndim, &a));
    if (p->axes.n > 0) TRY(infer_axis(s, p->axes.d[i], like->ndim, &b));
    if (in->dim[a] && like->dim[b] > in->dim[a])
      return infer_fail(s, TY_ESHAPE, like, "size %lld of axis %d is more than data's %lld",
          (long long)like->dim[b], b, (long long)in->dim[a]);
    dim[a] = like->dim[b];
  }
  return shape_is(s, &s->out[0], in->ndim, dim);
}

static int like_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  if (s->in[1].dtype == TY_NODTYPE) s->in[1].dtype = s->in[0].dtype;
  return TY_OK;
}

/* Sets p to the part of size `small` at index 0 of each axis. */
static void part_at_corner(const ty_desc *small, struct slice_part *p)
{
  for (int i = 0; i < small->ndim; i++) p->first[i] = 0, p->step[i] = 1, p->n[i] = small->dim[i];
}

static int like_run(struct call *c)
{
  struct slice_part p;
  part_at_corner(&c->out[0].d, &p);
  return take_part(c, &p);
}

static int like_back(struct call *c)
{
  struct slice_part p;
  part_at_corner(&c->in[0].d, &p);
  return put_part(c, &p);
}

/* -- _slice_assign, _slice_assign_scalar ------------------------------------------------------- */

struct assign { struct slice_bounds b; double scalar; };
static const struct param assign_params[] = { BOUND_PARAMS(struct assign), { 0 } };
static const struct param assign_scalar_params[] = {
  { "scalar", P_FLOAT, offsetof(struct assign, scalar), "0", "the value to put there" },
  BOUND_PARAMS(struct assign),
  { 0 }
};

static int assign_shape(struct infer *s)
{
  const struct assign *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (s->nin > 1) return part_shape(s, &p->b, &s->in[0], &s->in[1]);
  ty_desc part = { 0 };
  return part_shape(s, &p->b, &s->in[0], &part);
}

static int assign_run(struct call *c)
{
  struct slice_part p;
  cut_all(&((const struct assign *)c->param)->b, &c->in[0].d, &p);
  TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->out[0].d)));
  return move_part(c, &p, &c->out[0].d, c->out[0].p, c->in[1].p, true);
}

static int assign_scalar_run(struct call *c)
{
  const struct assign *a = c->param;
  struct slice_part p;
  struct move m = { 0 };
  uint64_t value = 0;
  int64_t stride[TY_MAXDIM], at = 0;
  const ty_desc *d = &c->out[0].d;
  size_t size = dtype_size(d->dtype);
  cut_all(&a->b, d, &p);
  TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(d)));
  fill_strides(d, stride);
  set_number(&value, d->dtype, a->scalar);
  for (int i = 0; i < d->ndim; i++) {
    at += p.first[i] * stride[i];
    move_axis(&m, p.n[i], p.n[i] > 1 ? p.step[i] * stride[i] : 0, 0);
  }
  return move_set(c->device, &m, elements_at(c->out[0].p, at, size), &value, size);
}

/* -- rows -------------------------------------------------------------------------------------- */

MOVE_ANYWHERE(slice_kernels, slice_run)
MOVE_ANYWHERE(slice_back_kernels, slice_back)
MOVE_ANYWHERE(along_kernels, along_run)
MOVE_ANYWHERE(along_back_kernels, along_back)
MOVE_ANYWHERE(like_kernels, like_run)
MOVE_ANYWHERE(like_back_kernels, like_back)
MOVE_ANYWHERE(assign_kernels, assign_run)
MOVE_ANYWHERE(assign_scalar_kernels, assign_scalar_run)

const struct op op_slice[] = {
  { .name = "slice", .alias = "crop _npi_slice _npx_slice _sparse_slice",
    .doc = "The part of data between begin and end, every step-th element, on the leading axes. The gradient is at "
           "the same place in zeros.",
    .in = "data", .param = slice_params, .param_size = sizeof(struct slice), .shape = slice_shape,
    .grad = "g0", .cpu = slice_kernels, .back_cpu = slice_back_kernels },
  { .name = "slice_axis",
    .doc = "Elements begin to end - 1 of one axis. The gradient is at the same place in zeros.",
    .in = "data", .param = along_params, .param_size = sizeof(struct along), .shape = along_shape,
    .grad = "g0", .cpu = along_kernels, .back_cpu = along_back_kernels },
  { .name = "slice_like",
    .doc = "The leading corner of data, as large as shape_like on the given axes. shape_like gets no gradient.",
    .in = "data shape_like", .param = like_params, .param_size = sizeof(struct slice_like), .shape = like_shape,
    .type = like_type,
    .grad = "g0", .cpu = like_kernels, .back_cpu = like_back_kernels },
  { .name = "_slice_assign", .alias = "_crop_assign _npi_slice_assign",
    .doc = "lhs with the part between begin and end replaced by rhs. No gradient.",
    .in = "lhs rhs", .param = assign_params, .param_size = sizeof(struct assign), .shape = assign_shape,
    .inplace = "0=0", .cpu = assign_kernels },
  { .name = "_slice_assign_scalar", .alias = "_crop_assign_scalar _npi_slice_assign_scalar",
    .doc = "data with the part between begin and end set to a number. No gradient.",
    .in = "data", .param = assign_scalar_params, .param_size = sizeof(struct assign), .shape = assign_shape,
    .inplace = "0=0",
    .cpu = assign_scalar_kernels },
  { 0 }
};
