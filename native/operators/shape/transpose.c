/* transpose.c - elements in another order: transpose, SwapAxis, depth_to_space, space_to_depth,
** reverse (flip).
**
** Each is one strided copy (kernel/strided_copy.h), and so is its gradient: the same copy with
** source and destination exchanged. Inference goes both ways.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

/* Makes the move from the input to the output, and adds the index of the first element that it
** reads to *from. The gradient runs the move backwards. */
typedef void (*nest_fn)(const void *param, const ty_desc *in, struct move *m, int64_t *from);

static void exchange_sides(struct move *m)
{
  for (int i = 0; i < m->n; i++) {
    int64_t t = m->to[i];
    m->to[i] = m->from[i];
    m->from[i] = t;
  }
}

static int nest_forward(struct call *c, nest_fn nest)
{
  struct move m = { 0 };
  int64_t from = 0;
  size_t size = dtype_size(c->in[0].d.dtype);
  nest(c->param, &c->in[0].d, &m, &from);
  return move_run(c->device, &m, c->out[0].p, elements_at(c->in[0].p, from, size), size);
}

static int nest_backward(struct call *c, nest_fn nest)
{
  struct move m = { 0 };
  int64_t from = 0;
  size_t size = dtype_size(c->in[0].d.dtype);
  if (!c->out[0].p) return TY_OK;
  nest(c->param, &c->out[0].d, &m, &from);
  exchange_sides(&m);
  return move_run(c->device, &m, elements_at(c->out[0].p, from, size), c->in[0].p, size);
}

/* Makes a move in which axis i of the output is axis axes[i] of the input. */
static void permute_axes(const ty_desc *in, const int axes[], struct move *m)
{
  int64_t from[TY_MAXDIM], to = 1;
  fill_strides(in, from);
  for (int i = 0; i < in->ndim; i++) to *= in->dim[i];
  for (int i = 0; i < in->ndim; i++) {
    to /= in->dim[axes[i]];
    move_axis(m, in->dim[axes[i]], to, from[axes[i]]);
  }
}

/* Infers both shapes, where axis i of the output is axis axes[i] of the input. */
static int permuted_shape(struct infer *s, const int axes[], int ndim)
{
  int64_t out[TY_MAXDIM] = { 0 }, in[TY_MAXDIM] = { 0 };
  for (int i = 0; i < s->in[0].ndim; i++) out[i] = s->in[0].dim[axes[i]];
  TRY(shape_is(s, &s->out[0], ndim, out));
  for (int i = 0; i < ndim; i++) in[axes[i]] = s->out[0].dim[i];
  return shape_is(s, &s->in[0], ndim, in);
}

static int known_ndim(const struct infer *s)
{
  return s->in[0].ndim ? s->in[0].ndim : s->out[0].ndim;
}

/* -- transpose --------------------------------------------------------------------------------- */

struct transpose { struct dims axes; };
static const struct param transpose_params[] = {
  { "axes", P_SHAPE, offsetof(struct transpose, axes), "()",
    "the axis of data for each axis of the result; empty: all in reverse order" },
  { 0 }
};

static void transpose_axes(const struct transpose *p, int ndim, int axes[])
{
  for (int i = 0; i < ndim; i++)
    axes[i] = p->axes.n <= 0 ? ndim - 1 - i
                             : (int)(p->axes.d[i] < 0 ? p->axes.d[i] + ndim : p->axes.d[i]);
}

static int transpose_shape(struct infer *s)
{
  const struct transpose *p = s->param;
  int ndim = known_ndim(s), axes[TY_MAXDIM];
  unsigned seen = 0;
  if (!ndim) return TY_OK;
  if (p->axes.n > 0 && p->axes.n != ndim)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "axes lists %lld axes, data has %d", (long long)p->axes.n, ndim);
  for (int i = 0; i < p->axes.n; i++) {
    int axis;
    TRY(infer_axis(s, p->axes.d[i], ndim, &axis));
    if (seen >> axis & 1)
      return infer_fail(s, TY_EVALUE, NULL, "axes: axis %d is listed twice", axis);
    seen |= 1u << axis;
  }
  transpose_axes(p, ndim, axes);
  return permuted_shape(s, axes, ndim);
}

