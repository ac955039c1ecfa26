/* concat.c - joins arrays along an axis, and splits them: Concat, stack, _rnn_param_concat,
** SliceChannel (split), _split_v2.
**
** Joining and splitting are each other's gradient. A piece is a range of the axis of the whole
** array; each piece is one strided copy. Dims are inferred in all directions: among pieces, from
** the pieces to the whole, and from the whole to the pieces.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"

/* -- moving pieces ----------------------------------------------------------------------------- */

/* The whole array as (outer, axis, inner). If all channels form one block, they are the innermost
** axis. size: bytes of an element. */
struct axis_view { int device; char *p; size_t size; int64_t outer, axis, inner; };

static struct axis_view make_whole_view(const struct call *c, const struct operand *a, int axis)
{
  struct axis_view w = { c->device, a->p, dtype_size(a->d.dtype), product_of(&a->d, 0, axis),
    a->d.dim[axis], product_of(&a->d, axis + 1, a->d.ndim) };
  if (axis == 1 && a->block == w.axis) {
    w.outer *= w.inner;
    w.inner = 1;
  }
  return w;
}

/* Copies positions begin .. begin + n - 1 of the axis from the whole to a dense piece or, if
** `into`, from the piece to the whole. */
static int move_piece(const struct axis_view *w, void *piece, int64_t begin, int64_t n, bool into)
{
  struct move m = { 0 };
  int64_t row = w->axis * w->inner, run = n * w->inner;
  void *at = elements_at(w->p, begin * w->inner, w->size);
  move_axis(&m, w->outer, into ? row : run, into ? run : row);
  move_axis(&m, run, 1, 1);
  return move_run(w->device, &m, into ? at : piece, into ? piece : at, w->size);
}

/* Moves n pieces that follow each other along the axis. Pieces without memory are skipped. */
static int move_all(const struct axis_view *w, struct operand *piece, int n, bool into)
{
  int64_t at = 0;
  for (int k = 0; k < n; k++) {
    int64_t size = desc_count(&piece[k].d) / (w->outer * w->inner);
    if (piece[k].p) TRY(move_piece(w, piece[k].p, at, size, into));
    at += size;
  }
  return TY_OK;
}

/* -- Concat ------------------------------------------------------------------------------------ */

struct concat { int64_t num_args, dim; };
static const struct param concat_params[] = {
  { "num_args", P_INT, offsetof(struct concat, num_args), NULL, "number of inputs", NULL, INPUTS_RANGE },
  { "dim",      P_INT, offsetof(struct concat, dim),      "1",
    "axis along which the inputs follow each other; negative counts from the end" },
  { 0 }
};

static int known_ndim(const struct infer *s)
{
  for (int i = 0; i < s->nin; i++)
    if (s->in[i].ndim) return s->in[i].ndim;
  return s->out[0].ndim;
}

/* Infers the dims other than the axis, which are equal in all inputs and the output. */
static int share_other_dims(struct infer *s, int ndim, int axis)
{
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < s->nin; i++) {
      int64_t dim[TY_MAXDIM];
      memcpy(dim, s->out[0].dim, sizeof dim);
      dim[axis] = 0;
      TRY(shape_is(s, &s->in[i], ndim, dim));
      memcpy(dim, s->in[i].dim, sizeof dim);
      dim[axis] = 0;
      TRY(shape_is(s, &s->out[0], ndim, dim));
    }
  return TY_OK;
}

/* Infers the sizes along the axis: the output's is the sum of the inputs'. An unknown size of one
** input follows from the output's; so do those of several inputs if they are `equal`. */
static int add_sizes(struct infer *s, int axis, bool equal)
{
  int64_t sum = 0, size = s->out[0].dim[axis];
  int n = 0;
  for (int i = 0; i < s->nin; i++) {
    sum += s->in[i].dim[axis];
    n += !s->in[i].dim[axis];
  }
  if (!n) return shape_dim(s, &s->out[0], axis, sum);
  if (!size) return TY_OK;
  if (size - sum < n)
    return infer_fail(s, TY_ESHAPE, &s->out[0], "size %lld along axis %d, but the inputs need more",
        (long long)size, axis);
  if (n > 1 && (!equal || (size - sum) % n)) return TY_OK;
  for (int i = 0; i < s->nin; i++)
    if (!s->in[i].dim[axis]) TRY(shape_dim(s, &s->in[i], axis, (size - sum) / n));
  return TY_OK;
}

static int join_shape(struct infer *s, bool equal)
{
  const struct concat *p = s->param;
  int ndim = known_ndim(s), axis;
  if (!ndim) return TY_OK;
  TRY(infer_axis(s, p->dim, ndim, &axis));
  TRY(share_other_dims(s, ndim, axis));
  return add_sizes(s, axis, equal);
}
static int concat_shape(struct infer *s)     { return join_shape(s, false); }
static int parameters_shape(struct infer *s) { return join_shape(s, true); }

