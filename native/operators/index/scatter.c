/* scatter.c - elements and rows selected by index arrays, with reductions of repeated ones:
** _contrib_take_along_axis, _contrib_scatter_along_axis, _contrib_scatter_nd.
**
** Along an axis, element (i, j, k) of indices names place (i, index, k) of data for axis 1; the
** other sizes of indices are at most those of data. scatter_nd takes coordinates as gather_nd does:
** indices (M, ...) has M per place, and a place carries a row. Negative indices count from the end.
** Updates are taken in order, so that equal settings give equal bits.
*/
#include "kernel/strided_copy.h"
#include "operators/index/rows.h"
#include "op/op.h"

enum scatter_reduction { REPLACE, ADD, MULTIPLY, LARGEST, LEAST };

struct scatter { int64_t axis, reduction; };
#define REDUCTION \
  { "reduction", P_ENUM, offsetof(struct scatter, reduction), "none", \
    "what an update does to the element at its place", "none|add|mul|max|min" }
static const struct param take_params[] = {
  { "axis", P_INT, offsetof(struct scatter, axis), "0", "axis that the indices count along" }, { 0 }
};
static const struct param along_params[] = {
  { "axis", P_INT, offsetof(struct scatter, axis), "0", "axis that the indices count along" },
  REDUCTION, { 0 }
};
static const struct param nd_params[] = { REDUCTION, { 0 } };

static enum scatter_reduction reduction_in(const void *param)
{
  return (enum scatter_reduction)((const struct scatter *)param)->reduction;
}

/* -- one update -------------------------------------------------------------------------------- */

/* to[x] = reduction of to[x] and from[x], for n elements. */
#define REDUCE(T, SUM, PRODUCT) \
static void reduce_##T(enum scatter_reduction how, T *to, const T *from, int64_t n) \
{ \
  for (int64_t i = 0; i < n; i++) { \
    const T a = to[i], b = from[i]; \
    switch (how) { \
    case REPLACE: to[i] = b; break; \
    case ADD: to[i] = (T)((SUM)a + (SUM)b); break; \
    case MULTIPLY: to[i] = (T)((PRODUCT)a * (PRODUCT)b); break; \
    case LARGEST: to[i] = a > b || a != a ? a : b; break; \
    case LEAST: to[i] = a < b || a != a ? a : b; break; \
    } \
  } \
}
REDUCE(float, float, float)
REDUCE(double, double, double)
REDUCE(uint8_t, uint32_t, uint32_t)
REDUCE(int8_t, uint32_t, uint32_t)
REDUCE(int32_t, uint32_t, uint32_t)
REDUCE(int64_t, uint64_t, uint64_t)

static void reduce_rows(enum scatter_reduction how, int dtype, void *to, const void *from,
  int64_t n)
{
  uint8_t *bits = to;
  switch (dtype) {
  case TY_F32: reduce_float(how, to, from, n); break;
  case TY_F64: reduce_double(how, to, from, n); break;
  case TY_I8: reduce_int8_t(how, to, from, n); break;
  case TY_I32: reduce_int32_t(how, to, from, n); break;
  case TY_I64: reduce_int64_t(how, to, from, n); break;
  default: reduce_uint8_t(how, to, from, n);
  }
  if (dtype == TY_BOOL)
    for (int64_t i = 0; i < n; i++) bits[i] = bits[i] != 0;
}

/* -- places along an axis ---------------------------------------------------------------------- */

struct indexed_axis {
  const struct operand *index;
  int axis, ndim;
  int64_t stride[TY_MAXDIM];                          /* of data, in elements */
  int64_t size;                                       /* of data along the axis */
};

static struct indexed_axis make_indexed_axis(const struct call *c, const struct operand *index,
  const ty_desc *data)
{
  struct indexed_axis a = { index, axis_in(((const struct scatter *)c->param)->axis, data->ndim),
    data->ndim, { 0 }, 0 };
  fill_strides(data, a.stride);
  a.size = data->dim[a.axis];
  return a;
}

