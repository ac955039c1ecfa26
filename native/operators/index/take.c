/* take.c - elements selected by an index: take, batch_take, pick, one_hot, fill_element_0index,
** _onehot_encode; where.
**
** Indices may have any dtype and are truncated towards zero. Gradients of selected elements are
** added in the order of the indices: threads divide columns, or ranges of the array's rows, but
** never the indices, so that sums have equal bits. Indices and conditions have no gradient.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

enum { RAISE, WRAP, CLIP };

/* Returns index j moved into 0 .. n - 1 by a mode. */
static int64_t bring_in(int64_t j, int64_t n, int mode)
{
  if (mode == WRAP) {
    j %= n;
    return j < 0 ? j + n : j;
  }
  return j < 0 ? 0 : j >= n ? n - 1 : j;
}

static int check_all(const struct operand *index, int64_t low, int64_t n)
{
  int64_t count = desc_count(&index->d);
  for (int64_t i = 0; i < count; i++) {
    int64_t j = index_of(index, i);
    if (j < low || j >= n)
      return fail(TY_ERUN, "index %lld at position %lld is out of range; expected %lld to %lld",
          (long long)j, (long long)i, (long long)low, (long long)n - 1);
  }
  return TY_OK;
}

static void copy_some(void *to, const void *from, size_t bytes)
{
  if (bytes == 4)
    memcpy(to, from, 4);
  else if (bytes == 8)
    memcpy(to, from, 8);
  else
    memcpy(to, from, bytes);
}

static int first_type(struct infer *s) { return type_both(s, &s->in[0], &s->out[0]); }

/* -- take -------------------------------------------------------------------------------------- */

struct take { int64_t axis, mode; };
static const struct param take_params[] = {
  { "axis", P_INT,  offsetof(struct take, axis), "0",    "axis of a from which to take; negative counts from the end" },
  { "mode", P_ENUM, offsetof(struct take, mode), "clip",
    "an index out of range is an error, counted modulo the size, or moved to the nearest end", "raise|wrap|clip" },
  { 0 }
};

static int take_shape(struct infer *s)
{
  const struct take *p = s->param;
  const ty_desc *a = &s->in[0], *index = &s->in[1];
  int64_t dim[2 * TY_MAXDIM];
  int n = 0, axis;
  if (!a->ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, a->ndim, &axis));
  if (!index->ndim) return TY_OK;
  for (int i = 0; i < axis; i++) dim[n++] = a->dim[i];
  for (int i = 0; i < index->ndim; i++) dim[n++] = index->dim[i];
  for (int i = axis + 1; i < a->ndim; i++) dim[n++] = a->dim[i];
  return shape_is(s, &s->out[0], n, dim);
}

static int64_t take_entries(const struct infer *s, int *input)
{
  const ty_desc *a = &s->in[0];
  int64_t axis = ((const struct take *)s->param)->axis;
  return axis >= -a->ndim && axis < a->ndim ? a->dim[axis_in(axis, a->ndim)] : 0;
}

struct take_job {
  char *a;                                            /* the array, or its gradient */
  char *y;                                            /* selected elements, or their gradient */
  const struct operand *index;
  size_t size;
  int dtype, mode;
  int64_t outer, k, inner, n;
  int64_t blocks;                                     /* of columns, for the gradient */
  int64_t parts;                                      /* of the axis, for the gradient */
};

static struct take_job make_take_job(
    const struct take *p, const struct operand *a, const struct operand *index, void *y)
{
  int axis = axis_in(p->axis, a->d.ndim);
  struct take_job t = { a->p, y, index, dtype_size(a->d.dtype), a->d.dtype, (int)p->mode,
    product_of(&a->d, 0, axis), a->d.dim[axis], product_of(&a->d, axis + 1, a->d.ndim),
    desc_count(&index->d), 1, 1 };
  return t;
}

static void take_body(int64_t begin, int64_t end, void *context)
{
  const struct take_job *t = context;
  size_t row = (size_t)t->inner * t->size;
  for (int64_t u = begin; u < end; u++) {
    int64_t j = bring_in(index_of(t->index, u % t->n), t->k, t->mode);
    copy_some(elements_at(t->y, u * t->inner, t->size),
        elements_at(t->a, (u / t->n * t->k + j) * t->inner, t->size), row);
  }
}

