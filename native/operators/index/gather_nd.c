/* gather_nd.c - rows selected by arrays of coordinates: gather_nd, scatter_nd, _scatter_set_nd,
** _contrib_index_copy, _ravel_multi_index, _unravel_index.
**
** indices (M, ...) has M coordinates per place. A place is an element of the first M axes of an
** array; its row is everything on the other axes. Coordinates are checked at run time. gather_nd
** counts negative ones from the end; operators that write rows refuse them. If a place occurs
** repeatedly, the last row is written, and gradients are added in order.
*/
#include "kernel/strided_copy.h"
#include "operators/index/rows.h"
#include "op/op.h"

struct indexed_rows {
  const struct operand *index;
  int64_t m;                                          /* coordinates of a place */
  int64_t n;                                          /* places */
  int64_t row;                                        /* elements of a row */
  int64_t dim[TY_MAXDIM];
  size_t size;
};

static struct indexed_rows make_indexed_rows(const struct operand *index, const ty_desc *array)
{
  struct indexed_rows p = { index, index->d.dim[0], product_of(&index->d, 1, index->d.ndim), 1,
    { 0 }, dtype_size(array->dtype) };
  p.row = product_of(array, (int)p.m, array->ndim);
  memcpy(p.dim, array->dim, sizeof p.dim);
  return p;
}

static int64_t row_offset(const struct indexed_rows *p, int64_t i)
{
  int64_t at = 0;
  for (int64_t k = 0; k < p->m; k++) {
    int64_t j = index_of(p->index, k * p->n + i);
    at = at * p->dim[k] + (j < 0 ? j + p->dim[k] : j);
  }
  return at;
}

static int check_coordinates(const struct indexed_rows *p, bool negative)
{
  for (int64_t k = 0; k < p->m; k++)
    for (int64_t i = 0; i < p->n; i++) {
      int64_t j = index_of(p->index, k * p->n + i), low = negative ? -p->dim[k] : 0;
      if (j < low || j >= p->dim[k])
        return fail(TY_ERUN,
            "index %lld at position %lld is out of range on axis %lld; expected %lld to %lld",
            (long long)j, (long long)i, (long long)k, (long long)low, (long long)p->dim[k] - 1);
    }
  return TY_OK;
}

/* -- gather_nd --------------------------------------------------------------------------------- */

int indexed_rows_shape(struct infer *s, const ty_desc *array, const ty_desc *index, ty_desc *rows)
{
  int64_t dim[2 * TY_MAXDIM];
  int n = 0;
  if (!array->ndim || !index->ndim || !index->dim[0]) return TY_OK;
  if (index->dim[0] > array->ndim)
    return infer_fail(s, TY_ESHAPE, index, "%lld coordinates for an array of %d dimensions",
        (long long)index->dim[0], array->ndim);
  for (int i = 1; i < index->ndim; i++) dim[n++] = index->dim[i];
  for (int i = (int)index->dim[0]; i < array->ndim; i++) dim[n++] = array->dim[i];
  if (!n) dim[n++] = 1;
  return shape_is(s, rows, n, dim);
}

/* Returns the size of the longest axis that has coordinates. */
static int64_t longest_axis(const ty_desc *array, const ty_desc *index)
{
  int64_t n = 0;
  for (int i = 0; index->ndim && i < array->ndim && i < index->dim[0]; i++)
    n = MAX(n, array->dim[i]);
  return n;
}

static int64_t gather_coordinates(const struct infer *s, int *input)
{
  return longest_axis(&s->in[0], &s->in[1]);
}

static int gather_shape(struct infer *s)
{
  return indexed_rows_shape(s, &s->in[0], &s->in[1], &s->out[0]);
}
static int first_type(struct infer *s) { return type_both(s, &s->in[0], &s->out[0]); }

struct row_moves { const struct indexed_rows *p; char *array, *rows; };

static void gather_body(int64_t begin, int64_t end, void *context)
{
  const struct row_moves *r = context;
  size_t bytes = (size_t)r->p->row * r->p->size;
  for (int64_t i = begin; i < end; i++)
    memcpy(r->rows + i * (int64_t)bytes, r->array + row_offset(r->p, i) * (int64_t)bytes, bytes);
}

static void gather_rows(const struct indexed_rows *p, void *array, void *rows)
{
  struct row_moves r = { p, array, rows };
  parallel_for(p->n, elements_ns(MAX(p->row, p->m)), gather_body, &r);
}

static int gather_run(struct call *c)
{
  struct indexed_rows p = make_indexed_rows(&c->in[1], &c->in[0].d);
  TRY(check_coordinates(&p, true));
  gather_rows(&p, c->in[0].p, c->out[0].p);
  return TY_OK;
}