static void transpose_nest(const void *param, const ty_desc *in, struct move *m, int64_t *from)
{
  int axes[TY_MAXDIM];
  transpose_axes(param, in->ndim, axes);
  permute_axes(in, axes, m);
}

/* -- SwapAxis ---------------------------------------------------------------------------------- */

struct swap { int64_t dim1, dim2; };
static const struct param swap_params[] = {
  { "dim1", P_INT, offsetof(struct swap, dim1), "0", "one axis; negative counts from the end" },
  { "dim2", P_INT, offsetof(struct swap, dim2), "0", "the other" },
  { 0 }
};

static void swap_pair(int axes[], int ndim, int64_t a, int64_t b)
{
  for (int i = 0; i < ndim; i++) axes[i] = i;
  axes[axis_in(a, ndim)] = axis_in(b, ndim);
  axes[axis_in(b, ndim)] = axis_in(a, ndim);
}

static int swap_shape(struct infer *s)
{
  const struct swap *p = s->param;
  int ndim = known_ndim(s), a, b, axes[TY_MAXDIM];
  if (!ndim) return TY_OK;
  TRY(infer_axis(s, p->dim1, ndim, &a));
  TRY(infer_axis(s, p->dim2, ndim, &b));
  swap_pair(axes, ndim, a, b);
  return permuted_shape(s, axes, ndim);
}

static void swap_nest(const void *param, const ty_desc *in, struct move *m, int64_t *from)
{
  const struct swap *p = param;
  int axes[TY_MAXDIM];
  swap_pair(axes, in->ndim, p->dim1, p->dim2);
  permute_axes(in, axes, m);
}

/* -- depth_to_space, space_to_depth ------------------------------------------------------------ */

struct block_param { int64_t block_size; };
static const struct param depth_params[] = {
  { "block_size", P_INT, offsetof(struct block_param, block_size), NULL, "side of a block, in pixels", NULL, "[1,65536]" },
  { 0 }
};

/* Infers the shapes of deep (n, c b b, h, w) and flat (n, c, h b, w b) from each other. */
static int deep_shape(
    struct infer *s, ty_desc *deep, ty_desc *flat)
{
  const struct block_param *p = s->param;
  int64_t b = p->block_size, d[4] = { 0 }, f[4] = { 0 };
  for (int k = 0; k < 2; k++) {
    const ty_desc *x = k ? flat : deep;
    if (x->ndim && x->ndim != 4)
      return infer_fail(s, TY_ESHAPE, x, "expected 4 dimensions (N, C, H, W), got %d", x->ndim);
  }
  if (deep->ndim && deep->dim[1] % (b * b))
    return infer_fail(s, TY_ESHAPE, deep,
        "%lld channels cannot be divided by block_size squared, %lld", (long long)deep->dim[1],
        (long long)(b * b));
  if (flat->ndim && (flat->dim[2] % b || flat->dim[3] % b))
    return infer_fail(s, TY_ESHAPE, flat, "%lld x %lld pixels cannot be divided by block_size %lld",
        (long long)flat->dim[2], (long long)flat->dim[3], (long long)b);
  if (deep->ndim)
    f[0] = deep->dim[0], f[1] = deep->dim[1] / (b * b), f[2] = deep->dim[2] * b,
    f[3] = deep->dim[3] * b;
  TRY(shape_is(s, flat, 4, f));
  d[0] = flat->dim[0];
  d[1] = flat->dim[1] * b * b;
  d[2] = flat->dim[2] / b;
  d[3] = flat->dim[3] / b;
  return shape_is(s, deep, 4, d);
}

static int to_space_shape(struct infer *s) { return deep_shape(s, &s->in[0], &s->out[0]); }
static int to_depth_shape(struct infer *s) { return deep_shape(s, &s->out[0], &s->in[0]); }

/* Makes the move from (n, by, bx, c, h, w) to (n, c, h, by, w, bx); by and bx have size b. */
static void space_axes(int64_t b, int64_t n, int64_t c, int64_t h, int64_t w, struct move *m)
{
  int64_t image = c * b * b * h * w;
  move_axis(m, n, image, image);
  move_axis(m, c, h * b * w * b, h * w);
  move_axis(m, h, b * w * b, w);
  move_axis(m, b, w * b, b * c * h * w);
  move_axis(m, w, b, 1);
  move_axis(m, b, 1, c * h * w);
}