static int check_along(const struct indexed_axis *a)
{
  const int64_t n = desc_count(&a->index->d);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = index_of(a->index, i);
    if (j < -a->size || j >= a->size)
      return fail(TY_ERUN, "index %lld is out of range on axis %d; expected %lld to %lld",
          (long long)j, a->axis, (long long)-a->size, (long long)a->size - 1);
  }
  return TY_OK;
}

/* Returns the element of data that element i of the indices names. */
static int64_t along_offset(const struct indexed_axis *a, int64_t i)
{
  int64_t at = 0, rest = i;
  for (int k = a->ndim - 1; k >= 0; k--) {
    int64_t j = rest % a->index->d.dim[k];
    rest /= a->index->d.dim[k];
    if (k == a->axis) {
      j = index_of(a->index, i);
      if (j < 0) j += a->size;
    }
    at += j * a->stride[k];
  }
  return at;
}

struct take_work { const struct indexed_axis *a; const char *from; char *to; size_t size; };

static void take_body(int64_t begin, int64_t end, void *context)
{
  const struct take_work *w = context;
  for (int64_t i = begin; i < end; i++)
    memcpy(elements_at(w->to, i, w->size),
        elements_at(w->from, along_offset(w->a, i), w->size), w->size);
}

static void take_along(const struct indexed_axis *a, const void *from, void *to, size_t size)
{
  struct take_work w = { a, from, to, size };
  parallel_for(desc_count(&a->index->d), NS_CALL, take_body, &w);
}

/* -- _contrib_take_along_axis ------------------------------------------------------------------ */

/* Checks that the index has data's rank and, but along the axis, at most its sizes. */
static int check_index(struct infer *s, const ty_desc *data, const ty_desc *index)
{
  int axis;
  if (!data->ndim || !index->ndim) return TY_OK;
  TRY(infer_axis(s, ((const struct scatter *)s->param)->axis, data->ndim, &axis));
  if (index->ndim != data->ndim)
    return infer_fail(s, TY_ESHAPE, index, "it has %d dimensions, data has %d", index->ndim,
        data->ndim);
  for (int k = 0; k < data->ndim; k++)
    if (k != axis && data->dim[k] && index->dim[k] > data->dim[k])
      return infer_fail(s, TY_ESHAPE, index, "axis %d has size %lld, of data %lld", k,
          (long long)index->dim[k], (long long)data->dim[k]);
  return TY_OK;
}

static int take_shape(struct infer *s)
{
  TRY(check_index(s, &s->in[0], &s->in[1]));
  return shape_both(s, &s->in[1], &s->out[0]);
}

static int take_type(struct infer *s) { return type_both(s, &s->in[0], &s->out[0]); }

static int take_run(struct call *c)
{
  struct indexed_axis a = make_indexed_axis(c, &c->in[1], &c->in[0].d);
  TRY(check_along(&a));
  take_along(&a, c->in[0].p, c->out[0].p, dtype_size(c->in[0].d.dtype));
  return TY_OK;
}

/* Computes the gradients. in: head gradient, indices. */
static int take_back(struct call *c)
{
  struct operand *dx = &c->out[0];
  TRY(move_zeros(c, 1));
  if (!dx->p) return TY_OK;
  struct indexed_axis a = make_indexed_axis(c, &c->in[1], &dx->d);
  const size_t size = dtype_size(dx->d.dtype);
  TRY(check_along(&a));
  if (!(c->add & 1)) TRY(move_zeros(c, 0));
  for (int64_t i = 0, n = desc_count(&a.index->d); i < n; i++)
    reduce_rows(ADD, dx->d.dtype, elements_at(dx->p, along_offset(&a, i), size),
        elements_at(c->in[0].p, i, size), 1);
  return TY_OK;
}

MOVE_KERNEL(take_kernels, take_run)
static const struct kernel take_back_kernels[] = {
  { .name = "add elements", .run = take_back, .types = T_FLOAT | T_INT, .add = 1 }, { 0 }
};

