/* softmax.c - softmax, log_softmax, softmin, SoftmaxActivation, SoftmaxOutput,
** softmax_cross_entropy, and their gradients (kernels/softmax.cu, softmax_loss.cu). */
#include "cuda/reduce.h"
#include "cuda/row.h"
#include "cuda/softmax.h"
#include "kernel/vec/vec.h"

/* -- softmax along an axis --------------------------------------------------------------------- */

enum { SOFT, LOG_SOFT, SOFT_MIN, SOFT_ACTIVATION, SOFT_OUTPUT };

/* Returns the split at the axis of a softmax. SoftmaxActivation: mode 0 uses axis 1, else the last
** axis. SoftmaxOutput: axis 1 with multi_output, the last one with preserve_shape, else all axes
** but the first. */
static struct split make_split(const struct call *c, const ty_desc *d)
{
  int axis = (int)cuda_number(c, "axis", -1), kind = cuda_what(c);
  if (kind == SOFT_OUTPUT) {
    if (cuda_flag(c, "multi_output") && d->ndim > 1) return split_at(d, 1);
    if (cuda_flag(c, "preserve_shape")) return split_at(d, d->ndim - 1);
    return (struct split){ d->dim[0], desc_count(d) / d->dim[0], 1 };
  }
  if (kind == SOFT_ACTIVATION) axis = cuda_number(c, "mode", 1) == 0 && d->ndim > 1 ? 1 : -1;
  return split_at(d, axis_in(axis, d->ndim));
}

static double scale_of(const struct call *c)
{
  double t = cuda_number(c, "temperature", 1), scale = isnan(t) ? 1 : 1 / t;
  return cuda_what(c) == SOFT_MIN ? -scale : scale;
}

static const char *soft_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) && dtype_float(c->out[0].d.dtype)
      ? NULL
      : "data is not of a float dtype";
}

/* held: packs of a row in a thread's registers, or 0: rows are read repeatedly. */
struct soft_plan { int64_t rows; int team, pack, held; };

/* Returns the plan of a softmax. wider: the dtype with the larger elements; most: elements in a
** thread's registers; arrays: data and results, whose alignment counts. */
static struct soft_plan soft_plan(
    struct split s, int wider, int most, void *const *arrays, int count)
{
  struct soft_plan p = { .rows = s.outer * s.inner };
  p.team = cuda_team(p.rows, s.k, s.inner);
  p.pack = cuda_pack(wider, s.k, arrays, count);
  p.held = s.inner == 1 ? cuda_held(s.k, p.team, p.pack, most) : 0;
  return p;
}

/* Starts a kernel of kernels/softmax.cu. These are not rows of the table, since kernels for held
** rows have other names and arguments. */
static int start_soft(const struct call *c, const char *name, int data, int soft, int length,
    const struct soft_plan *p, void **params)
{
  return cuda_start_words(c, FAMILY_softmax, name, p->rows * p->team, params,
      "T=%s TO=%s LENGTH=%s LOG=%d TEAM=%d PACK=%d HELD=%d", cuda_type(data), cuda_type(soft),
      cuda_type(length), cuda_what(c) == LOG_SOFT, p->team, p->pack, MAX(p->held, 1));
}

static int wider_of(int a, int b) { return dtype_size(a) > dtype_size(b) ? a : b; }

static int soft_forward(struct call *c)
{
  enum { HELD = 64 };
  struct split s = make_split(c, &c->in[0].d);
  const int from = c->in[0].d.dtype, to = c->out[0].d.dtype;
  void *arrays[] = { c->in[0].p, c->out[0].p };
  struct soft_plan p = soft_plan(s, wider_of(from, to), HELD, arrays, COUNT(arrays));
  bool lengths = c->nin > 1 && cuda_what(c) == SOFT;
  union cuda_scalar scale = cuda_make_scalar(to, scale_of(c));
  void *length = lengths ? c->in[1].p : NULL;
  if (!c->out[0].p) return TY_OK;
  int counts = lengths ? c->in[1].d.dtype : TY_I32;
  void *params[] = { &c->out[0].p, &c->in[0].p, &length, &p.rows, &s.k, &s.inner, &scale };
  if (p.held) params[5] = &scale;
  return start_soft(c, p.held ? "softmax_held" : "softmax", from, to, counts, &p, params);
}