static int take_run(struct call *c)
{
  struct take_job t = make_take_job(c->param, &c->in[0], &c->in[1], c->out[0].p);
  if (t.mode == RAISE) TRY(check_all(t.index, 0, t.k));
  parallel_for(t.outer * t.n, elements_ns(t.inner), take_body, &t);
  return TY_OK;
}

enum { COLUMNS = 64 };                                /* elements of a row in a unit of work */

/* Adds rows of y to those rows low .. high - 1 of a that the indices name, `width` columns from
** `column` on. */
#define ADD_ROWS(T) \
static void add_##T(const struct take_job *t, int64_t outer, int64_t column, int64_t width, \
    int64_t low, int64_t high) \
{ \
  T *a = (T *)t->a + outer * t->k * t->inner + column; \
  const T *y = (const T *)t->y + outer * t->n * t->inner + column; \
  for (int64_t i = 0; i < t->n; i++, y += t->inner) { \
    int64_t j = bring_in(index_of(t->index, i), t->k, t->mode); \
    if (j < low || j >= high) continue; \
    T *row = a + j * t->inner; \
    for (int64_t x = 0; x < width; x++) row[x] = (T)(row[x] + y[x]); \
  } \
}
ADD_ROWS(float)
ADD_ROWS(double)
ADD_ROWS(uint8_t)
ADD_ROWS(uint32_t)
ADD_ROWS(uint64_t)
ADD_ROWS(bool)

static void add_body(int64_t begin, int64_t end, void *context)
{
  const struct take_job *t = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t column = u % t->blocks * COLUMNS, part = u / t->blocks % t->parts,
            outer = u / t->blocks / t->parts;
    int64_t width = t->blocks == 1 ? t->inner : MIN(COLUMNS, t->inner - column),
            low = t->k * part / t->parts, high = t->k * (part + 1) / t->parts;
    switch (t->dtype) {
    case TY_F32: add_float(t, outer, column, width, low, high); break;
    case TY_F64: add_double(t, outer, column, width, low, high); break;
    case TY_I32: add_uint32_t(t, outer, column, width, low, high); break;
    case TY_I64: add_uint64_t(t, outer, column, width, low, high); break;
    case TY_BOOL: add_bool(t, outer, column, width, low, high); break;
    default: add_uint8_t(t, outer, column, width, low, high);
    }
  }
}

/* Computes the gradients. in: head gradient, indices. */
static int take_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  if (!c->out[0].p) return TY_OK;
  struct take_job t = make_take_job(c->param, &c->out[0], &c->in[1], c->in[0].p);
  if (!(c->add & 1)) TRY(move_zeros(c, 0));
  if (t.inner >= 2 * COLUMNS)
    t.blocks = (t.inner + COLUMNS - 1) / COLUMNS;
  else if (t.outer < 8 && t.n * t.inner > 65536)
    t.parts = MIN(8, t.k);
  parallel_for(
      t.outer * t.blocks * t.parts, elements_ns(t.n * MIN(t.inner, COLUMNS)), add_body, &t);
  return TY_OK;
}

MOVE_KERNEL(take_kernels, take_run)
static const struct kernel take_back_kernels[] = {
  { .name = "add rows", .run = take_back, .types = T_FLOAT | T_INT, .add = 1 }, { 0 }
};

/* -- batch_take, pick: one element of each line ------------------------------------------------ */

struct pick { int64_t axis, keepdims, mode; };
static const struct param pick_params[] = {
  { "axis",     P_INT,  offsetof(struct pick, axis),     "-1",
    "axis along which to pick; negative counts from the end", NULL, NULL, 1 },
  { "keepdims", P_BOOL, offsetof(struct pick, keepdims), "False", "leave the axis with size 1" },
  { "mode",     P_ENUM, offsetof(struct pick, mode),     "clip",
    "an index out of range is moved to the nearest end, or counted modulo the size", "clip|wrap" },
  { 0 }
};

static int shape_without_axis(
    struct infer *s, ty_desc *slot, const ty_desc *data, int axis, bool keep)
{
  int64_t dim[TY_MAXDIM];
  int n = 0;
  for (int i = 0; i < data->ndim; i++)
    if (i != axis || keep) dim[n++] = i == axis ? 1 : data->dim[i];
  if (!n) dim[n++] = 1;
  return shape_is(s, slot, n, dim);
}

