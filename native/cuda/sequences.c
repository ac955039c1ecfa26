/* sequences.c - SequenceMask, SequenceLast, SequenceReverse (kernels/sequence.cu); ranges, the
** identity matrix and coordinates (kernels/ranges.cu). */
#include "cuda/row.h"
#include "kernel/strided_copy.h"

/* -- sequences --------------------------------------------------------------------------------- */

struct sequence_sizes {
  /* same as in kernels/sequence.cu */
  int64_t n;                                          /* elements to write */
  int64_t steps, batch, row;
  /* for words and arguments of rows */
  int64_t axis;                                       /* axis of the steps */
  uint64_t masked;                                    /* bits of elements after a sequence's end */
};

/* Fills in the sizes and returns the number of threads. d: the array that has the axis of steps;
** value: of elements after the end of a sequence. */
static int64_t fill_sizes(const struct call *c, const ty_desc *d, double value, void *to)
{
  const int axis = (int)cuda_number(c, "axis", 0);
  struct sequence_sizes *s = to;
  *s = (struct sequence_sizes){ desc_count(&c->out[0].d), d->dim[axis], d->dim[1 - axis],
    product_of(d, 2, d->ndim), axis };
  set_number(&s->masked, d->dtype, value);
  return s->n;
}

static int64_t mask_sizes(const struct call *c, void *s)
{
  return fill_sizes(c, &c->out[0].d, cuda_number(c, "value", 0), s);
}
static int64_t whole_sizes(const struct call *c, void *s)
{
  return fill_sizes(c, &c->out[0].d, 0, s);
}
static int64_t last_sizes(const struct call *c, void *s)
{
  return fill_sizes(c, &c->in[0].d, 0, s);
}

/* -- arrays that depend on shapes only --------------------------------------------------------- */

/* The arguments of kernel "range" in kernels/ranges.cu. */
struct range_args { int64_t n; double start, step; int64_t repeat; };
static int64_t range_sizes(const struct call *c, double start, double step, void *s)
{
  int64_t n = desc_count(&c->out[0].d);
  *(struct range_args *)s =
      (struct range_args){ n, start, step, (int64_t)cuda_number(c, "repeat", 1) };
  return n;
}

/* Fills in the sizes of a range from `start` by the parameter step; both are truncated if the
** result is of integers. */
static int64_t step_sizes(const struct call *c, double start, void *s)
{
  double step = cuda_number(c, "step", 1);
  if (!dtype_float(c->out[0].d.dtype)) start = trunc(start), step = trunc(step);
  return range_sizes(c, start, step, s);
}

static int64_t arange_sizes(const struct call *c, void *s)
{
  bool from_0 = isnan(cuda_number(c, "stop", NAN)) && !cuda_flag(c, "infer_range");
  return step_sizes(c, from_0 ? 0 : cuda_number(c, "start", 0), s);
}

static int64_t arange_like_sizes(const struct call *c, void *s)
{
  return step_sizes(c, cuda_number(c, "start", 0), s);
}

static int64_t linspace_sizes(const struct call *c, void *s)
{
  double start = cuda_number(c, "start", 0), stop = cuda_number(c, "stop", 0);
  double parts = (double)desc_count(&c->out[0].d) - cuda_flag(c, "endpoint");
  return range_sizes(c, start, parts > 0 ? (stop - start) / parts : 0, s);
}

struct identity_args { int64_t n, columns, diagonal; };
static int64_t identity_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  *(struct identity_args *)s =
      (struct identity_args){ desc_count(d), d->dim[1], (int64_t)cuda_number(c, "k", 0) };
  return desc_count(d);
}

static int index_array(struct call *c)
{
  const struct dims *axes = op_dims(c->op, c->param, "axes");
  const ty_desc *d = &c->in[0].d;
  int64_t stride[TY_MAXDIM], args[2 + 2 * TY_MAXDIM] = { desc_count(&c->out[0].d) };
  if (!c->out[0].p || !args[0]) return TY_OK;
  fill_strides(d, stride);
  args[1] = axes->n >= 0 ? axes->n : d->ndim;
  for (int k = 0; k < args[1]; k++) {
    int axis = axes->n >= 0 ? axis_in(axes->d[k], d->ndim) : k;
    args[2 + 2 * k] = d->dim[axis];
    args[3 + 2 * k] = stride[axis];
  }
  return cuda_start(c, FAMILY_ranges, "coordinates", "T=i64", args[0],
      (void *[]){ &c->out[0].p, args });
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct kernel indices[] = { { "elements", index_array, T_ANY }, { 0 } };

/* Input 1: lengths, which may be absent. Output 1 of a gradient: the gradient of lengths, zeros. */
#define SEQUENCES(table, kernel_, arguments, sizes) \
  static const struct kernel table[] = { \
    { "elements", CUDA_ROW(FAMILY_sequence, kernel_, "UNIT=#i0 L=$i1 BATCH_FIRST=%4", arguments, \
        sizes, 2), .types = T_ANY }, { 0 } \
  };
SEQUENCES(masks,      "mask",      "o0 i0 i1 s5 s0", mask_sizes)
SEQUENCES(masks_back, "mask",      "o0 i0 i1 s5 s0", whole_sizes)
SEQUENCES(turns,      "turn",      "o0 i0 i1 s0",    whole_sizes)
SEQUENCES(lasts,      "last",      "o0 i0 i1 s0",    last_sizes)
SEQUENCES(lasts_back, "last_back", "o0 i0 i1 s0",    whole_sizes)

#define RANGE(table, kernel_, arguments, sizes) \
  static const struct kernel table[] = { \
    { "elements", CUDA_ROW(FAMILY_ranges, kernel_, "T=$o0", arguments, sizes), .types = T_ANY }, \
    { 0 } \
  };
RANGE(ranges,      "range",    "o0 s0 s1 s2 s3", arange_sizes)
RANGE(ranges_like, "range",    "o0 s0 s1 s2 s3", arange_like_sizes)
RANGE(parts,       "range",    "o0 s0 s1 s2 s3", linspace_sizes)
RANGE(eyes,        "identity", "o0 s0 s1 s2",    identity_sizes)

const struct op_kernels cuda_sequences[] = {
  { "SequenceMask", masks, masks_back },
  { "SequenceReverse", turns, turns },
  { "SequenceLast", lasts, lasts_back },
  { "_arange", ranges, NULL },
  { "_contrib_arange_like", ranges_like, NULL },
  { "_linspace", parts, NULL },
  { "_eye", eyes, NULL },
  { "_contrib_index_array", indices, NULL },
  { 0 }
};