#define ADD(T) \
static void add_##T(const struct indexed_rows *p, T *array, const T *rows) \
{ \
  for (int64_t i = 0; i < p->n; i++, rows += p->row) { \
    T *to = array + row_offset(p, i) * p->row; \
    for (int64_t x = 0; x < p->row; x++) to[x] = (T)(to[x] + rows[x]); \
  } \
}
ADD(float)
ADD(double)
ADD(uint8_t)
ADD(uint32_t)
ADD(uint64_t)
ADD(bool)

/* Computes the gradients. in: head gradient, indices. */
static int gather_back(struct call *c)
{
  struct operand *dx = &c->out[0];
  TRY(move_zeros(c, 1));
  if (!dx->p) return TY_OK;
  struct indexed_rows p = make_indexed_rows(&c->in[1], &dx->d);
  TRY(check_coordinates(&p, true));
  if (!(c->add & 1)) TRY(move_zeros(c, 0));
  switch (dx->d.dtype) {
  case TY_F32: add_float(&p, dx->p, c->in[0].p); break;
  case TY_F64: add_double(&p, dx->p, c->in[0].p); break;
  case TY_I32: add_uint32_t(&p, dx->p, c->in[0].p); break;
  case TY_I64: add_uint64_t(&p, dx->p, c->in[0].p); break;
  case TY_BOOL: add_bool(&p, dx->p, c->in[0].p); break;
  default: add_uint8_t(&p, dx->p, c->in[0].p);
  }
  return TY_OK;
}

MOVE_KERNEL(gather_kernels, gather_run)
static const struct kernel gather_back_kernels[] = {
  { .name = "add rows", .run = gather_back, .types = T_FLOAT | T_INT, .add = 1 }, { 0 }
};

/* -- scatter_nd, _scatter_set_nd --------------------------------------------------------------- */

struct scatter_param { struct dims shape; };
static const struct param scatter_params[] = {
  { "shape", P_SHAPE, offsetof(struct scatter_param, shape), NULL, "shape of the result" },
  { 0 }
};

static int given_shape(struct infer *s, ty_desc *out)
{
  const struct scatter_param *p = s->param;
  for (int i = 0; i < p->shape.n; i++)
    if (p->shape.d[i] < 0)
      return infer_fail(s, TY_EVALUE, NULL, "shape: expected dims of 0 or more, got %lld",
          (long long)p->shape.d[i]);
  return shape_is(s, out, (int)MAX(p->shape.n, 0), p->shape.d);
}

static int scatter_shape(struct infer *s)
{
  TRY(given_shape(s, &s->out[0]));
  return indexed_rows_shape(s, &s->out[0], &s->in[1], &s->in[0]);
}

static int64_t scatter_coordinates(const struct infer *s, int *input)
{
  return longest_axis(&s->out[0], &s->in[1]);
}

static int64_t set_coordinates(const struct infer *s, int *input)
{
  *input = 2;
  return longest_axis(&s->out[0], &s->in[2]);
}

/* Infers the shapes. in: lhs, rhs, indices. */
static int set_shape(struct infer *s)
{
  TRY(given_shape(s, &s->out[0]));
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  return indexed_rows_shape(s, &s->out[0], &s->in[2], &s->in[1]);
}

static int set_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  TRY(type_both(s, &s->in[1], &s->out[0]));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int write_rows(const struct operand *index, const struct operand *rows, struct operand *out)
{
  struct indexed_rows p = make_indexed_rows(index, &out->d);
  size_t bytes = (size_t)p.row * p.size;
  TRY(check_coordinates(&p, false));
  for (int64_t i = 0; i < p.n; i++)
    memcpy((char *)out->p + row_offset(&p, i) * (int64_t)bytes,
        (char *)rows->p + i * (int64_t)bytes, bytes);
  return TY_OK;
}

static int scatter_run(struct call *c)
{
  TRY(move_zeros(c, 0));
  return write_rows(&c->in[1], &c->in[0], &c->out[0]);
}

/* Computes the gradients. in: head gradient, indices. */
static int scatter_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  if (!c->out[0].p) return TY_OK;
  struct indexed_rows p = make_indexed_rows(&c->in[1], &c->in[0].d);
  TRY(check_coordinates(&p, false));
  gather_rows(&p, c->in[0].p, c->out[0].p);
  return TY_OK;
}

static int set_run(struct call *c)
{
  TRY(move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->out[0].d)));
  return write_rows(&c->in[2], &c->in[1], &c->out[0]);
}

MOVE_KERNEL(scatter_kernels, scatter_run)
MOVE_KERNEL(scatter_back_kernels, scatter_back)
MOVE_KERNEL(set_kernels, set_run)

/* -- _contrib_index_copy ----------------------------------------------------------------------- */