static int pick_shape(struct infer *s)
{
  const struct pick *p = s->param;
  const ty_desc *data = &s->in[0];
  int axis;
  if (p->axis == NONE)
    return infer_fail(s, TY_EVALUE, NULL, "parameter axis: None is not possible; name an axis");
  if (!data->ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, data->ndim, &axis));
  TRY(shape_without_axis(s, &s->out[0], data, axis, p->keepdims));
  return shape_without_axis(s, &s->in[1], data, axis, s->in[1].ndim == data->ndim);
}

static int64_t pick_elements(const struct infer *s, int *input)
{
  const ty_desc *d = &s->in[0];
  int64_t axis = ((const struct pick *)s->param)->axis;
  return axis >= -d->ndim && axis < d->ndim ? d->dim[axis_in(axis, d->ndim)] : 0;
}

static int64_t batch_elements(const struct infer *s, int *input)
{
  const ty_desc *a = &s->in[0];
  return a->ndim ? a->dim[a->ndim - 1] : 0;
}

static int batch_shape(struct infer *s)
{
  const ty_desc *a = &s->in[0], *index = &s->in[1];
  TRY(shape_both(s, &s->in[1], &s->out[0]));
  if (!desc_known(a) || !desc_known(index)) return TY_OK;
  if (a->ndim >= 2 && product_of(a, 0, a->ndim - 1) == product_of(index, 0, index->ndim))
    return TY_OK;
  char one[160], two[160];
  return infer_fail(s, TY_ESHAPE, index,
      "shape %s does not give one index per row of a, which is %s",
      text_shape(index, one, sizeof one), text_shape(a, two, sizeof two));
}

static int batch_type(struct infer *s)
{
  if (s->in[1].dtype == TY_NODTYPE) s->in[1].dtype = TY_I32;
  return first_type(s);
}

struct pick_job {
  char *data, *y;
  const struct operand *index;
  size_t size;
  int mode;
  int64_t k, inner;
  bool back;
};

static void pick_body(int64_t begin, int64_t end, void *context)
{
  const struct pick_job *t = context;
  for (int64_t u = begin; u < end; u++) {
    int64_t j = bring_in(index_of(t->index, u), t->k, t->mode);
    int64_t at = (u / t->inner * t->k + j) * t->inner + u % t->inner;
    char *y = elements_at(t->y, u, t->size), *x = elements_at(t->data, at, t->size);
    copy_some(t->back ? x : y, t->back ? y : x, t->size);
  }
}

static void pick_lines(
    const struct operand *data, const struct operand *index, void *y, int axis, int mode, bool back)
{
  struct pick_job t = { data->p, y, index, dtype_size(data->d.dtype), mode, data->d.dim[axis],
    product_of(&data->d, axis + 1, data->d.ndim), back };
  parallel_for(desc_count(&data->d) / t.k, NS_PICK, pick_body, &t);
}

static int pick_axis(const struct pick *p, const ty_desc *d)
{
  return axis_in(p->axis, d->ndim);
}

static int pick_run(struct call *c)
{
  const struct pick *p = c->param;
  pick_lines(
      &c->in[0], &c->in[1], c->out[0].p, pick_axis(p, &c->in[0].d), p->mode ? WRAP : CLIP, false);
  return TY_OK;
}

static int pick_back(struct call *c)
{
  const struct pick *p = c->param;
  TRY(move_zeros(c, 1));
  if (!c->out[0].p) return TY_OK;
  TRY(move_zeros(c, 0));
  pick_lines(
      &c->out[0], &c->in[1], c->in[0].p, pick_axis(p, &c->out[0].d), p->mode ? WRAP : CLIP, true);
  return TY_OK;
}

static int batch_run(struct call *c)
{
  pick_lines(&c->in[0], &c->in[1], c->out[0].p, c->in[0].d.ndim - 1, CLIP, false);
  return TY_OK;
}

static bool picks_of_rows(const void *param, int ndim)
{
  const struct pick *p = param;
  return !p->mode && (p->axis == -1 || p->axis == ndim - 1);
}

MOVE_KERNEL(pick_kernels, pick_run)
MOVE_KERNEL(pick_back_kernels, pick_back)
MOVE_KERNEL(batch_kernels, batch_run)

/* -- one_hot, _onehot_encode, fill_element_0index ---------------------------------------------- */