static int concat_run(struct call *c)
{
  int axis = axis_in(((const struct concat *)c->param)->dim, c->out[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->out[0], axis);
  return move_all(&w, c->in, c->nin, true);
}

static int concat_back(struct call *c)
{
  int axis = axis_in(((const struct concat *)c->param)->dim, c->in[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->in[0], axis);
  return move_all(&w, c->out, c->nout, false);
}

/* With channels in blocks, a piece along axis 0 or 1 consists of whole blocks or, if all channels
** form one block, of runs of channels. */
#define AXIS_KERNEL(table, run, refuse, in, out) \
  static const struct kernel table[] = { { "move", run, T_ANY, refuse, \
                                           .flags = K_ALIKE | K_ANYWHERE, \
                                           .blocks = IN_BLOCKS(in, out) }, { 0 } };

static const char *refuse_space(const struct call *c, int64_t axis)
{
  return in_blocks(c) && axis_in(axis, c->in[0].d.ndim) > 1 ? "an axis of space" : NULL;
}

static const char *concat_refuse(const struct call *c)
{
  return refuse_space(c, ((const struct concat *)c->param)->dim);
}

AXIS_KERNEL(concat_kernels, concat_run, concat_refuse, 0xffff, 1)
AXIS_KERNEL(concat_back_kernels, concat_back, concat_refuse, 1, 0xffff)

/* -- stack ------------------------------------------------------------------------------------- */

struct stack_param { int64_t axis, num_args; };
static const struct param stack_params[] = {
  { "axis",     P_INT, offsetof(struct stack_param, axis),     "0",
    "index of the new axis; negative counts from the end of the result" },
  { "num_args", P_INT, offsetof(struct stack_param, num_args), NULL, "number of inputs", NULL, INPUTS_RANGE },
  { 0 }
};

static int stack_shape(struct infer *s)
{
  const struct stack_param *p = s->param;
  ty_desc one = { 0 }, *out = &s->out[0];
  int64_t wide[TY_MAXDIM + 1] = { 0 };
  int axis, ndim = out->ndim - 1;
  for (int i = 0; i < s->nin; i++)
    if (s->in[i].ndim) ndim = s->in[i].ndim;
  if (ndim < 1) return TY_OK;
  TRY(infer_axis(s, p->axis, ndim + 1, &axis));
  one.ndim = ndim;
  for (int i = 0; out->ndim == ndim + 1 && i < ndim; i++) one.dim[i] = out->dim[i + (i >= axis)];
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < s->nin; i++) {
      TRY(shape_as(s, &s->in[i], &one));
      one = s->in[i];
    }
  for (int i = 0; i < ndim; i++) wide[i + (i >= axis)] = one.dim[i];
  wide[axis] = s->nin;
  return shape_is(s, out, ndim + 1, wide);
}

static int stack_run(struct call *c)
{
  int axis = axis_in(((const struct stack_param *)c->param)->axis, c->out[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->out[0], axis);
  return move_all(&w, c->in, c->nin, true);
}

static int stack_back(struct call *c)
{
  int axis = axis_in(((const struct stack_param *)c->param)->axis, c->in[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->in[0], axis);
  return move_all(&w, c->out, c->nout, false);
}

MOVE_ANYWHERE(stack_kernels, stack_run)
MOVE_ANYWHERE(stack_back_kernels, stack_back)

/* -- SliceChannel ------------------------------------------------------------------------------ */

struct split_param { int64_t num_outputs, axis, squeeze_axis; };
static const struct param split_params[] = {
  { "num_outputs",  P_INT,  offsetof(struct split_param, num_outputs),  NULL,    "number of equal pieces", NULL, PORTS_RANGE },
  { "axis",         P_INT,  offsetof(struct split_param, axis),         "1",
    "axis that is cut; negative counts from the end" },
  { "squeeze_axis", P_BOOL, offsetof(struct split_param, squeeze_axis), "False",
    "drop the axis, which must have size 1 in the pieces" },
  { 0 }
};

/* Infers the shape of a piece: data's with `size` along the axis or, if `squeeze`, without it. */
static int piece_shape(struct infer *s, ty_desc *out, int axis, int64_t size, bool squeeze)
{
  int64_t dim[TY_MAXDIM];
  int n = 0, ndim = s->in[0].ndim;
  for (int i = 0; i < ndim; i++) {
    if (i == axis && squeeze) continue;
    dim[n++] = i == axis ? size : s->in[0].dim[i];
  }
  if (!n) dim[n++] = 1;
  return shape_is(s, out, n, dim);
}

/* Infers data's dims other than the axis from a piece. */
static int learn_from_piece(struct infer *s, const ty_desc *out, int axis, bool squeeze)
{
  for (int i = 0, k = 0; i < s->in[0].ndim; i++) {
    if (i == axis && squeeze) continue;
    if (i != axis && k < out->ndim) TRY(shape_dim(s, &s->in[0], i, out->dim[k]));
    k++;
  }
  return TY_OK;
}

static int split_shape(struct infer *s)
{
  const struct split_param *p = s->param;
  ty_desc *in = &s->in[0], *out = &s->out[0];
  bool squeeze = p->squeeze_axis;
  int axis;
  int64_t unknown[TY_MAXDIM] = { 0 };
  /* squeezed (1): data has this dim of size 1, or the axis alone */
  bool ambiguous = squeeze && out->ndim == 1 && out->dim[0] <= 1;
  if (!in->ndim && out->ndim && !ambiguous)
    TRY(shape_is(s, in, out->ndim + squeeze, unknown));
  if (!in->ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, in->ndim, &axis));
  if (squeeze) TRY(shape_dim(s, in, axis, p->num_outputs));
  int64_t size = in->dim[axis];
  if (size % p->num_outputs)
    return infer_fail(s, TY_ESHAPE, in, "axis %d has size %lld, which %lld pieces do not divide",
        axis, (long long)size, (long long)p->num_outputs);
  for (int k = 0; k < s->nout; k++) {
    TRY(piece_shape(s, &out[k], axis, size / p->num_outputs, squeeze));
    TRY(learn_from_piece(s, &out[k], axis, squeeze));
    if (!squeeze && out[k].dim[axis])
      TRY(shape_dim(s, in, axis, size_times(out[k].dim[axis], p->num_outputs)));
  }
  return TY_OK;
}

static int split_run(struct call *c)
{
  int axis = axis_in(((const struct split_param *)c->param)->axis, c->in[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->in[0], axis);
  return move_all(&w, c->out, c->nout, false);
}

static int split_back(struct call *c)
{
  int axis = axis_in(((const struct split_param *)c->param)->axis, c->out[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->out[0], axis);
  return w.p ? move_all(&w, c->in, c->nin, true) : TY_OK;
}

/* Refuses channels in blocks where the pieces lack the axis, so that their channels are on another
** axis. */
static const char *split_refuse(const struct call *c)
{
  const struct split_param *p = c->param;
  return in_blocks(c) && p->squeeze_axis ? "the axis goes" : refuse_space(c, p->axis);
}

AXIS_KERNEL(split_kernels, split_run, split_refuse, 1, 0xffff)
AXIS_KERNEL(split_back_kernels, split_back, split_refuse, 0xffff, 1)

/* -- _split_v2 --------------------------------------------------------------------------------- */

struct cuts { struct ints indices; int64_t axis, squeeze_axis, sections; };
static const struct param cuts_params[] = {
  { "indices",      P_INTS, offsetof(struct cuts, indices),      NULL,
    "where the pieces begin; used if sections is 0" },
  { "axis",         P_INT,  offsetof(struct cuts, axis),         "1",
    "axis that is cut; negative counts from the end" },
  { "squeeze_axis", P_BOOL, offsetof(struct cuts, squeeze_axis), "False",
    "drop the axis, which must have size 1 in the pieces" },
  { "sections",     P_INT,  offsetof(struct cuts, sections),     "0",
    "number of pieces; the first ones are longer by one where the size is not divisible", NULL, "[0,65536]" },
  { 0 }
};

/* Returns the text of the outputs, valid until the thread's next call. */
static const char *cuts_out(const void *param)
{
  static __thread char text[16 * 128];
  const struct cuts *p = param;
  size_t n = 0;
  if (p->sections) return "output*sections";
  text[0] = 0;
  for (int64_t i = 0; i < p->indices.n; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, " output%lld", (long long)i);
  return text;
}

static int cuts_check(void *param)
{
  const struct cuts *p = param;
  NEED(p->sections || p->indices.n > 0, TY_EVALUE,
      "expected sections, or indices where the pieces begin, got neither");
  return TY_OK;
}

/* Sets *begin to the first position of piece k on an axis of `size`, and returns its end. */
static int64_t cut_piece(const struct cuts *p, int k, int64_t size, int64_t *begin)
{
  if (p->sections) {
    int64_t base = size / p->sections, longer = size % p->sections;
    *begin = k * base + MIN(k, longer);
    return *begin + base + (k < longer);
  }
  *begin = p->indices.d[k];
  return k + 1 < p->indices.n ? p->indices.d[k + 1] : size;
}

/* Returns whether piece k ends at an index, so that its size does not depend on the axis. */
static bool inner_piece(const struct cuts *p, int k)
{
  return !p->sections && k + 1 < p->indices.n;
}

static int cuts_shape(struct infer *s)
{
  const struct cuts *p = s->param;
  ty_desc *in = &s->in[0];
  int axis;
  if (!in->ndim) return TY_OK;
  TRY(infer_axis(s, p->axis, in->ndim, &axis));
  int64_t size = in->dim[axis];
  for (int k = 0; k < s->nout; k++) {
    int64_t begin = 0, end = size || inner_piece(p, k) ? cut_piece(p, k, size, &begin) : 0;
    if (size && (begin < 0 || end <= begin || end > size))
      return infer_fail(s, TY_ESHAPE, in,
          "axis %d has size %lld: piece %d would be empty or outside", axis, (long long)size,
          k);
    int64_t n = MAX(end - begin, 0);
    if (size && p->squeeze_axis && n != 1)
      return infer_fail(s, TY_ESHAPE, in, "squeeze_axis needs pieces of size 1, piece %d has %lld",
          k, (long long)n);
    TRY(piece_shape(s, &s->out[k], axis, n, p->squeeze_axis));
    TRY(learn_from_piece(s, &s->out[k], axis, p->squeeze_axis));
  }
  return TY_OK;
}

static int cuts_run(struct call *c)
{
  const struct cuts *p = c->param;
  int axis = axis_in(p->axis, c->in[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->in[0], axis);
  for (int k = 0; k < c->nout; k++) {
    int64_t begin, end = cut_piece(p, k, w.axis, &begin);
    if (c->out[k].p) TRY(move_piece(&w, c->out[k].p, begin, end - begin, false));
  }
  return TY_OK;
}

static int cuts_back(struct call *c)
{
  const struct cuts *p = c->param;
  int axis = axis_in(p->axis, c->out[0].d.ndim);
  struct axis_view w = make_whole_view(c, &c->out[0], axis);
  if (!w.p) return TY_OK;
  if (!p->sections && p->indices.d[0]) TRY(move_zeros(c, 0));
  for (int k = 0; k < c->nin; k++) {
    int64_t begin, end = cut_piece(p, k, w.axis, &begin);
    TRY(move_piece(&w, c->in[k].p, begin, end - begin, true));
  }
  return TY_OK;
}

MOVE_ANYWHERE(cuts_kernels, cuts_run)
MOVE_ANYWHERE(cuts_back_kernels, cuts_back)

/* -- rows -------------------------------------------------------------------------------------- */

#define CONCAT .in = "arg*num_args", .param = concat_params, .param_size = sizeof(struct concat), \
  .grad = "g0", .cpu = concat_kernels, .back_cpu = concat_back_kernels

const struct op op_concat[] = {
  { .name = "Concat", .alias = "concat _sparse_concat", .flags = OP_SPARED, CONCAT, .shape = concat_shape,
    .doc = "The inputs one after the other along axis `dim`; all other dims are equal. Each input's gradient is its "
           "part of the head gradient." },
  { .name = "_rnn_param_concat", .alias = "_npi_rnn_param_concat", CONCAT, .shape = parameters_shape,
    .doc = "Concat of the parameters of a recurrent layer; what the output needs beyond the known inputs is shared equally by the "
           "unknown ones." },
  { .name = "stack",
    .doc = "Inputs of one shape side by side along a new axis. Each input's gradient is its part of the head gradient.",
    .in = "arg*num_args", .param = stack_params, .param_size = sizeof(struct stack_param), .shape = stack_shape,
    .grad = "g0", .cpu = stack_kernels, .back_cpu = stack_back_kernels },
  { .name = "SliceChannel", .alias = "split",
    .doc = "Cuts an axis into equal pieces, one output each. The gradient is the head gradients one after the other.",
    .in = "data", .out = "output*num_outputs", .param = split_params, .param_size = sizeof(struct split_param),
    .shape = split_shape,
    .grad = "g*", .cpu = split_kernels, .back_cpu = split_back_kernels, .flags = OP_NAMED_INPUT },
  { .name = "_split_v2", .alias = "_npi_split",
    .doc = "Cuts an axis at given places, or into `sections` pieces as equal as possible. The gradient is the head "
           "gradients one after the other.",
    .in = "data", .out_of = cuts_out, .param = cuts_params, .param_size = sizeof(struct cuts), .check = cuts_check,
    .shape = cuts_shape,
    .grad = "g*", .cpu = cuts_kernels, .back_cpu = cuts_back_kernels, .flags = OP_NAMED_INPUT },
  { 0 }
};