/* Computes the gradients; in: gradient of the output, output, length. */
static int soft_backward(struct call *c)
{
  enum { HELD = 32 };
  struct split s = make_split(c, &c->in[1].d);
  const int soft = c->in[1].d.dtype, to = c->out[0].d.dtype;
  void *arrays[] = { c->in[0].p, c->in[1].p, c->out[0].p };
  struct soft_plan p = soft_plan(s, wider_of(soft, to), HELD, arrays, COUNT(arrays));
  union cuda_scalar scale = cuda_make_scalar(soft, scale_of(c));
  bool lengths = c->nin > 2;
  void *length = lengths ? c->in[2].p : NULL;
  if (c->nout > 1) TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  int counts = lengths ? c->in[2].d.dtype : TY_I32;
  void *params[] = { &c->out[0].p, &c->in[1].p, &c->in[0].p, &length, &p.rows, &s.k, &s.inner,
    &scale };
  if (p.held) params[6] = &scale;
  return start_soft(
      c, p.held ? "softmax_back_held" : "softmax_back", to, soft, counts, &p, params);
}

/* -- SoftmaxOutput ----------------------------------------------------------------------------- */

enum { PER_BATCH, PER_NOTHING, PER_VALID };

int softmax_loss_start(const struct call *c, const char *name, int data, int soft, int label,
    int team, int64_t n, void **params)
{
  return cuda_start_words(c, FAMILY_softmax_loss, name, n, params, "T=%s TO=%s LABEL=%s TEAM=%d",
      cuda_type(data), cuda_type(soft), cuda_type(label), team);
}

/* Returns the operand that is the output; it comes after the head gradient if out_grad is set, and
** before the label. */
static const struct operand *loss_output(const struct call *c)
{
  return &c->in[cuda_flag(c, "out_grad")];
}

/* Returns the bytes of the number of valid labels. */
static size_t output_scratch(const struct call *c) { return sizeof(int64_t); }

static double loss_divisor(const struct call *c, struct split s, int64_t labels)
{
  bool multi = cuda_flag(c, "multi_output");
  int per = (int)cuda_number(c, "normalization", PER_NOTHING);
  if (per == PER_VALID) return 1;
  if (per == PER_NOTHING) return multi ? (double)s.inner : 1;
  return multi ? (double)(s.outer * s.inner) : (double)labels;
}

int64_t softmax_ignored_label(const struct call *c)
{
  return (int64_t)fmax(fmin(cuda_number(c, "ignore_label", -1), 1e15), -1e15);
}

int softmax_count_valid(const struct call *c, const struct operand *label, void *count)
{
  int64_t n = desc_count(&label->d), ignored = softmax_ignored_label(c);
  return softmax_loss_start(c, "count_valid", TY_F32, TY_F32, label->d.dtype, CUDA_BLOCK,
      CUDA_BLOCK, (void *[]){ &count, (void *)&label->p, &n, &ignored });
}

static int class_loss(struct call *c, const struct operand *out, void *head)
{
  struct { int64_t rows, k, inner, ignored; double scale, hit, other; int32_t ignores; } args;
  const struct operand *label = out + 1;
  struct split s = make_split(c, &out->d);
  double smooth = cuda_flag(c, "multi_output") ? 0 : cuda_number(c, "smooth_alpha", 0);
  int dtype = out->d.dtype, team = cuda_team(s.outer * s.inner, s.k, s.inner);
  bool per_valid = cuda_number(c, "normalization", PER_NOTHING) == PER_VALID;
  void *valid = per_valid ? c->tmp : NULL;
  memset(&args, 0, sizeof args);
  args.rows = s.outer * s.inner;
  args.k = s.k;
  args.inner = s.inner;
  args.ignored = softmax_ignored_label(c);
  args.scale = cuda_number(c, "grad_scale", 1) / loss_divisor(c, s, desc_count(&label->d));
  args.hit = 1 - smooth;
  args.other = s.k > 1 ? smooth / (double)(s.k - 1) : 0;
  args.ignores = cuda_flag(c, "use_ignore");
  if (per_valid) TRY(softmax_count_valid(c, label, valid));
  return softmax_loss_start(c, "softmax_loss", dtype, dtype, label->d.dtype, team,
      args.rows * team,
      (void *[]){ &c->out[0].p, (void *)&out->p, (void *)&label->p, &head, &valid, &args });
}