struct one_hot { int64_t depth; double on_value, off_value; int64_t dtype; };
static const struct param one_hot_params[] = {
  { "depth",     P_INT,   offsetof(struct one_hot, depth),     NULL,      "size of the new last axis", NULL, "[1,]" },
  { "on_value",  P_FLOAT, offsetof(struct one_hot, on_value),  "1",       "value at the index" },
  { "off_value", P_FLOAT, offsetof(struct one_hot, off_value), "0",       "value elsewhere" },
  { "dtype",     P_DTYPE, offsetof(struct one_hot, dtype),     "float32", "dtype of the result" },
  { 0 }
};

static int one_hot_shape(struct infer *s)
{
  const struct one_hot *p = s->param;
  const ty_desc *in = &s->in[0], *out = &s->out[0];
  int64_t dim[TY_MAXDIM + 1];
  int ndim = in->ndim ? in->ndim : out->ndim - 1;
  if (ndim < 1) return TY_OK;
  memcpy(dim, out->dim, sizeof out->dim);
  TRY(shape_is(s, &s->in[0], ndim, dim));
  memcpy(dim, in->dim, sizeof in->dim);
  dim[ndim] = p->depth;
  return shape_is(s, &s->out[0], ndim + 1, dim);
}

static int64_t one_hot_depth(const struct infer *s, int *input)
{
  *input = 0;
  return ((const struct one_hot *)s->param)->depth;
}

static int one_hot_type(struct infer *s)
{
  return type_is(s, &s->out[0], (int)((const struct one_hot *)s->param)->dtype);
}

/* Sets element index[i] of each row i of y to from[i * step]. Rows have k elements; indices out of
** range are skipped. */
static void set_selected(
    char *y, const struct operand *index, int64_t k, const void *from, int64_t step, size_t size)
{
  int64_t n = desc_count(&index->d);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = index_of(index, i);
    if (j >= 0 && j < k)
      copy_some(elements_at(y, i * k + j, size), elements_at(from, i * step, size), size);
  }
}

static int one_hot_run(struct call *c)
{
  const struct one_hot *p = c->param;
  const struct operand *y = &c->out[0];
  uint64_t on = 0, off = 0;
  size_t size = dtype_size(y->d.dtype);
  set_number(&on, y->d.dtype, p->on_value);
  set_number(&off, y->d.dtype, p->off_value);
  TRY(move_fill(c->device, y->p, &off, size, desc_count(&y->d)));
  set_selected(y->p, &c->in[0], p->depth, &on, 0, size);
  return TY_OK;
}

static int encode_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[1], &s->out[0]));
  if (!s->out[0].ndim) return TY_OK;
  if (s->out[0].ndim != 2)
    return infer_fail(s, TY_ESHAPE, &s->in[1], "expected 2 dimensions, got %d", s->out[0].ndim);
  return shape_is(s, &s->in[0], 1, s->out[0].dim);
}

static int encode_type(struct infer *s) { return type_both(s, &s->in[1], &s->out[0]); }

static int64_t encode_depth(const struct infer *s, int *input)
{
  *input = 0;
  return s->out[0].ndim == 2 ? s->out[0].dim[1] : 0;
}

static int encode_run(struct call *c)
{
  const struct operand *y = &c->out[0];
  uint64_t one = 0;
  TRY(check_all(&c->in[0], 0, y->d.dim[1]));
  set_number(&one, y->d.dtype, 1);
  TRY(move_zeros(c, 0));
  set_selected(y->p, &c->in[0], y->d.dim[1], &one, 0, dtype_size(y->d.dtype));
  return TY_OK;
}

static int fill_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  if (!s->in[0].ndim) return TY_OK;
  if (s->in[0].ndim != 2)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "expected 2 dimensions, got %d", s->in[0].ndim);
  TRY(shape_is(s, &s->in[1], 1, s->in[0].dim));
  return shape_is(s, &s->in[2], 1, s->in[0].dim);
}

static int fill_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_both(s, &s->in[0], &s->in[1]);
}

static int64_t fill_columns(const struct infer *s, int *input)
{
  *input = 2;
  return s->out[0].ndim == 2 ? s->out[0].dim[1] : 0;
}

static int fill_run(struct call *c)
{
  const struct operand *y = &c->out[0];
  TRY(check_all(&c->in[2], 0, y->d.dim[1]));
  TRY(move_bytes(c->device, y->p, c->in[0].p, desc_bytes(&y->d)));
  set_selected(y->p, &c->in[2], y->d.dim[1], c->in[1].p, 1, dtype_size(y->d.dtype));
  return TY_OK;
}