/* -- _contrib_scatter_along_axis --------------------------------------------------------------- */

/* Infers the shapes. in: data, indices, updates. */
static int along_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  TRY(check_index(s, &s->in[0], &s->in[1]));
  return shape_both(s, &s->in[1], &s->in[2]);
}

static int scatter_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  TRY(type_both(s, &s->in[2], &s->out[0]));
  return type_both(s, &s->in[0], &s->out[0]);
}

/* Returns what the gradient reads; NULL: max, min and products have no gradient. */
static const char *scatter_grad(const void *param)
{
  const enum scatter_reduction how = reduction_in(param);
  return how == REPLACE || how == ADD ? "g0 i1" : NULL;
}

static int along_run(struct call *c)
{
  struct operand *y = &c->out[0];
  struct indexed_axis a = make_indexed_axis(c, &c->in[1], &y->d);
  const size_t size = dtype_size(y->d.dtype);
  const enum scatter_reduction how = reduction_in(c->param);
  TRY(check_along(&a));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  for (int64_t i = 0, n = desc_count(&a.index->d); i < n; i++)
    reduce_rows(how, y->d.dtype, elements_at(y->p, along_offset(&a, i), size),
        elements_at(c->in[2].p, i, size), 1);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, indices. Replaced elements have none; of several
** updates of an element only the last one has a gradient. */
static int along_back(struct call *c)
{
  const struct operand *g = &c->in[0];
  char *data = c->out[0].p, *updates = c->out[2].p;
  struct indexed_axis a = make_indexed_axis(c, &c->in[1], &g->d);
  const size_t size = dtype_size(g->d.dtype);
  const int64_t n = desc_count(&a.index->d);
  const bool replaces = reduction_in(c->param) == REPLACE;
  TRY(check_along(&a));
  TRY(move_zeros(c, 1));
  if (updates && !replaces) take_along(&a, g->p, updates, size);
  if (data) TRY(move_bytes(c->device, data, g->p, desc_bytes(&g->d)));
  if (!replaces) return TY_OK;
  char *left = data ? data : c->tmp;                  /* the gradient that no update has taken */
  if (!data) memcpy(left, g->p, desc_bytes(&g->d));
  for (int64_t i = n - 1; i >= 0; i--) {
    char *from = elements_at(left, along_offset(&a, i), size);
    if (updates) memcpy(elements_at(updates, i, size), from, size);
    memset(from, 0, size);
  }
  return TY_OK;
}

/* -- _contrib_scatter_nd ----------------------------------------------------------------------- */

/* Infers the shapes. in: data, indices, updates. */
static int nd_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  return indexed_rows_shape(s, &s->in[0], &s->in[1], &s->in[2]);
}

struct rows_at { const struct operand *index; int64_t m, n, row; const int64_t *dim; };

static struct rows_at make_rows_at(const struct operand *index, const ty_desc *array)
{
  struct rows_at r = { index, index->d.dim[0], product_of(&index->d, 1, index->d.ndim), 1,
    array->dim };
  r.row = product_of(array, (int)r.m, array->ndim);
  return r;
}

/* Returns the offset of the row at place i; -1: it is out of range. */
static int64_t find_row_offset(const struct rows_at *r, int64_t i)
{
  int64_t at = 0;
  for (int64_t k = 0; k < r->m; k++) {
    int64_t j = index_of(r->index, k * r->n + i);
    if (j < -r->dim[k] || j >= r->dim[k]) return -1;
    at = at * r->dim[k] + (j < 0 ? j + r->dim[k] : j);
  }
  return at * r->row;
}

static int check_rows(const struct rows_at *r)
{
  for (int64_t i = 0; i < r->n; i++)
    if (find_row_offset(r, i) < 0)
      return fail(TY_ERUN, "the index at position %lld is out of range", (long long)i);
  return TY_OK;
}

