/* sequence.c - sequences of unequal length in one array: SequenceLast, SequenceMask,
** SequenceReverse.
**
** data is (T, N, ...) or, with axis 1, (N, T, ...); sequence_length (N,) is the number of steps in
** each sequence. Without use_sequence_length each has T, and there is no second input. A row is the
** elements of one step of one sequence; the operators copy rows. Lengths outside 0 .. T (1 .. T for
** the last step) are moved to the nearest end. Lengths get no gradient.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

struct sequence { int64_t use_sequence_length, axis; double value; };
#define LENGTHS \
  { "use_sequence_length", P_BOOL, offsetof(struct sequence, use_sequence_length), "False", \
    "there is a second input with the lengths" }
#define STEPS(range) \
  { "axis", P_INT, offsetof(struct sequence, axis), "0", "axis of the steps", NULL, range }
static const struct param last_params[] = { LENGTHS, STEPS("[0,1]"), { 0 } };
static const struct param reverse_params[] = { LENGTHS, STEPS("[0,0]"), { 0 } };
static const struct param mask_params[] = {
  LENGTHS,
  { "value", P_FLOAT, offsetof(struct sequence, value), "0", "what is written after the end of a sequence" },
  STEPS("[0,1]"),
  { 0 }
};

static const char *sequence_in(const void *p)
{
  return ((const struct sequence *)p)->use_sequence_length == 1 ? "data sequence_length" : "data";
}
static const char *sequence_grad(const void *p)
{
  return ((const struct sequence *)p)->use_sequence_length == 1 ? "g0 i1" : "g0";
}

/* -- inference --------------------------------------------------------------------------------- */

static int lengths_shape(struct infer *s)
{
  const struct sequence *p = s->param;
  ty_desc *data = &s->in[0];
  if (!data->ndim) return TY_OK;
  if (data->ndim < 2)
    return infer_fail(s, TY_ESHAPE, data,
        "expected at least 2 dimensions (steps, batch, ...), got %d", data->ndim);
  if (s->nin < 2) return TY_OK;
  TRY(shape_is(s, &s->in[1], 1, &data->dim[1 - p->axis]));
  return shape_dim(s, data, 1 - (int)p->axis, s->in[1].dim[0]);
}

static int same_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  return lengths_shape(s);
}

static int last_shape(struct infer *s)
{
  const struct sequence *p = s->param;
  ty_desc *data = &s->in[0], *out = &s->out[0];
  int64_t dim[TY_MAXDIM];
  TRY(lengths_shape(s));
  if (!data->ndim) return TY_OK;
  for (int i = 0, n = 0; i < data->ndim; i++)
    if (i != p->axis) dim[n++] = data->dim[i];
  TRY(shape_is(s, out, data->ndim - 1, dim));
  for (int i = 0, n = 0; i < data->ndim; i++)
    if (i != p->axis) TRY(shape_dim(s, data, i, out->dim[n++]));
  return TY_OK;
}

/* Returns the number of possible lengths, 0 to T; 0: T is unknown. */
static int64_t step_counts(const struct infer *s, int *input)
{
  const struct sequence *p = s->param;
  int64_t steps = s->in[0].ndim > 1 ? s->in[0].dim[p->axis] : 0;
  return steps ? steps + 1 : 0;
}

static int sequence_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return s->nin > 1 ? type_index(s, &s->in[1], &s->in[0], step_counts(s, NULL)) : TY_OK;
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* data x and its copy y as rows by step and sample, in either order. */
struct steps {
  char *y;
  const char *x;
  const struct operand *length;                           /* NULL: all steps */
  int64_t t;                                          /* steps */
  int64_t n;                                          /* samples */
  int64_t to_t;                                       /* rows from a step to the next */
  int64_t to_n;                                       /* rows from a sample to the next */
  size_t row;                                         /* bytes of a row */
  uint64_t value;                                     /* element after the end of a sequence */
  size_t size;                                        /* bytes of an element */
};

static struct steps make_steps(
    const struct call *c, const ty_desc *d, const struct operand *length, const void *x, void *y)
{
  const struct sequence *p = c->param;
  struct steps s = { .y = y,
    .x = x,
    .length = length,
    .t = d->dim[p->axis],
    .n = d->dim[1 - p->axis],
    .size = dtype_size(d->dtype) };
  s.to_t = p->axis ? 1 : s.n;
  s.to_n = p->axis ? s.t : 1;
  s.row = (size_t)product_of(d, 2, d->ndim) * s.size;
  return s;
}

static const struct operand *lengths_in(const struct call *c)
{
  return c->nin > 1 ? &c->in[1] : NULL;
}
static int64_t length_of(const struct steps *s, int64_t n)
{
  return s->length ? MAX(0, MIN(index_of(s->length, n), s->t)) : s->t;
}
/* Returns the offset in bytes of step t of sample n. */
static int64_t offset_at(const struct steps *s, int64_t t, int64_t n)
{
  return (t * s->to_t + n * s->to_n) * (int64_t)s->row;
}
static double sequence_ns(const struct steps *s)
{
  return cost_ns(NS_BYTE, s->t * (int64_t)s->row);
}