static void to_space_nest(const void *param, const ty_desc *in, struct move *m, int64_t *from)
{
  int64_t b = ((const struct block_param *)param)->block_size;
  space_axes(b, in->dim[0], in->dim[1] / (b * b), in->dim[2], in->dim[3], m);
}

static void to_depth_nest(const void *param, const ty_desc *in, struct move *m, int64_t *from)
{
  int64_t b = ((const struct block_param *)param)->block_size;
  space_axes(b, in->dim[0], in->dim[1], in->dim[2] / b, in->dim[3] / b, m);
  exchange_sides(m);
}

/* -- reverse ----------------------------------------------------------------------------------- */

struct reverse { struct dims axis; };
static const struct param reverse_params[] = {
  { "axis", P_SHAPE, offsetof(struct reverse, axis), NULL, "axis or axes whose order is turned round; not negative" },
  { 0 }
};

static int reverse_shape(struct infer *s)
{
  const struct reverse *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  int ndim = s->in[0].ndim;
  for (int i = 0; ndim && i < p->axis.n; i++)
    if (p->axis.d[i] < 0 || p->axis.d[i] >= ndim)
      return infer_fail(s, TY_EVALUE, &s->in[0],
          "axis %lld of an array of %d dimensions; expected 0 to %d", (long long)p->axis.d[i], ndim,
          ndim - 1);
  return TY_OK;
}

static void reverse_nest(const void *param, const ty_desc *in, struct move *m, int64_t *from)
{
  const struct reverse *p = param;
  int64_t stride[TY_MAXDIM];
  fill_strides(in, stride);
  for (int i = 0; i < in->ndim; i++) {
    bool turned = false;
    for (int k = 0; k < p->axis.n; k++) turned |= p->axis.d[k] == i;
    move_axis(m, in->dim[i], stride[i], turned ? -stride[i] : stride[i]);
    if (turned) *from += (in->dim[i] - 1) * stride[i];
  }
}

/* -- rows -------------------------------------------------------------------------------------- */

#define NEST(op) \
static int op##_run(struct call *c) { return nest_forward(c, op##_nest); } \
static int op##_back(struct call *c) { return nest_backward(c, op##_nest); } \
MOVE_ANYWHERE(op##_kernels, op##_run) \
MOVE_ANYWHERE(op##_back_kernels, op##_back)
NEST(transpose)
NEST(swap)
NEST(to_space)
NEST(to_depth)
NEST(reverse)
#define KERNELS(op) .in = "data", .grad = "g0", .cpu = op##_kernels, .back_cpu = op##_back_kernels

const struct op op_transpose[] = {
  { .name = "transpose", KERNELS(transpose),
    .doc = "Axes in another order, by default reversed. The gradient takes them back.",
    .param = transpose_params, .param_size = sizeof(struct transpose), .shape = transpose_shape },
  { .name = "SwapAxis", .alias = "swapaxes _npi_swapaxes", KERNELS(swap),
    .doc = "Two axes exchanged. The gradient is exchanged back.",
    .param = swap_params, .param_size = sizeof(struct swap), .shape = swap_shape, .flags = OP_NAMED_INPUT },
  { .name = "depth_to_space", KERNELS(to_space),
    .doc = "Channels become pixels: (n, c b b, h, w) to (n, c, h b, w b). The gradient goes back the same way.",
    .param = depth_params, .param_size = sizeof(struct block_param), .shape = to_space_shape, .flags = OP_NAMED_INPUT },
  { .name = "space_to_depth", KERNELS(to_depth),
    .doc = "Pixels become channels: (n, c, h b, w b) to (n, c b b, h, w). The gradient goes back the same way.",
    .param = depth_params, .param_size = sizeof(struct block_param), .shape = to_depth_shape, .flags = OP_NAMED_INPUT },
  { .name = "reverse", .alias = "flip", KERNELS(reverse),
    .doc = "Turns the order along the listed axes round. The gradient is turned back.",
    .param = reverse_params, .param_size = sizeof(struct reverse), .shape = reverse_shape, .flags = OP_NAMED_INPUT },
  { 0 }
};