static int nd_run(struct call *c)
{
  struct operand *y = &c->out[0];
  struct rows_at r = make_rows_at(&c->in[1], &y->d);
  const size_t size = dtype_size(y->d.dtype);
  const enum scatter_reduction how = reduction_in(c->param);
  TRY(check_rows(&r));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  for (int64_t i = 0; i < r.n; i++)
    reduce_rows(how, y->d.dtype, elements_at(y->p, find_row_offset(&r, i), size),
        elements_at(c->in[2].p, i * r.row, size), r.row);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, indices. */
static int nd_back(struct call *c)
{
  const struct operand *g = &c->in[0];
  char *data = c->out[0].p, *updates = c->out[2].p;
  struct rows_at r = make_rows_at(&c->in[1], &g->d);
  const size_t size = dtype_size(g->d.dtype), bytes = (size_t)r.row * size;
  const bool replaces = reduction_in(c->param) == REPLACE;
  TRY(check_rows(&r));
  TRY(move_zeros(c, 1));
  if (data) TRY(move_bytes(c->device, data, g->p, desc_bytes(&g->d)));
  char *left = !replaces ? g->p : data ? data : c->tmp;
  if (left == c->tmp) memcpy(left, g->p, desc_bytes(&g->d));
  for (int64_t i = r.n - 1; i >= 0; i--) {
    char *from = elements_at(left, find_row_offset(&r, i), size);
    if (updates) memcpy(updates + i * (int64_t)bytes, from, bytes);
    if (replaces) memset(from, 0, bytes);
  }
  return TY_OK;
}

/* Returns the bytes of a copy of the head gradient for the gradient of updates, if that of data, in
** which it is computed otherwise, is unused. */
static size_t back_scratch(const struct call *c)
{
  return c->out[0].p ? 0 : desc_bytes(&c->in[0].d);
}

#define SCATTER_KERNELS(table, function) \
  static const struct kernel table[] = { \
    { .name = "elements", .run = function, .types = T_FLOAT | T_INT }, { 0 } };
#define SCATTER_BACK(table, function) \
  static const struct kernel table[] = { { .name = "elements", .run = function, \
    .types = T_FLOAT | T_INT, .scratch = back_scratch }, { 0 } };
SCATTER_KERNELS(along_kernels, along_run)
SCATTER_BACK(along_back_kernels, along_back)
SCATTER_KERNELS(nd_kernels, nd_run)
SCATTER_BACK(nd_back_kernels, nd_back)

const struct op op_scatter[] = {
  { .name = "_contrib_take_along_axis",
    .doc = "Elements of data at the places along an axis that indices, of the same rank, name; the result has their "
           "shape. Gradients of one place add up; indices get none.",
    .in = "data indices", .param = take_params, .param_size = sizeof(struct scatter), .shape = take_shape,
    .type = take_type, .grad = "g0 i1", .cpu = take_kernels, .back_cpu = take_back_kernels },
  { .name = "_contrib_scatter_along_axis",
    .doc = "data with updates written to the places along an axis that indices, of the shape of updates, name: in place of "
           "what is there, or added, multiplied, the larger or the smaller. Gradients where updates replace or are added.",
    .in = "data indices updates", .param = along_params, .param_size = sizeof(struct scatter), .shape = along_shape,
    .type = scatter_type, .grad_of = scatter_grad, .inplace = "0=0", .cpu = along_kernels, .back_cpu = along_back_kernels },
  { .name = "_contrib_scatter_nd",
    .doc = "data with the rows of updates written to the places that indices (M, ...) name: in place of what is there, or "
           "added, multiplied, the larger or the smaller. Gradients where updates replace or are added.",
    .in = "data indices updates", .param = nd_params, .param_size = sizeof(struct scatter), .shape = nd_shape,
    .type = scatter_type, .grad_of = scatter_grad, .inplace = "0=0", .cpu = nd_kernels, .back_cpu = nd_back_kernels },
  { 0 }
};
