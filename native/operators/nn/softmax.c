/* softmax.c - softmax, log_softmax, softmin, SoftmaxActivation, softmax_cross_entropy.
**
** Data is treated as (outer, k, inner) around the axis. With inner = 1 a unit of work is a row,
** else a strip of up to ROW_COLS neighbouring columns. If the output has another dtype, data is
** first converted to that in scratch. With lengths, rows are computed one by one: elements from the
** length on are 0, and their gradients are 0 for any head gradients. Half types are converted to
** float32 row by row, if there are no lengths, all dtypes are equal and the axis is the last one.
*/
#include "base/cast.h"
#include "kernel/strided_copy.h"
#include "kernel/vec/softmax.h"
#include "op/op.h"
#include "operators/nn/picked_log.h"

struct soft_param {
  int64_t axis, dtype, use_length;
  double temperature;
  /* set by the check of log_softmax: the result is the logarithm */
  bool is_log;
  /* set by the check of softmin: data is negated */
  bool negated;
};

#define SOFT_PARAMS(help) \
  { "axis",        P_INT,   offsetof(struct soft_param, axis),        "-1", \
    "axis of the classes; negative counts from the end" }, \
  { "temperature", P_FLOAT, offsetof(struct soft_param, temperature), "None", \
    "data is divided by it; None is 1", NULL, NULL, 1 }, \
  { "dtype",       P_DTYPE, offsetof(struct soft_param, dtype),       "None", \
    "dtype of the output: float16, float32 or float64; None: as data", NULL, NULL, 1 }, \
  { "use_length",  P_BOOL,  offsetof(struct soft_param, use_length),  "0",    help, NULL, NULL, \
    1 }, \
  { 0 }

static const struct param softmax_params[] = { SOFT_PARAMS("a second input, length, says how many elements of each row count") };
static const struct param other_params[] = { SOFT_PARAMS("accepted and without effect: there is no length input") };

static const char *softmax_in(const void *p)
{
  return ((const struct soft_param *)p)->use_length == 1 ? "data length" : "data";
}

static const char *softmax_grad(const void *p)
{
  return ((const struct soft_param *)p)->use_length == 1 ? "g0 o0 i1" : "g0 o0";
}

static bool rows_are_last(const void *param, int ndim)
{
  const struct soft_param *p = param;
  return p->axis == -1 || p->axis == ndim - 1;
}

static struct attention_part attention_softmax(const void *param, int ndim)
{
  const struct soft_param *p = param;
  if (!rows_are_last(param, ndim) || p->use_length == 1 || p->dtype >= 0)
    return (struct attention_part){ ATTENTION_NONE };
  return (struct attention_part){ ATTENTION_SOFTMAX,
    .number = isnan(p->temperature) ? 1 : 1 / p->temperature };
}

static int soft_check(void *param)
{
  const struct soft_param *p = param;
  if (p->dtype < 0 || dtype_float((int)p->dtype)) return TY_OK;
  int code = fail(TY_EVALUE, "parameter dtype: expected float16, float32, float64 or None, got %s",
      dtype_name((int)p->dtype));
  fail_argument("dtype", "float16, float32, float64 or None", dtype_name((int)p->dtype));
  return code;
}

static int log_softmax_check(void *param)
{
  ((struct soft_param *)param)->is_log = true;
  return soft_check(param);
}

static int softmin_check(void *param)
{
  ((struct soft_param *)param)->negated = true;
  return soft_check(param);
}

static int soft_shape(struct infer *s)
{
  const struct soft_param *p = s->param;
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0];
  if (!d.ndim) return TY_OK;
  int axis;
  TRY(infer_axis(s, p->axis, d.ndim, &axis));
  if (s->nin < 2) return TY_OK;
  int64_t rest[TY_MAXDIM] = { 1 };
  int n = 0;
  for (int i = 0; i < d.ndim; i++)
    if (i != axis) rest[n++] = d.dim[i];
  return shape_is(s, &s->in[1], MAX(n, 1), rest);
}