/* Infers the shapes. in: old_tensor, index_vector, new_tensor. */
static int copy_shape(struct infer *s)
{
  ty_desc *old = &s->in[0], *index = &s->in[1], *rows = &s->in[2];
  TRY(shape_both(s, old, &s->out[0]));
  if (rows->ndim) TRY(shape_is(s, index, 1, rows->dim));
  if (!old->ndim) return TY_OK;
  int64_t dim[TY_MAXDIM];
  memcpy(dim, old->dim, sizeof dim);
  dim[0] = index->ndim ? index->dim[0] : 0;
  return shape_is(s, rows, old->ndim, dim);
}

static int64_t copy_rows(const struct infer *s, int *input)
{
  return s->in[0].ndim ? s->in[0].dim[0] : 0;
}

static int copy_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  TRY(type_both(s, &s->in[2], &s->out[0]));
  return type_both(s, &s->in[0], &s->out[0]);
}

static int64_t row_bytes(const ty_desc *d)
{
  return product_of(d, 1, d->ndim) * (int64_t)dtype_size(d->dtype);
}

static int check_rows(const struct operand *index, const ty_desc *d)
{
  for (int64_t i = 0; i < index->d.dim[0]; i++) {
    int64_t j = index_of(index, i);
    if (j < 0 || j >= d->dim[0])
      return fail(TY_ERUN, "index %lld at position %lld is out of range; expected 0 to %lld",
          (long long)j, (long long)i, (long long)d->dim[0] - 1);
  }
  return TY_OK;
}

static int copy_run(struct call *c)
{
  struct operand *y = &c->out[0], *index = &c->in[1];
  int64_t bytes = row_bytes(&y->d);
  TRY(check_rows(index, &y->d));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  for (int64_t i = 0; i < index->d.dim[0]; i++)
    memcpy(
        (char *)y->p + index_of(index, i) * bytes, (char *)c->in[2].p + i * bytes, (size_t)bytes);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, index_vector. */
static int copy_back(struct call *c)
{
  const struct operand *g = &c->in[0], *index = &c->in[1];
  int64_t bytes = row_bytes(&g->d);
  char *old = c->out[0].p, *rows = c->out[2].p;
  TRY(check_rows(index, &g->d));
  if (old) TRY(move_bytes(c->device, old, g->p, desc_bytes(&g->d)));
  TRY(move_zeros(c, 1));
  for (int64_t i = 0; i < index->d.dim[0]; i++) {
    int64_t at = index_of(index, i) * bytes;
    if (old) memset(old + at, 0, (size_t)bytes);
    if (rows) memcpy(rows + i * bytes, (char *)g->p + at, (size_t)bytes);
  }
  return TY_OK;
}

MOVE_KERNEL(copy_kernels, copy_run)
MOVE_KERNEL(copy_back_kernels, copy_back)

/* -- _ravel_multi_index, _unravel_index -------------------------------------------------------- */

struct ravel { struct dims shape; };
static const struct param ravel_params[] = {
  { "shape", P_SHAPE, offsetof(struct ravel, shape), "None",
    "shape of the array that the indices point into; the first size may be -1", NULL, NULL, 1 },
  { 0 }
};

static int need_shape(struct infer *s)
{
  const struct ravel *p = s->param;
  if (p->shape.n < 1)
    return infer_fail(
        s, TY_EVALUE, NULL, "parameter shape: expected the shape of the array, got nothing");
  for (int i = 0; i < p->shape.n; i++)
    if (p->shape.d[i] < 1 && (i || p->shape.d[i] != -1))
      return infer_fail(
          s, TY_EVALUE, NULL, "shape: expected positive dims, got %lld", (long long)p->shape.d[i]);
  return TY_OK;
}

/* Infers `columns` (dims of the array, ...) and `flat` (...). */
static int ravel_pair(struct infer *s, ty_desc *columns, ty_desc *flat)
{
  const struct ravel *p = s->param;
  int64_t dim[TY_MAXDIM + 1] = { p->shape.n };
  TRY(need_shape(s));
  int ndim = flat->ndim ? flat->ndim : columns->ndim - 1;
  if (ndim < 1) return TY_OK;
  for (int i = 0; i < ndim; i++) dim[i + 1] = flat->ndim ? flat->dim[i] : 0;
  TRY(shape_is(s, columns, ndim + 1, dim));
  return shape_is(s, flat, ndim, columns->dim + 1);
}

/* Fails if the type of data and result cannot represent the index of the last element. */
static int elements_fit(struct infer *s)
{
  const struct ravel *p = s->param;
  int64_t n = 1;
  for (int i = 0; i < p->shape.n; i++) n = size_times(n, MAX(p->shape.d[i], 0));
  return positions_fit(s, &s->in[0], s->in[0].dtype, n, "Cast data to a type that does");
}

static int ravel_type(struct infer *s)
{
  TRY(type_all(s));
  return elements_fit(s);
}

static int ravel_shape(struct infer *s)
{
  if (s->in[0].ndim == 1)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "expected 2 dimensions, one row per axis, got 1");
  TRY(ravel_pair(s, &s->in[0], &s->out[0]));
  return elements_fit(s);
}

