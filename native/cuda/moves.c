/* moves.c - operators that only move elements (kernels/move.cu): transpose, SwapAxis, reverse,
** Concat, _rnn_param_concat, stack, SliceChannel, slice_axis. A backward move is the forward one
** with its sides exchanged. */
#include "cuda/family.h"
#include "kernel/strided_copy.h"

static const char *unit_of(size_t size)
{
  return size == 1 ? "u8" : size == 2 ? "u16" : size == 4 ? "u32" : "u64";
}

static int run_move(const struct call *c, const struct move *m, void *dst, void *src, size_t size)
{
  int64_t args[1 + 3 * MOVE_AXES] = { 1 };
  cu_function f;
  for (int i = 0; i < m->n; i++) {
    args[0] *= m->dim[i];
    args[1 + 3 * i] = m->dim[i];
    args[2 + 3 * i] = m->to[i];
    args[3 + 3 * i] = m->from[i];
  }
  TRY(cuda_family(c->device, FAMILY_move, "move", &f, "UNIT=%s AXES=%d INDEX=%s", unit_of(size),
      m->n, cuda_index(args[0])));
  void *params[] = { &dst, &src, args };
  return cuda_run(c, f, args[0], params);
}

static int axis_within(double axis, int ndim) { return (int)axis + (axis < 0 ? ndim : 0); }

/* -- axes in another order, or turned round ---------------------------------------------------- */

/* Axis i of the output is axis axes[i] of the input. */
static void order_of(const struct call *c, int ndim, int axes[])
{
  const struct dims *given = op_dims(c->op, c->param, "axes");
  bool swap = !strcmp(c->op->name, "SwapAxis");
  for (int i = 0; i < ndim; i++)
    axes[i] = swap                 ? i
        : !given || given->n <= 0 ? ndim - 1 - i
                                   : axis_within((double)given->d[i], ndim);
  if (!swap) return;
  int a = axis_within(cuda_number(c, "dim1", 0), ndim);
  int b = axis_within(cuda_number(c, "dim2", 0), ndim);
  axes[a] = b;
  axes[b] = a;
}

/* Strides `to` are those of the output, `from` of the input d, whose first element is *start. */
static struct move order_move(const struct call *c, const ty_desc *d, int64_t *start)
{
  struct move m = { 0 };
  int64_t from[TY_MAXDIM], to = 1;
  int axes[TY_MAXDIM];
  strides_of(d, from);
  order_of(c, d->ndim, axes);
  *start = 0;
  for (int i = 0; i < d->ndim; i++) move_axis(&m, d->dim[axes[i]], 0, from[axes[i]]);
  for (int i = d->ndim - 1; i >= 0; to *= m.dim[i], i--) m.to[i] = to;
  return m;
}

static struct move reverse_move(const struct call *c, const ty_desc *d, int64_t *start)
{
  const struct dims *axis = op_dims(c->op, c->param, "axis");
  struct move m = { 0 };
  int64_t stride[TY_MAXDIM];
  strides_of(d, stride);
  *start = 0;
  for (int i = 0; i < d->ndim; i++) move_axis(&m, d->dim[i], stride[i], stride[i]);
  for (int k = 0; k < axis->n; k++) {
    int i = axis_within((double)axis->d[k], d->ndim);
    if (m.from[i] < 0) continue;
    *start += (d->dim[i] - 1) * stride[i];
    m.from[i] = -stride[i];
  }
  return m;
}

static struct move nest_of(const struct call *c, const ty_desc *d, int64_t *start)
{
  return strcmp(c->op->name, "reverse") ? order_move(c, d, start) : reverse_move(c, d, start);
}

static int nest_forward(struct call *c)
{
  int64_t start;
  size_t size = dtype_size(c->in[0].d.dtype);
  struct move m = nest_of(c, &c->in[0].d, &start);
  return run_move(c, &m, c->out[0].p, elements_at(c->in[0].p, start, size), size);
}