MOVE_KERNEL(one_hot_kernels, one_hot_run)
MOVE_KERNEL(encode_kernels, encode_run)
MOVE_KERNEL(fill_kernels, fill_run)

/* -- where ------------------------------------------------------------------------------------- */

static int where_shape(struct infer *s)
{
  ty_desc *when = &s->in[0], *x = &s->in[1], *y = &s->in[2], *out = &s->out[0];
  TRY(shape_both(s, x, out));
  TRY(shape_both(s, y, out));
  TRY(shape_both(s, x, out));
  if (!when->ndim) return TY_OK;
  if (when->ndim == 1 && out->ndim != 1) { /* selects rows */
    if (!out->ndim) return TY_OK;
    TRY(shape_dim(s, when, 0, out->dim[0]));
    return shape_dim(s, out, 0, when->dim[0]);
  }
  return shape_both(s, when, out);
}

static int where_type(struct infer *s)
{
  TRY(type_both(s, &s->in[1], &s->out[0]));
  TRY(type_both(s, &s->in[2], &s->out[0]));
  return type_both(s, &s->in[1], &s->out[0]);
}

typedef uint8_t  u8  __attribute__((may_alias));
typedef uint16_t u16 __attribute__((may_alias));
typedef uint32_t u32 __attribute__((may_alias));
typedef uint64_t u64 __attribute__((may_alias));

/* z = a where the condition holds, else b; NULL counts as zeros. A condition holds if a bit in the
** mask is set, which excludes the sign of a float. */
struct choice {
  const char *when;
  uint64_t mask;
  size_t wide, size;
  const char *a, *b;
  char *z;
  int64_t row;
};

/* Loops to be vectorised: this file is compiled with -O2. */
#if defined __GNUC__ && !defined __clang__
#define VECTORS __attribute__((optimize("O3")))
#else
#define VECTORS
#endif

/* Writes z = when & mask ? a : b, where NULL stands for zeros. */
#define CHOOSE(C, T) \
VECTORS \
static void choose_##C##_##T(const struct choice *s, int64_t begin, int64_t end) \
{ \
  const C *when = (const C *)s->when, mask = (C)s->mask; \
  const T *a = (const T *)s->a, *b = (const T *)s->b; \
  T *z = (T *)s->z; \
  if (!a) for (int64_t i = begin; i < end; i++) z[i] = b[i] & (T)((T)((when[i] & mask) != 0) - 1); \
  else if (!b) for (int64_t i = begin; i < end; i++) \
    z[i] = a[i] & (T)((T)((when[i] & mask) == 0) - 1); \
  else for (int64_t i = begin; i < end; i++) { \
    T other = (T)((T)((when[i] & mask) != 0) - 1); \
    z[i] = (T)((a[i] & (T)~other) | (b[i] & other)); \
  } \
}
#define CHOOSE_ALL(C) CHOOSE(C, u8) CHOOSE(C, u16) CHOOSE(C, u32) CHOOSE(C, u64)
CHOOSE_ALL(u8)
CHOOSE_ALL(u16)
CHOOSE_ALL(u32)
CHOOSE_ALL(u64)

static int power_of(size_t size) { return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3; }

static void choose_elements(int64_t begin, int64_t end, void *context)
{
#define CHOOSE_ROW(C)                                                     \
  {                                                                       \
    choose_##C##_u8, choose_##C##_u16, choose_##C##_u32, choose_##C##_u64 \
  }
  static void (*const table[4][4])(const struct choice *, int64_t, int64_t) = { CHOOSE_ROW(u8),
    CHOOSE_ROW(u16), CHOOSE_ROW(u32), CHOOSE_ROW(u64) };
  const struct choice *s = context;
  table[power_of(s->wide)][power_of(s->size)](s, begin, end);
}

static bool condition_holds(const struct choice *s, int64_t i)
{
  uint64_t v = 0;
  memcpy(&v, s->when + i * (int64_t)s->wide, s->wide); /* little-endian: the low bytes */
  return v & s->mask;
}

static void choose_rows(int64_t begin, int64_t end, void *context)
{
  const struct choice *s = context;
  size_t bytes = (size_t)s->row * s->size;
  for (int64_t i = begin; i < end; i++) {
    const char *from = condition_holds(s, i) ? s->a : s->b;
    if (from)
      memcpy(s->z + i * (int64_t)bytes, from + i * (int64_t)bytes, bytes);
    else
      memset(s->z + i * (int64_t)bytes, 0, bytes);
  }
}