static void fill_row(const struct steps *s, char *y)
{
  if (!s->value)
    memset(y, 0, s->row);
  else
    for (size_t i = 0; i < s->row; i += s->size) memcpy(y + i, &s->value, s->size);
}

static void mask_body(int64_t begin, int64_t end, void *context)
{
  const struct steps *s = context;
  for (int64_t n = begin; n < end; n++) {
    int64_t len = length_of(s, n);
    for (int64_t t = 0; t < s->t; t++) {
      char *y = s->y + offset_at(s, t, n);
      if (t >= len)
        fill_row(s, y);
      else if (y != s->x + offset_at(s, t, n))
        memcpy(y, s->x + offset_at(s, t, n), s->row);
    }
  }
}

static void reverse_body(int64_t begin, int64_t end, void *context)
{
  const struct steps *s = context;
  for (int64_t n = begin; n < end; n++) {
    int64_t len = length_of(s, n);
    for (int64_t t = 0; t < s->t; t++)
      memcpy(s->y + offset_at(s, t, n), s->x + offset_at(s, t < len ? len - 1 - t : t, n), s->row);
  }
}

/* Returns the offset in bytes of the last step of sample n. */
static int64_t last_of(const struct steps *s, int64_t n)
{
  return offset_at(s, MAX(length_of(s, n), 1) - 1, n);
}

static int last_run(struct call *c)
{
  struct steps s = make_steps(c, &c->in[0].d, lengths_in(c), c->in[0].p, c->out[0].p);
  for (int64_t n = 0; n < s.n; n++) memcpy(s.y + n * (int64_t)s.row, s.x + last_of(&s, n), s.row);
  return TY_OK;
}

static int last_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  if (!c->out[0].p) return TY_OK;
  struct steps s = make_steps(c, &c->out[0].d, lengths_in(c), c->in[0].p, c->out[0].p);
  TRY(move_zeros(c, 0));
  for (int64_t n = 0; n < s.n; n++) memcpy(s.y + last_of(&s, n), s.x + n * (int64_t)s.row, s.row);
  return TY_OK;
}

static int mask_steps(struct call *c, double value)
{
  if (!c->out[0].p) return TY_OK;
  struct steps s = make_steps(c, &c->out[0].d, lengths_in(c), c->in[0].p, c->out[0].p);
  set_number(&s.value, c->out[0].d.dtype, value);
  parallel_for(s.n, sequence_ns(&s), mask_body, &s);
  return TY_OK;
}

static int mask_run(struct call *c)
{
  return mask_steps(c, ((const struct sequence *)c->param)->value);
}
static int mask_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  return mask_steps(c, 0);
}

static int reverse_run(struct call *c)
{
  if (!c->out[0].p) return TY_OK;
  struct steps s = make_steps(c, &c->out[0].d, lengths_in(c), c->in[0].p, c->out[0].p);
  parallel_for(s.n, sequence_ns(&s), reverse_body, &s);
  return TY_OK;
}

static int reverse_back(struct call *c)
{
  TRY(move_zeros(c, 1));
  return reverse_run(c);
}

MOVE_KERNEL(last_kernels, last_run)
MOVE_KERNEL(last_back_kernels, last_back)
MOVE_KERNEL(mask_kernels, mask_run)
MOVE_KERNEL(mask_back_kernels, mask_back)
MOVE_KERNEL(reverse_kernels, reverse_run)
MOVE_KERNEL(reverse_back_kernels, reverse_back)

/* -- rows -------------------------------------------------------------------------------------- */

#define SEQUENCE(op) .in = "data sequence_length", .in_of = sequence_in, .param = op##_params, \
.param_size = sizeof(struct sequence), \
  .type = sequence_type, .indices = step_counts, .grad = "g0", .grad_of = sequence_grad, \
  .cpu = op##_kernels, \
  .back_cpu = op##_back_kernels

const struct op op_sequence[] = {
  { .name = "SequenceLast", SEQUENCE(last), .shape = last_shape,
    .doc = "The last step of each sequence. The gradient goes to that step." },
  { .name = "SequenceMask", .alias = "_npx_sequence_mask", SEQUENCE(mask), .shape = same_shape,
    .inplace = "0=0", .back_inplace = "0=0",
    .doc = "data with `value` after the end of each sequence. No gradient comes from there." },
  { .name = "SequenceReverse", SEQUENCE(reverse), .shape = same_shape,
    .doc =
        "The steps of each sequence in reverse order; what is after its end stays. The gradient is reversed too." },
  { 0 }
};