/* Returns the number of possible lengths, 0 to the size of the axis; 0: unknown. */
static int64_t row_counts(const struct infer *s, int *input)
{
  const ty_desc *d = &s->in[0];
  const int64_t axis = ((const struct soft_param *)s->param)->axis;
  const int64_t n = axis >= -d->ndim && axis < d->ndim ? d->dim[axis_in(axis, d->ndim)] : 0;
  return n ? n + 1 : 0;
}

static int soft_type(struct infer *s)
{
  const struct soft_param *p = s->param;
  if (s->nin > 1 && s->in[1].dtype == TY_NODTYPE) TRY(type_is(s, &s->in[1], TY_I32));
  if (p->dtype < 0)
    TRY(type_both(s, &s->in[0], &s->out[0]));
  else
    TRY(type_is(s, &s->out[0], (int)p->dtype));
  if (s->in[0].dtype != TY_NODTYPE && !dtype_float(s->in[0].dtype))
    return infer_fail(
        s, TY_EDTYPE, &s->in[0], "expected a float dtype, got %s", dtype_name(s->in[0].dtype));
  return TY_OK;
}

/* -- kernels ----------------------------------------------------------------------------------- */

struct soft {                                         /* one run, forward or backward */
  const struct vec_ops *r;
  struct split s;
  double scale;
  bool   log, back;
  const struct operand *length;
  /* back, with log: head gradients of one element per row, in place of dy; NULL: unused */
  const struct picked_log *picked;
  const struct operand *index, *beside;               /* BESIDE_PICK: index, output; else NULL */
  const void *x;                                      /* data; back: the output */
  const void *dy;
  void  *y;                                           /* back: gradient of data */
};

static void clear_rest(struct soft *o, void *y, int64_t from)
{
  for (int64_t c = from; c < o->s.k; c++) o->r->set(y, c * o->s.inner, 0);
}

/* Computes a row whose length is given. */
static void with_length(struct soft *o, int64_t row)
{
  int64_t start = row / o->s.inner * o->s.k * o->s.inner + row % o->s.inner;
  int64_t n = index_at(o->length, row, o->s.k + 1);
  void *y = vec_at(o->r, o->y, start), *x = vec_at(o->r, o->x, start),
       *dy = vec_at(o->r, o->dy, start);
  if (n && o->back)
    o->r->softmax->soft_cols_back(y, x, dy, o->scale, o->log, n, o->s.inner, 1);
  else if (n)
    o->r->softmax->soft_cols(y, x, o->scale, o->log, n, o->s.inner, 1);
  clear_rest(o, y, n);
}

/* Computes a row or, with inner > 1, n neighbouring columns, from index `start` on. */
static void soft_strip(struct soft *o, int64_t start, int64_t n)
{
  const struct vec_ops *r = o->r;
  void *y = vec_at(r, o->y, start), *x = vec_at(r, o->x, start), *dy = vec_at(r, o->dy, start);
  if (o->s.inner == 1) {
    if (o->back)
      r->softmax->soft_back(y, x, dy, o->scale, o->log, o->s.k);
    else
      r->softmax->soft(y, x, o->scale, o->log, o->s.k);
  }
  else if (o->back)
    r->softmax->soft_cols_back(y, x, dy, o->scale, o->log, o->s.k, o->s.inner, n);
  else
    r->softmax->soft_cols(y, x, o->scale, o->log, o->s.k, o->s.inner, n);
}

/* Returns the index of the picked element of a row, clipped to 0 .. k - 1. */
static int64_t picked_index(const struct operand *index, int64_t row, int64_t k)
{
  return MIN(MAX(index_of(index, row), 0), k - 1);
}

/* Computes a row and the logarithm of its picked element, for BESIDE_PICK. */
static void pick_beside(struct soft *o, int64_t row)
{
  const struct vec_ops *r = o->r;
  const int64_t k = o->s.k, j = picked_index(o->index, row, k);
  const double y = r->softmax->soft_of_one(
      vec_at(r, o->y, row * k), vec_at(r, o->x, row * k), o->scale, j, k);
  if (o->beside->p) r->set(o->beside->p, row, y);
}