static int probability_loss(struct call *c, const struct operand *out, void *head)
{
  int64_t n = desc_count(&out->d);
  union cuda_scalar scale = cuda_make_scalar(out->d.dtype, cuda_number(c, "grad_scale", 1));
  const int dtype = out->d.dtype;
  return softmax_loss_start(c, "probability_loss", dtype, dtype, out[1].d.dtype, 1, n,
      (void *[]){ &c->out[0].p, (void *)&out->p, (void *)&out[1].p, &head, &n, &scale });
}

static int output_backward(struct call *c)
{
  const struct operand *out = loss_output(c);
  void *head = cuda_flag(c, "out_grad") ? c->in[0].p : NULL;
  TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  return desc_same_shape(&out->d, &out[1].d) ? probability_loss(c, out, head)
                                             : class_loss(c, out, head);
}

/* -- softmax_cross_entropy --------------------------------------------------------------------- */

/* Returns the bytes of one loss per row; the scratch of their sum follows them. */
static size_t rows_bytes(int64_t rows) { return align_up(sizeof(double) * (size_t)rows, ALIGN); }

static size_t cross_scratch(const struct call *c)
{
  struct reduce r = cuda_reduce_all_but(TY_F64, c->in[0].d.dim[0], 1, 1);
  return rows_bytes(r.in) + cuda_reduce_scratch(&r);
}

static int cross_forward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t rows = d->dim[0], k = d->dim[1];
  int team = cuda_team(rows, k, 1);
  struct reduce r = cuda_reduce_all_but(TY_F64, rows, 1, 1);
  struct cuda_reduce sum = { R_SUM, F_NONE, c->out[0].d.dtype, c->tmp, .y = c->out[0].p };
  void *losses = c->tmp;
  TRY(softmax_loss_start(c, "cross_entropy", d->dtype, d->dtype, c->in[1].d.dtype, team,
      rows * team, (void *[]){ &losses, &c->in[0].p, &c->in[1].p, &rows, &k }));
  return cuda_reduce(c->device, &r, &sum, (char *)c->tmp + rows_bytes(rows));
}

/* Sizes of the gradient. in: head gradient (1,), data, label. */
struct cross_args { int64_t rows, k, team; };
static int64_t cross_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[1].d;
  const int64_t team = cuda_team(d->dim[0], d->dim[1], 1);
  *(struct cross_args *)s = (struct cross_args){ d->dim[0], d->dim[1], team };
  return d->dim[0] * team;
}

/* -- the table --------------------------------------------------------------------------------- */

static const struct kernel soft[] = { { "rows", soft_forward, T_ANY, soft_refuse }, { 0 } };
static const struct kernel soft_back[] = { { "rows", soft_backward, T_ANY, soft_refuse }, { 0 } };
static const struct kernel output_back[] = {
  { "rows", output_backward, T_ANY, soft_refuse, output_scratch }, { 0 }
};
static const struct kernel cross[] = {
  { "rows", cross_forward, T_ANY, soft_refuse, cross_scratch }, { 0 }
};
static const struct kernel cross_back[] = {
  { "rows", CUDA_ROW(FAMILY_softmax_loss, "cross_entropy_back", "T=$i1 TO=$i1 LABEL=$i2 TEAM=%2",
    "o0 i1 i2 i0 s0 s1", cross_sizes, 2), .types = T_ANY, .refuse = soft_refuse }, { 0 }
};

const struct op_kernels cuda_softmax[] = {
  { "softmax", soft, soft_back, SOFT },
  { "log_softmax", soft, soft_back, LOG_SOFT },
  { "softmin", soft, soft_back, SOFT_MIN },
  { "SoftmaxActivation", soft, soft_back, SOFT_ACTIVATION },
  { "SoftmaxOutput", soft, output_back, SOFT_OUTPUT },
  { "softmax_cross_entropy", cross, cross_back },
  { 0 }
};