static int nest_backward(struct call *c)
{
  int64_t start;
  size_t size = dtype_size(c->in[0].d.dtype);
  if (!c->out[0].p) return TY_OK;
  struct move m = nest_of(c, &c->out[0].d, &start), back = { .n = m.n };
  memcpy(back.dim, m.dim, sizeof m.dim);
  memcpy(back.to, m.from, sizeof m.from);
  memcpy(back.from, m.to, sizeof m.to);
  return run_move(c, &back, elements_at(c->out[0].p, start, size), c->in[0].p, size);
}

/* -- pieces along an axis ---------------------------------------------------------------------- */

/* n places of the axis, from `begin`, between the whole and a dense piece */
static int move_piece(const struct call *c, const struct operand *whole, int axis, void *piece,
    int64_t begin, int64_t n, bool into)
{
  const ty_desc *d = &whole->d;
  size_t size = dtype_size(d->dtype);
  int64_t inner = product_of(d, axis + 1, d->ndim), row = d->dim[axis] * inner, run = n * inner;
  struct move m = { 0 };
  void *at = elements_at(whole->p, begin * inner, size);
  move_axis(&m, product_of(d, 0, axis), into ? row : run, into ? run : row);
  move_axis(&m, run, 1, 1);
  return run_move(c, &m, into ? at : piece, into ? piece : at, size);
}

static int move_all(const struct call *c, const struct operand *whole, const struct operand *piece,
    int n, bool into)
{
  const ty_desc *d = &whole->d;
  int axis = axis_within(cuda_number(c, "dim", cuda_number(c, "axis", 1)), d->ndim);
  int64_t place = desc_count(d) / d->dim[axis], begin = 0;
  for (int k = 0; k < n; k++) {
    int64_t size = desc_count(&piece[k].d) / place;
    if (piece[k].p) TRY(move_piece(c, whole, axis, piece[k].p, begin, size, into));
    begin += size;
  }
  return TY_OK;
}

static int join_forward(struct call *c) { return move_all(c, &c->out[0], c->in, c->nin, true); }
static int join_backward(struct call *c) { return move_all(c, &c->in[0], c->out, c->nout, false); }
static int cut_forward(struct call *c) { return move_all(c, &c->in[0], c->out, c->nout, false); }
static int cut_backward(struct call *c)
{
  return c->out[0].p ? move_all(c, &c->out[0], c->in, c->nin, true) : TY_OK;
}

/* Of slice_axis: axis, and the first place of it. */
static int slice_axis_of(const struct call *c, const ty_desc *d, int64_t *begin)
{
  int axis = axis_within(cuda_number(c, "axis", 0), d->ndim);
  double first = cuda_number(c, "begin", 0);
  *begin = (int64_t)first + (first < 0 ? d->dim[axis] : 0);
  return axis;
}

static int slice_forward(struct call *c)
{
  int64_t begin;
  int axis = slice_axis_of(c, &c->in[0].d, &begin);
  return move_piece(c, &c->in[0], axis, c->out[0].p, begin, c->out[0].d.dim[axis], false);
}

static int slice_backward(struct call *c)
{
  int64_t begin;
  int axis = slice_axis_of(c, &c->out[0].d, &begin);
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_zero(c, &c->out[0]));
  return move_piece(c, &c->out[0], axis, c->in[0].p, begin, c->in[0].d.dim[axis], true);
}

/* -- the table --------------------------------------------------------------------------------- */

#define MOVES(table, run) static const struct kernel table[] = { { "move", run, T_ANY }, { 0 } };
MOVES(nest, nest_forward)
MOVES(nest_back, nest_backward)
MOVES(join, join_forward)
MOVES(join_back, join_backward)
MOVES(cut, cut_forward)
MOVES(cut_back, cut_backward)
MOVES(slice, slice_forward)
MOVES(slice_back, slice_backward)

const struct op_kernels cuda_moves[] = {
  { "transpose", nest, nest_back },
  { "SwapAxis", nest, nest_back },
  { "reverse", nest, nest_back },
  { "Concat", join, join_back },
  { "_rnn_param_concat", join, join_back },
  { "stack", join, join_back },
  { "SliceChannel", cut, cut_back },
  { "slice_axis", slice, slice_back },
  { 0 }
};