static void soft_body(int64_t begin, int64_t end, void *context)
{
  struct soft *o = context;
  int64_t strips = (o->s.inner + ROW_COLS - 1) / ROW_COLS;
  for (int64_t i = begin; i < end; i++) {
    if (o->length) {
      with_length(o, i);
      continue;
    }
    if (o->picked) {
      picked_log_part(o->picked, i, 0, o->s.k, vec_at(o->r, o->y, i * o->s.k));
      continue;
    }
    if (o->index) {
      pick_beside(o, i);
      continue;
    }
    int64_t from = i % strips * ROW_COLS;
    soft_strip(o, i / strips * o->s.k * o->s.inner + from, MIN(ROW_COLS, o->s.inner - from));
  }
}

static void soft_run(struct soft *o)
{
  int64_t strips = (o->s.inner + ROW_COLS - 1) / ROW_COLS,
          units = o->s.outer * (o->length ? o->s.inner : strips);
  int64_t width = o->length ? 1 : MIN(o->s.inner, ROW_COLS);
  parallel_for(units, elements_ns(o->s.k * width * 8), soft_body, o);
}

static double scale_of(const struct soft_param *p)
{
  double scale = isnan(p->temperature) ? 1 : 1 / p->temperature;
  return p->negated ? -scale : scale;
}

static struct soft make_soft(const struct call *c, int dtype)
{
  const ty_desc *d = &c->out[0].d;
  const struct soft_param *p = c->param;
  return (struct soft){ .r = vec_ops_of(dtype),
    .s = split_at(d, axis_in(p->axis, d->ndim)),
    .scale = scale_of(p),
    .log = p->is_log };
}

static const char *soft_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) && dtype_float(c->out[0].d.dtype)
      ? NULL
      : "data is not of a float dtype";
}

static size_t soft_scratch(const struct call *c)
{
  return c->in[0].d.dtype == c->out[0].d.dtype ? 0 : desc_bytes(&c->out[0].d);
}

static int soft_forward(struct call *c)
{
  struct soft o = make_soft(c, c->out[0].d.dtype);
  o.x = c->in[0].p;
  o.y = c->out[0].p;
  const struct fused_op *pick = find_fused(c, BESIDE_PICK);
  if (pick) o.index = &c->in[pick->operand], o.beside = &c->out[1];
  else if (c->nin > 1) o.length = &c->in[1];
  if (c->in[0].d.dtype != c->out[0].d.dtype) {
    dtype_convert(c->tmp, c->out[0].d.dtype, c->in[0].p, c->in[0].d.dtype, desc_count(&c->in[0].d));
    o.x = c->tmp;
  }
  soft_run(&o);
  return TY_OK;
}

/* Returns the bytes of data's gradient in the output's dtype, in which it is computed. in: gradient
** of the output, output, length, or index of the elements that were picked. */
static size_t soft_back_scratch(const struct call *c)
{
  return c->in[1].d.dtype == c->out[0].d.dtype ? 0 : desc_bytes(&c->in[1].d);
}

static int soft_backward(struct call *c)
{
  int dtype = c->in[1].d.dtype;
  struct soft o = make_soft(c, dtype);
  bool same = dtype == c->out[0].d.dtype;
  o.back = true;
  o.dy = c->in[0].p;
  o.x = c->in[1].p;
  o.y = same ? c->out[0].p : c->tmp;
  struct picked_log picked;
  if (find_fused(c, PRE_PICK_GRAD)) {
    picked = make_picked_log(c->param, &c->in[1], c);
    o.picked = &picked;
  }
  else if (c->nin > 2) o.length = &c->in[2];
  if (c->nout > 1 && c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!c->out[0].p) return TY_OK;
  soft_run(&o);
  if (!same) dtype_convert(c->out[0].p, c->out[0].d.dtype, c->tmp, dtype, desc_count(&c->out[0].d));
  return TY_OK;
}