static void choose_by_condition(
    const struct operand *when, const ty_desc *d, const void *a, const void *b, void *z)
{
  size_t wide = dtype_size(when->d.dtype);
  uint64_t sign = dtype_float(when->d.dtype) ? 1ull << (8 * wide - 1) : 0;
  struct choice s = { when->p, (wide == 8 ? ~0ull : (1ull << 8 * wide) - 1) & ~sign, wide,
    dtype_size(d->dtype), a, b, z, desc_count(d) / desc_count(&when->d) };
  if (!z) return;
  if (s.row == 1)
    parallel_for(desc_count(d), NS_MOVE, choose_elements, &s);
  else
    parallel_for(d->dim[0], cost_ns(NS_MOVE, s.row), choose_rows, &s);
}

static int where_run(struct call *c)
{
  choose_by_condition(&c->in[0], &c->out[0].d, c->in[1].p, c->in[2].p, c->out[0].p);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, condition. */
static int where_back(struct call *c)
{
  TRY(move_zeros(c, 0));
  choose_by_condition(&c->in[1], &c->in[0].d, c->in[0].p, NULL, c->out[1].p);
  choose_by_condition(&c->in[1], &c->in[0].d, NULL, c->in[0].p, c->out[2].p);
  return TY_OK;
}

MOVE_KERNEL(where_kernels, where_run)
MOVE_KERNEL(where_back_kernels, where_back)

static struct attention_part attention_choice(const void *param, int ndim)
{
  (void)param, (void)ndim;
  return (struct attention_part){ ATTENTION_CHOICE };
}

/* -- rows -------------------------------------------------------------------------------------- */

const struct op op_take[] = {
  { .name = "take", .alias = "_npi_take",
    .flags = OP_MAY_RAISE,
    .doc = "Entries of a along an axis, chosen by indices; the shape of indices replaces the axis. "
           "Gradients of entries add up; indices get none.",
    .in = "a indices", .param = take_params, .param_size = sizeof(struct take), .shape = take_shape, .type = first_type,
    .indices = take_entries, .grad = "g0 i1", .cpu = take_kernels, .back_cpu = take_back_kernels },
  { .name = "batch_take",
    .doc = "One element of each row of a, chosen by indices, which are moved into the row's range. No gradient; use "
           "pick.",
    .in = "a indices", .shape = batch_shape, .type = batch_type, .indices = batch_elements, .cpu = batch_kernels },
  { .name = "pick", .alias = "choose_element_0index _npx_pick",
    .doc = "One element of each line along an axis, chosen by index. The gradient goes to the picked elements; the "
           "index gets none.",
    .in = "data index", .param = pick_params, .param_size = sizeof(struct pick), .shape = pick_shape,
    .type = first_type, .indices = pick_elements,
    .grad = "g0 i1", .cpu = pick_kernels, .back_cpu = pick_back_kernels, .picks = picks_of_rows },
  { .name = "one_hot", .alias = "_npx_one_hot",
    .doc = "A row of `depth` numbers for each index: on_value at the index, off_value elsewhere and everywhere if it "
           "is out of range. No gradient flows.",
    .in = "indices", .param = one_hot_params, .param_size = sizeof(struct one_hot), .shape = one_hot_shape, .type = one_hot_type,
    .indices = one_hot_depth, .flags = OP_ZERO_GRAD, .cpu = one_hot_kernels },
  { .name = "_onehot_encode",
    .doc = "Rows of zeros with a 1 at the index lhs[i]; rhs only gives the shape.",
    .in = "lhs rhs", .shape = encode_shape, .type = encode_type, .indices = encode_depth,
    .cpu = encode_kernels },
  { .name = "fill_element_0index",
    .doc = "lhs with element rhs[i] of each row i replaced by mhs[i].",
    .in = "lhs mhs rhs", .shape = fill_shape, .type = fill_type, .indices = fill_columns,
    .inplace = "0=0", .cpu = fill_kernels },
  { .name = "where", .alias = "_sparse_where",
    .doc = "x where condition is not 0, else y; a vector as condition selects whole rows. Gradients go to the chosen "
           "side; condition gets none.",
    .in = "condition x y", .shape = where_shape, .type = where_type, .grad = "g0 i0", .cpu = where_kernels,
    .back_cpu = where_back_kernels, .attention = attention_choice },
  { 0 }
};
