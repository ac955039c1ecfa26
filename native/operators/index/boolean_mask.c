/* boolean_mask.c - _contrib_boolean_mask: the rows of an array where another is not zero.
**
** The number of selected rows is known only at run time. In an executor the output has space for
** all rows; selected rows come first, zeros follow, and their number is at the start of the
** instruction's state (OP_DYNAMIC_ROWS).
*/
#include "op/op.h"

struct mask { int64_t axis; };
static const struct param mask_params[] = {
  { "axis", P_INT, offsetof(struct mask, axis), "0", "axis of the rows; only the first is possible", NULL, "[0,0]" },
  { 0 }
};

static int mask_shape(struct infer *s)
{
  ty_desc *data = &s->in[0], *index = &s->in[1], *out = &s->out[0];
  if (index->ndim > 1)
    return infer_fail(
        s, TY_ESHAPE, index, "%d dimensions; expected one element per row of data", index->ndim);
  if (data->ndim) TRY(shape_is(s, index, 1, data->dim));
  if (data->ndim && index->ndim) TRY(shape_dim(s, data, 0, index->dim[0]));
  return shape_as(s, out, data);
}

static int mask_type(struct infer *s) { return type_both(s, &s->in[0], &s->out[0]); }

static bool is_chosen(const struct operand *index, int64_t i)
{
  switch (index->d.dtype) {
  case TY_F32: return ((const float *)index->p)[i] != 0;
  case TY_F64: return ((const double *)index->p)[i] != 0;
  case TY_F16:
  case TY_BF16: return ((const uint16_t *)index->p)[i] & 0x7fff;
  case TY_I32: return ((const int32_t *)index->p)[i] != 0;
  case TY_I64: return ((const int64_t *)index->p)[i] != 0;
  default: return ((const uint8_t *)index->p)[i] != 0;
  }
}

static int64_t count_chosen(const struct operand *index)
{
  int64_t rows = 0;
  for (int64_t i = 0; i < index->d.dim[0]; i++) rows += is_chosen(index, i);
  return rows;
}

static size_t row_bytes(const struct operand *a)
{
  return a->d.dim[0] ? desc_bytes(&a->d) / (size_t)a->d.dim[0] : 0;
}

static int mask_measure(struct call *c)
{
  int64_t rows = count_chosen(&c->in[1]);
  NEED(rows, TY_EVALUE,
      "_contrib_boolean_mask: no row is chosen, and an array without elements does not exist");
  c->out[0].d.dim[0] = rows;
  return TY_OK;
}

static int mask_run(struct call *c)
{
  size_t n = row_bytes(&c->in[0]);
  char *to = c->out[0].p;
  int64_t capacity = c->out[0].d.dim[0], rows = 0;
  for (int64_t i = 0; i < c->in[0].d.dim[0] && rows < capacity; i++)
    if (is_chosen(&c->in[1], i))
      memcpy(to + (size_t)rows++ * n, (const char *)c->in[0].p + (size_t)i * n, n);
  memset(to + (size_t)rows * n, 0, (size_t)(capacity - rows) * n);
  if (c->state) *(int64_t *)c->state = rows;
  return TY_OK;
}

static int mask_back(struct call *c)
{
  size_t n = row_bytes(&c->out[0]);
  const char *from = c->in[0].p;
  char *to = c->out[0].p;
  for (int64_t i = 0; to && i < c->out[0].d.dim[0]; i++, to += n) {
    if (is_chosen(&c->in[1], i))
      memcpy(to, from, n), from += n;
    else
      memset(to, 0, n);
  }
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  return TY_OK;
}

static size_t mask_state(const struct call *c) { return sizeof(int64_t); }

static const struct kernel mask_cpu[]  = { { .name = "rows", .run = mask_run,  .types = T_ANY, .state = mask_state }, { 0 } };
static const struct kernel mask_bcpu[] = { { .name = "rows", .run = mask_back, .types = T_ANY }, { 0 } };

const struct op op_boolean_mask[] = {
  { .name = "_contrib_boolean_mask", .alias = "_npi_boolean_mask", .in = "data index", .flags = OP_DYNAMIC_ROWS,
    .doc = "Rows of data (n, ...) where index (n,) is not zero; the gradient goes back to those rows, index gets zeros.",
    .param = mask_params, .param_size = sizeof(struct mask), .shape = mask_shape, .type = mask_type, .measure = mask_measure,
    .grad = "g0 i1", .cpu = mask_cpu, .back_cpu = mask_bcpu },
  { 0 }
};