struct picked_log make_picked_log(
    const void *param, const struct operand *out, const struct call *c)
{
  const struct fused_op *pick = find_fused(c, PRE_PICK_GRAD);
  return (struct picked_log){ .r = vec_ops_of(out->d.dtype),
    .y = out->p,
    .exponentials = pick->exponentials,
    .gradient = &c->in[0],
    .index = &c->in[pick->operand],
    .scale = scale_of(param),
    .k = out->d.dim[out->d.ndim - 1] };
}

void picked_log_part(const struct picked_log *l, int64_t row, int64_t from, int64_t n, void *dx)
{
  const struct vec_ops *r = l->r;
  const void *y = vec_at(r, l->y, row * l->k + from);
  const int64_t j = picked_index(l->index, row, l->k) - from;
  const double g = r->get(l->gradient->p, row);
  if (!l->exponentials) {
    r->softmax->log_back_of_one(dx, y, j, g, l->scale, n);
    return;
  }
  const bool within = j >= 0 && j < n;
  const double own = within ? r->get(y, j) : 0;
  r->affine(dx, y, -g * l->scale, 0, n);
  if (within) r->set(dx, j, (g - own * g) * l->scale);
}

/* -- half types: rows that become float32 one at a time ---------------------------------------- */

struct half_soft {
  struct soft o;                                      /* x, y and dy have the half type */
  cast_fn widen, narrow;
  float *rows;                                        /* three per thread */
};

static void half_body(int64_t begin, int64_t end, void *context)
{
  const struct half_soft *h = context;
  const struct soft *o = &h->o;
  const struct vec_softmax *r = o->r->softmax;
  const int64_t k = o->s.k;
  float *x = h->rows + 3 * k * parallel_index(), *y = x + k, *dy = y + k;
  for (int64_t i = begin; i < end; i++) {
    h->widen(x, (const uint16_t *)o->x + i * k, k);
    if (o->back) {
      h->widen(dy, (const uint16_t *)o->dy + i * k, k);
      r->soft_back(y, x, dy, o->scale, o->log, k);
    }
    else
      r->soft(y, x, o->scale, o->log, k);
    h->narrow((uint16_t *)o->y + i * k, y, k);
  }
}

static size_t half_scratch(const struct call *c)
{
  return sizeof(float) * (size_t)(3 * parallel_threads() * make_soft(c, TY_F32).s.k);
}

static const char *half_refuse(const struct call *c)
{
  if (c->in[0].d.dtype != c->out[0].d.dtype) return "another dtype";
  return make_soft(c, TY_F32).s.inner > 1 ? "the axis is not the last one" : NULL;
}

static const char *half_forward_refuse(const struct call *c)
{
  if (find_fused(c, BESIDE_PICK)) return "elements are picked";
  return c->nin > 1 ? "rows have lengths" : half_refuse(c);
}

static const char *half_backward_refuse(const struct call *c)
{
  if (find_fused(c, PRE_PICK_GRAD)) return "elements are picked";
  if (c->nin > 2) return "rows have lengths";
  return c->in[1].d.dtype != c->out[0].d.dtype ? "another dtype" : half_refuse(c);
}

static void half_run(const struct call *c, struct soft *o)
{
  const int dtype = c->out[0].d.dtype;
  struct half_soft h = { *o, cast_between(dtype, TY_F32), cast_between(TY_F32, dtype), c->tmp };
  parallel_for(o->s.outer, elements_ns(o->s.k * 8), half_body, &h);
}

static int half_forward(struct call *c)
{
  struct soft o = make_soft(c, TY_F32);
  o.x = c->in[0].p;
  o.y = c->out[0].p;
  half_run(c, &o);
  return TY_OK;
}

/* Computes the gradient. in: gradient of the output, output. */
static int half_backward(struct call *c)
{
  struct soft o = make_soft(c, TY_F32);
  o.back = true;
  o.dy = c->in[0].p;
  o.x = c->in[1].p;
  o.y = c->out[0].p;
  if (o.y) half_run(c, &o);
  return TY_OK;
}

static int soft_lead(const struct call *c)
{
  return axis_in(((const struct soft_param *)c->param)->axis, c->out[0].d.ndim);
}

