/* cast_storage.c - dense forms of operators on sparse storage: cast_storage, _sparse_retain,
** _contrib_getnnz.
**
** Every array is dense here: cast_storage refuses other kinds of storage, _sparse_retain sets the
** other rows to 0, and _contrib_getnnz counts the elements that are not 0.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

/* -- cast_storage ------------------------------------------------------------------------------ */

enum storage_kind { DENSE, ROW_SPARSE, CSR };          /* in the order of the words of stype */
struct storage_param { int64_t stype; };
static const struct param storage_params[] = {
  { "stype", P_ENUM, offsetof(struct storage_param, stype), NULL, "storage of the result: default, there is no other",
    "default|row_sparse|csr" },
  { 0 }
};

static int storage_check(void *param)
{
  int64_t stype = ((const struct storage_param *)param)->stype;
  NEED(stype == DENSE, TY_EUNSUPPORTED,
      "sparse storage (%s) is not part of Tycho, arrays are dense",
      stype == ROW_SPARSE ? "row_sparse" : "csr");
  return TY_OK;
}

/* -- _sparse_retain ---------------------------------------------------------------------------- */

static int retain_shape(struct infer *s)
{
  if (s->in[1].ndim > 1)
    return infer_fail(s, TY_ESHAPE, &s->in[1], "expected one dimension, got %d", s->in[1].ndim);
  return shape_both(s, &s->in[0], &s->out[0]);
}
static int64_t retain_rows(const struct infer *s, int *input)
{
  return s->in[0].ndim ? s->in[0].dim[0] : 0;
}
static int retain_type(struct infer *s) { return type_both(s, &s->in[0], &s->out[0]); }

/* Copies the rows of `from` listed in `index` to `to`, and sets the other rows of `to` to 0. Fails
** if an index is out of range. to->p NULL: does nothing. */
static int keep_rows(
    const struct operand *to, const struct operand *from, const struct operand *index)
{
  if (!to->p) return TY_OK;
  int64_t rows = from->d.dim[0];
  size_t row = desc_bytes(&from->d) / (size_t)rows;
  for (int64_t i = 0; i < index->d.dim[0]; i++) {
    int64_t j = index_of(index, i);
    NEED(j >= 0 && j < rows, TY_ERUN,
        "index %lld at line %lld is out of range; expected 0 to %lld", (long long)j, (long long)i,
        (long long)rows - 1);
  }
  TRY(move_zero(TY_CPU, to->p, desc_bytes(&to->d)));
  for (int64_t i = 0; i < index->d.dim[0]; i++) {
    size_t at = (size_t)index_of(index, i) * row;
    memcpy((char *)to->p + at, (const char *)from->p + at, row);
  }
  return TY_OK;
}

static int retain_run(struct call *c) { return keep_rows(&c->out[0], &c->in[0], &c->in[1]); }

/* Computes the gradients. in: head gradient, indices. */
static int retain_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  return keep_rows(&c->out[0], &c->in[0], &c->in[1]);
}

MOVE_KERNEL(retain_cpu, retain_run)
MOVE_KERNEL(retain_back_cpu, retain_back)

/* -- _contrib_getnnz --------------------------------------------------------------------------- */

struct count_param { int64_t axis; };
static const struct param count_params[] = {
  { "axis", P_INT, offsetof(struct count_param, axis), "None", "None all, 0 per column, 1 per row", NULL, "[0,1]", 1 },
  { 0 }
};

static int count_shape(struct infer *s)
{
  const ty_desc *d = &s->in[0];
  int64_t axis = ((const struct count_param *)s->param)->axis, one = 1;
  if (d->ndim && d->ndim != 2)
    return infer_fail(s, TY_ESHAPE, &s->in[0], "expected a matrix, got %d dimensions", d->ndim);
  if (axis == NONE) return shape_is(s, &s->out[0], 1, &one);
  return d->ndim ? shape_is(s, &s->out[0], 1, &d->dim[1 - axis]) : TY_OK;
}
static int count_type(struct infer *s) { return type_is(s, &s->out[0], TY_I64); }

static int count_run(struct call *c)
{
  int64_t axis = ((const struct count_param *)c->param)->axis, columns = c->in[0].d.dim[1],
          *count = c->out[0].p;
  memset(count, 0, desc_bytes(&c->out[0].d));
  for (int64_t i = 0; i < desc_count(&c->in[0].d); i++) {
    int64_t line = axis == NONE ? 0 : axis ? i / columns : i % columns;
    count[line] += real_of(&c->in[0], i) != 0; /* NaN is a value */
  }
  return TY_OK;
}

static const struct kernel count_cpu[] = { { .name = "count", .run = count_run, .types = T_ANY }, { 0 } };

const struct op op_cast_storage[] = {
  { .name = "cast_storage", .alias = "_sparse_cast_storage", .in = "data",
    .doc = "data itself, which is dense as every array is; the gradient passes through.",
    .param = storage_params, .param_size = sizeof(struct storage_param), .check = storage_check,
    .inplace = "0=0", .back_inplace = "0=0",
    .formula = &(const struct formula){ "a", { "g" } } },
  { .name = "_sparse_retain", .in = "data indices",
    .doc = "data with zeros in all rows but those that indices (k,) name; their gradients pass through, the others' are zero.",
    .shape = retain_shape, .type = retain_type, .indices = retain_rows, .grad = "g0 i1", .cpu = retain_cpu, .back_cpu = retain_back_cpu },
  { .name = "_contrib_getnnz", .in = "data", .flags = OP_ZERO_GRAD,
    .doc = "How many elements of a matrix are not zero: (1,), or one number per column or row; int64. The gradient is zero.",
    .param = count_params, .param_size = sizeof(struct count_param), .shape = count_shape, .type = count_type,
    .cpu = count_cpu },
  { 0 }
};
