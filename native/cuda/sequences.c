/* sequences.c - SequenceMask, SequenceLast, SequenceReverse (kernels/sequence.cu); ranges, the
** identity matrix and coordinates (kernels/ranges.cu). */
#include "cuda/family.h"
#include "kernel/strided_copy.h"

/* -- sequences --------------------------------------------------------------------------------- */

struct sequence_sizes { int64_t n, steps, batch, row; };

/* d: of the array that has the axis of steps; n: elements of what is written; value: of a mask */
static int run_sequence(struct call *c, const char *name, const ty_desc *d, int64_t n, double value)
{
  int axis = (int)cuda_number(c, "axis", 0);
  struct sequence_sizes s = { n, d->dim[axis], d->dim[1 - axis], product_of(d, 2, d->ndim) };
  const struct operand *length = c->nin > 1 ? &c->in[1] : NULL;
  const void *lengths = length ? length->p : NULL;
  uint64_t bits = 0;
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  set_number(&bits, d->dtype, value);
  TRY(cuda_family(c->device, FAMILY_sequence, name, &f, "UNIT=%s L=%s BATCH_FIRST=%d",
      cuda_unit(dtype_size(d->dtype)), cuda_type(length ? length->d.dtype : TY_F32), axis));
  void *masked[] = { &c->out[0].p, &c->in[0].p, &lengths, &bits, &s };
  void *others[] = { &c->out[0].p, &c->in[0].p, &lengths, &s };
  return cuda_run(c, f, n, strcmp(name, "mask") ? others : masked);
}

static int launch_sequence(struct call *c, const char *name, double value)
{
  const ty_desc *d = &c->out[0].d;
  TRY(move_zeros(c, 1));
  return run_sequence(c, name, d, desc_count(d), value);
}

static int mask_forward(struct call *c)
{
  return launch_sequence(c, "mask", cuda_number(c, "value", 0));
}
static int mask_backward(struct call *c) { return launch_sequence(c, "mask", 0); }
static int reverse_sequences(struct call *c) { return launch_sequence(c, "turn", 0); }
static int last_backward(struct call *c) { return launch_sequence(c, "last_back", 0); }
static int last_forward(struct call *c)
{
  return run_sequence(c, "last", &c->in[0].d, desc_count(&c->out[0].d), 0);
}

/* -- what follows from shapes ------------------------------------------------------------------ */

static int run_range(struct call *c, double start, double step, int64_t repeat)
{
  struct operand *y = &c->out[0];
  int64_t n = desc_count(&y->d);
  cu_function f;
  if (!y->p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_ranges, "range", &f, "T=%s", cuda_type(y->d.dtype)));
  void *params[] = { &y->p, &n, &start, &step, &repeat };
  return cuda_run(c, f, n, params);
}

static int run_arange(struct call *c)
{
  double start = cuda_number(c, "start", 0), step = cuda_number(c, "step", 1);
  if (isnan(cuda_number(c, "stop", NAN)) && !cuda_flag(c, "infer_range")) start = 0;
  if (!dtype_float(c->out[0].d.dtype)) start = trunc(start), step = trunc(step);
  return run_range(c, start, step, (int64_t)cuda_number(c, "repeat", 1));
}

static int arange_like(struct call *c)
{
  return run_range(c, cuda_number(c, "start", 0), cuda_number(c, "step", 1),
      (int64_t)cuda_number(c, "repeat", 1));
}

static int run_linspace(struct call *c)
{
  double start = cuda_number(c, "start", 0), stop = cuda_number(c, "stop", 0);
  double parts = (double)desc_count(&c->out[0].d) - cuda_flag(c, "endpoint");
  return run_range(c, start, parts > 0 ? (stop - start) / parts : 0, 1);
}

static int run_eye(struct call *c)
{
  struct operand *y = &c->out[0];
  int64_t n = desc_count(&y->d), diagonal = (int64_t)cuda_number(c, "k", 0);
  cu_function f;
  if (!y->p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_ranges, "identity", &f, "T=%s", cuda_type(y->d.dtype)));
  void *params[] = { &y->p, &n, &y->d.dim[1], &diagonal };
  return cuda_run(c, f, n, params);
}

static int index_array(struct call *c)
{
  const struct dims *axes = op_dims(c->op, c->param, "axes");
  const ty_desc *d = &c->in[0].d;
  int64_t stride[TY_MAXDIM], args[2 + 2 * TY_MAXDIM] = { desc_count(&c->out[0].d) };
  cu_function f;
  if (!c->out[0].p || !args[0]) return TY_OK;
  strides_of(d, stride);
  args[1] = axes->n >= 0 ? axes->n : d->ndim;
  for (int k = 0; k < args[1]; k++) {
    int axis = axes->n >= 0 ? axis_in(axes->d[k], d->ndim) : k;
    args[2 + 2 * k] = d->dim[axis];
    args[3 + 2 * k] = stride[axis];
  }
  TRY(cuda_family(c->device, FAMILY_ranges, "coordinates", &f, "T=i64"));
  void *params[] = { &c->out[0].p, args };
  return cuda_run(c, f, args[0], params);
}

/* -- the table --------------------------------------------------------------------------------- */

#define KERNEL(table, run) \
  static const struct kernel table[] = { { "elements", run, T_ANY }, { 0 } };
KERNEL(masks, mask_forward)
KERNEL(masks_back, mask_backward)
KERNEL(turns, reverse_sequences)
KERNEL(lasts, last_forward)
KERNEL(lasts_back, last_backward)
KERNEL(ranges, run_arange)
KERNEL(ranges_like, arange_like)
KERNEL(parts, run_linspace)
KERNEL(eyes, run_eye)
KERNEL(indices, index_array)

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