enum { HALVES = T(TY_F16) | T(TY_BF16) };
static const struct kernel soft_cpu[] = {
  { "half rows", half_forward, HALVES, half_forward_refuse, half_scratch },
  { "rows", soft_forward, T_FLOAT | T_INT, soft_refuse, soft_scratch, .lead = soft_lead }, { 0 }
};
static const struct kernel soft_back_cpu[] = {
  { "half rows", half_backward, HALVES, half_backward_refuse, half_scratch },
  { "rows", soft_backward, T_FLOAT | T_INT, NULL, soft_back_scratch, .lead = soft_lead }, { 0 }
};
/* No program has half types with PRE_PICK_GRAD or BESIDE_PICK (pass/epilogue.c). */
static const struct kernel log_cpu[] = {
  { "half rows", half_forward, HALVES, half_forward_refuse, half_scratch,
    .fuses = CAN(BESIDE_PICK) },
  { "rows", soft_forward, T_FLOAT | T_INT, soft_refuse, soft_scratch, .lead = soft_lead,
    .fuses = CAN(BESIDE_PICK) }, { 0 }
};
static const struct kernel log_back_cpu[] = {
  { "half rows", half_backward, HALVES, half_backward_refuse, half_scratch,
    .fuses = CAN(PRE_PICK_GRAD) },
  { "rows", soft_backward, T_FLOAT | T_INT, NULL, soft_back_scratch, .lead = soft_lead,
    .fuses = CAN(PRE_PICK_GRAD) }, { 0 }
};

/* -- SoftmaxActivation ------------------------------------------------------------------------- */

struct activation_param { int64_t mode; };
enum { MODE_CHANNEL, MODE_INSTANCE };
static const struct param activation_params[] = {
  { "mode", P_ENUM, offsetof(struct activation_param, mode), "instance",
    "instance: over the last axis; channel: over axis 1", "channel|instance" },
  { 0 }
};

static struct soft make_activation(const struct call *c)
{
  const struct activation_param *p = c->param;
  const ty_desc *d = &c->out[0].d;
  int axis = p->mode == MODE_CHANNEL && d->ndim > 1 ? 1 : d->ndim - 1;
  return (struct soft){
    .r = vec_ops_of(d->dtype), .s = split_at(d, axis), .scale = 1, .y = c->out[0].p
  };
}

static int activation_forward(struct call *c)
{
  struct soft o = make_activation(c);
  o.x = c->in[0].p;
  soft_run(&o);
  return TY_OK;
}

static int activation_backward(struct call *c)
{
  struct soft o = make_activation(c);
  o.dy = c->in[0].p;
  o.x = c->in[1].p;
  o.back = true;
  soft_run(&o);
  return TY_OK;
}

static const struct kernel activation_cpu[] = { { "rows", activation_forward, T_FLOAT }, { 0 } };
static const struct kernel activation_back_cpu[] = { { "rows", activation_backward, T_FLOAT }, { 0 } };

/* -- softmax_cross_entropy --------------------------------------------------------------------- */

static int cross_shape(struct infer *s)
{
  const int64_t one = 1;
  TRY(shape_is(s, &s->out[0], 1, &one));
  if (!s->in[0].ndim) return TY_OK;
  if (s->in[0].ndim != 2)
    return infer_fail(
        s, TY_ESHAPE, &s->in[0], "expected (rows, classes), got %d dimensions", s->in[0].ndim);
  TRY(shape_is(s, &s->in[1], 1, s->in[0].dim));
  return s->in[1].ndim ? shape_dim(s, &s->in[0], 0, s->in[1].dim[0]) : TY_OK;
}

static int64_t cross_classes(const struct infer *s, int *input)
{
  return s->in[0].ndim == 2 ? s->in[0].dim[1] : 0;
}

static int cross_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_index(s, &s->in[1], &s->in[0], cross_classes(s, NULL));
}

static size_t cross_scratch(const struct call *c) { return desc_bytes(&c->in[0].d); }