static int unravel_shape(struct infer *s)
{
  if (s->in[0].ndim > 1)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "expected 1 dimension, got %d", s->in[0].ndim);
  TRY(shape_is(s, &s->in[0], 1, (int64_t[]){ 0 }));
  TRY(ravel_pair(s, &s->out[0], &s->in[0]));
  return elements_fit(s);
}

static void store_index(const struct operand *a, int64_t i, int64_t v)
{
  void *at = elements_at(a->p, i, dtype_size(a->d.dtype));
  if (a->d.dtype == TY_I64)
    *(int64_t *)at = v;
  else
    set_number(at, a->d.dtype, (double)v);
}

static int ravel_run(struct call *c)
{
  const struct ravel *p = c->param;
  int64_t n = desc_count(&c->out[0].d);
  for (int64_t i = 0; i < n; i++) {
    uint64_t at = 0;
    for (int64_t k = 0; k < p->shape.n; k++)
      at = at * (uint64_t)p->shape.d[k] + (uint64_t)index_of(&c->in[0], k * n + i);
    store_index(&c->out[0], i, (int64_t)at);
  }
  return TY_OK;
}

static int unravel_run(struct call *c)
{
  const struct ravel *p = c->param;
  int64_t n = desc_count(&c->in[0].d);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = index_of(&c->in[0], i);
    for (int64_t k = p->shape.n - 1; k > 0; k--) {
      store_index(&c->out[0], k * n + i, rest % p->shape.d[k]);
      rest /= p->shape.d[k];
    }
    store_index(&c->out[0], i, rest);
  }
  return TY_OK;
}

MOVE_KERNEL(ravel_kernels, ravel_run)
MOVE_KERNEL(unravel_kernels, unravel_run)

/* -- rows -------------------------------------------------------------------------------------- */

const struct op op_gather_nd[] = {
  { .name = "gather_nd", .alias = "_npi_gather_nd _npx_gather_nd",
    .flags = OP_MAY_FAIL,
    .doc = "The rows of data at the places named by indices (M, ...): result (..., rest of data). Gradients of one "
           "place add up; indices get none.",
    .in = "data indices", .shape = gather_shape, .type = first_type, .indices = gather_coordinates, .grad = "g0 i1", .cpu = gather_kernels,
    .back_cpu = gather_back_kernels },
  { .name = "scatter_nd",
    .flags = OP_MAY_FAIL,
    .doc = "Zeros of the given shape with the rows of data written to the places named by indices. data's gradient is "
           "gathered there; indices get none.",
    .in = "data indices", .param = scatter_params, .param_size = sizeof(struct scatter_param), .shape = scatter_shape,
    .type = first_type, .indices = scatter_coordinates,
    .grad = "g0 i1", .cpu = scatter_kernels, .back_cpu = scatter_back_kernels },
  { .name = "_scatter_set_nd", .alias = "_npi_scatter_set_nd",
    .flags = OP_MAY_FAIL,
    .doc = "lhs with the rows of rhs written to the places named by indices. No gradient.",
    .in = "lhs rhs indices", .param = scatter_params, .param_size = sizeof(struct scatter_param), .shape = set_shape,
    .type = set_type, .indices = set_coordinates,
    .inplace = "0=0", .cpu = set_kernels },
  { .name = "_contrib_index_copy",
    .flags = OP_MAY_FAIL,
    .doc = "old_tensor with row index_vector[i] replaced by row i of new_tensor. The replaced rows' gradient goes to "
           "new_tensor, the rest to old_tensor.",
    .in = "old_tensor index_vector new_tensor", .shape = copy_shape, .type = copy_type, .indices = copy_rows, .grad = "g0 i1",
    .cpu = copy_kernels, .back_cpu = copy_back_kernels },
  { .name = "_ravel_multi_index", .alias = "ravel_multi_index",
    .doc = "Positions in the flattened array from one row of coordinates per axis. No gradient flows.",
    .in = "data", .param = ravel_params, .param_size = sizeof(struct ravel), .shape = ravel_shape,
    .type = ravel_type, .flags = OP_ZERO_GRAD | OP_NAMED_INPUT, .cpu = ravel_kernels },
  { .name = "_unravel_index", .alias = "unravel_index",
    .doc = "One row of coordinates per axis from positions in the flattened array. No gradient flows.",
    .in = "data", .param = ravel_params, .param_size = sizeof(struct ravel), .shape = unravel_shape,
    .type = ravel_type, .flags = OP_ZERO_GRAD | OP_NAMED_INPUT, .cpu = unravel_kernels },
  { 0 }
};