static int cross_forward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  struct soft o = { .r = r, .s = split_at(d, 1), .scale = 1, .x = c->in[0].p, .y = c->tmp };
  double loss = 0;
  soft_run(&o);
  for (int64_t i = 0; i < d->dim[0]; i++) {
    double p = r->get(c->tmp, i * d->dim[1] + index_at(&c->in[1], i, d->dim[1]));
    loss -= log(p <= 1e-8 ? 1e-8 : p); /* NaN stays NaN */
  }
  r->set(c->out[0].p, 0, loss);
  return TY_OK;
}

/* Computes the gradient of data. in: head gradient (1,), data, label. */
static int cross_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  struct soft o = { .r = r, .s = split_at(d, 1), .scale = 1, .x = c->in[1].p, .y = c->out[0].p };
  double g = r->get(c->in[0].p, 0);
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!o.y) return TY_OK;
  soft_run(&o);
  for (int64_t i = 0; i < d->dim[0]; i++) {
    int64_t k = i * d->dim[1] + index_at(&c->in[2], i, d->dim[1]);
    r->set(o.y, k, r->get(o.y, k) - 1);
  }
  r->affine(o.y, o.y, g, 0, desc_count(d));
  return TY_OK;
}

static const char *cross_refuse(const struct call *c)
{
  return dtype_float(c->in[0].d.dtype) ? NULL : "data is not of a float dtype";
}
static const struct kernel cross_cpu[] = { { "rows", cross_forward, T_FLOAT | T_INT, cross_refuse, cross_scratch }, { 0 } };
static const struct kernel cross_back_cpu[] = { { "rows", cross_backward, T_FLOAT | T_INT, cross_refuse }, { 0 } };

/* -- the operators ----------------------------------------------------------------------------- */

const struct op op_softmax[] = {
  { .name = "softmax", .alias = "_npx_softmax",
    .doc = "e^(x / temperature), divided by its sum along axis. With use_length only the first length elements of a "
           "row take part, "
           "the rest is 0; length has data's shape without axis.",
    .in = "data length", .in_of = softmax_in, .param = softmax_params, .param_size = sizeof(struct soft_param),
    .check = soft_check,
    .shape = soft_shape, .type = soft_type, .indices = row_counts, .grad_of = softmax_grad,
    .inplace = "0=0", .back_inplace = "0=0 0=1",
    .cpu = soft_cpu, .back_cpu = soft_back_cpu, .flags = OP_NAMED_INPUT,
    .attention = attention_softmax },
  { .name = "log_softmax", .alias = "_npx_log_softmax",
    .doc = "Logarithm of the softmax of x / temperature along axis, computed without leaving the logarithmic scale.",
    .in = "data", .param = other_params, .param_size = sizeof(struct soft_param), .check = log_softmax_check,
    .shape = soft_shape, .type = soft_type, .grad = "g0 o0", .inplace = "0=0", .back_inplace = "0=0 0=1",
    .cpu = log_cpu, .back_cpu = log_back_cpu, .picked_from = rows_are_last, .flags = OP_NAMED_INPUT },
  { .name = "softmin",
    .doc = "Softmax of -x / temperature along axis.",
    .in = "data", .param = other_params, .param_size = sizeof(struct soft_param), .check = softmin_check,
    .shape = soft_shape, .type = soft_type, .grad = "g0 o0", .inplace = "0=0", .back_inplace = "0=0 0=1",
    .cpu = soft_cpu, .back_cpu = soft_back_cpu },
  { .name = "SoftmaxActivation",
    .doc = "Softmax over the last axis (mode instance) or over axis 1 (mode channel); older form of softmax.",
    .in = "data", .param = activation_params, .param_size = sizeof(struct activation_param), .grad = "g0 o0",
    .inplace = "0=0", .back_inplace = "0=0 0=1", .cpu = activation_cpu, .back_cpu = activation_back_cpu },
  { .name = "softmax_cross_entropy",
    .doc = "Sum over the rows of data (rows, classes) of -log of the softmax at the row's label, (1,); the label gets "
           "a zero gradient.",
    .in = "data label", .shape = cross_shape, .type = cross_type, .indices = cross_classes, .grad = "g0 i0 i1", .cpu = cross_cpu,
    .back_cpu = cross_back_cpu },
  { 0 }
};
