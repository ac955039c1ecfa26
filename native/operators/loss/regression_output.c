/* regression_output.c - regression outputs, SVMOutput, MakeLoss, make_loss,
** IdentityAttachKLSparseReg.
**
** All but the last ignore head gradients: their gradient is that of a loss whose value is never
** computed. Labels may be of another dtype than data; they are converted in scratch.
*/
#include "kernel/strided_copy.h"
#include "kernel/vec/softmax.h"
#include "op/op.h"

static const char *float_refuse(const struct call *c)
{
  return c->nin && !dtype_float(c->in[0].d.dtype) ? "data is not of a float dtype" : NULL;
}

static int label_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return s->in[1].dtype == TY_NODTYPE ? type_is(s, &s->in[1], s->in[0].dtype) : TY_OK;
}

static int64_t classes_of(const struct infer *s, int *input)
{
  const ty_desc *d = &s->in[0];
  return d->ndim ? d->dim[d->ndim - 1] : 0;
}

static int class_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_index(s, &s->in[1], &s->in[0], classes_of(s, NULL));
}

static int copy_forward(struct call *c)
{
  if (c->out[0].p != c->in[0].p)
    memcpy(c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d));
  return TY_OK;
}

/* Returns the bytes of the label in the output's dtype. in: output, label. */
static size_t label_scratch(const struct call *c)
{
  return c->in[0].d.dtype == c->in[1].d.dtype
      ? 0
      : (size_t)desc_count(&c->in[1].d) * dtype_size(c->in[0].d.dtype);
}

static const void *convert_label(struct call *c)
{
  if (c->in[0].d.dtype == c->in[1].d.dtype) return c->in[1].p;
  dtype_convert(c->tmp, c->in[0].d.dtype, c->in[1].p, c->in[1].d.dtype, desc_count(&c->in[1].d));
  return c->tmp;
}

static void no_gradient(const struct operand *out)
{
  if (out->p) memset(out->p, 0, desc_bytes(&out->d));
}

/* -- regression -------------------------------------------------------------------------------- */

struct scale_param { double grad_scale; };
static const struct param scale_params[] = {
  { "grad_scale", P_FLOAT, offsetof(struct scale_param, grad_scale), "1", "factor of the gradient" },
  { 0 }
};

/* Infers the label. It may have any shape with data's batch and size; if unknown, it gets data's
** shape, or (n,) for (n, 1). */
static int regression_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0], *label = &s->in[1];
  if (!d.ndim) return TY_OK;
  if (!label->ndim) return shape_is(s, label, d.ndim == 2 && d.dim[1] == 1 ? 1 : d.ndim, d.dim);
  if (!desc_known(&d) || !desc_known(label)) return TY_OK;
  if (label->dim[0] == d.dim[0] && desc_count(label) == desc_count(&d)) return TY_OK;
  char want[160], got[160];
  int code = infer_fail(s, TY_ESHAPE, label, "expected the batch and size of data %s, got %s",
      text_shape(&d, want, sizeof want), text_shape(label, got, sizeof got));
  fail_argument("label", want, got);
  return code;
}

enum { LINEAR, LOGISTIC, ABSOLUTE };
struct elements { const struct vec_ops *r; int kind; void *y; const void *u, *v; double a; };

static void elements_body(int64_t begin, int64_t end, void *context)
{
  struct elements *e = context;
  const struct vec_ops *r = e->r;
  void *y = vec_at(r, e->y, begin);
  if (!e->v)
    r->sigmoid(y, vec_at(r, e->u, begin), end - begin);
  else if (e->kind == ABSOLUTE)
    r->gap_sign(y, vec_at(r, e->u, begin), vec_at(r, e->v, begin), e->a, end - begin);
  else
    r->gap(y, vec_at(r, e->u, begin), vec_at(r, e->v, begin), e->a, end - begin);
}

static int logistic_forward(struct call *c)
{
  struct elements e = { vec_ops_of(c->in[0].d.dtype), LOGISTIC, c->out[0].p, c->in[0].p, NULL, 0 };
  parallel_for(desc_count(&c->in[0].d), NS_ELEMENT, elements_body, &e);
  return TY_OK;
}

static int regression_backward(struct call *c, int kind)
{
  const struct scale_param *p = c->param;
  const ty_desc *label = &c->in[1].d;
  int64_t n = desc_count(label), each = n / MAX(label->dim[0], 1);
  struct elements e = { vec_ops_of(c->in[0].d.dtype), kind, c->out[0].p, c->in[0].p,
    convert_label(c), p->grad_scale / (double)MAX(each, 1) };
  no_gradient(&c->out[1]);
  if (e.y) parallel_for(n, NS_ELEMENT, elements_body, &e);
  return TY_OK;
}

static int gap_backward(struct call *c)      { return regression_backward(c, LINEAR); }
static int absolute_backward(struct call *c) { return regression_backward(c, ABSOLUTE); }

static const struct kernel identity_cpu[] = { { "copy", copy_forward, T_FLOAT | T_INT, float_refuse }, { 0 } };
static const struct kernel logistic_cpu[] = { { "rows", logistic_forward, T_FLOAT | T_INT, float_refuse }, { 0 } };
static const struct kernel gap_back_cpu[] = { { "rows", gap_backward, T_FLOAT | T_INT, float_refuse, label_scratch }, { 0 } };
static const struct kernel absolute_back_cpu[] = { { "rows", absolute_backward, T_FLOAT | T_INT, float_refuse, label_scratch },
                                                   { 0 } };

/* -- SVMOutput --------------------------------------------------------------------------------- */

struct svm_param { double margin, regularization_coefficient; int64_t use_linear; };
static const struct param svm_params[] = {
  { "margin",                     P_FLOAT, offsetof(struct svm_param, margin),                     "1",
    "distance that a score should keep" },
  { "regularization_coefficient", P_FLOAT, offsetof(struct svm_param, regularization_coefficient), "1",
    "factor of the gradient" },
  { "use_linear",                 P_BOOL,  offsetof(struct svm_param, use_linear),                 "0",
    "hinge loss instead of its square" },
  { 0 }
};

static int svm_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0];
  return d.ndim ? shape_is(s, &s->in[1], MAX(d.ndim - 1, 1), d.dim) : TY_OK;
}

static void svm_row(const struct vec_ops *r, void *dx, const void *y, const struct svm *v,
    int64_t k, int64_t target)
{
  r->softmax->svm(dx, y, v, k);
  if (target < 0) return;
  double gap = v->margin - r->get(y, target);
  r->set(dx, target, gap <= 0 ? 0 : v->linear ? -v->scale : -2 * v->scale * gap);
}

static int svm_backward(struct call *c)
{
  const struct svm_param *p = c->param;
  const ty_desc *d = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  struct svm v = { p->margin, p->regularization_coefficient, p->use_linear };
  int64_t k = d->dim[d->ndim - 1], n = desc_count(d) / k;
  no_gradient(&c->out[1]);
  if (!c->out[0].p) return TY_OK;
  for (int64_t i = 0; i < n; i++) {
    double label = number_at(&c->in[1], i);
    svm_row(r, vec_at(r, c->out[0].p, i * k), vec_at(r, c->in[0].p, i * k), &v, k,
        label >= 0 && label < (double)k ? (int64_t)label : -1);
  }
  return TY_OK;
}

static const struct kernel svm_back_cpu[] = { { "rows", svm_backward, T_FLOAT | T_INT, float_refuse }, { 0 } };

/* -- MakeLoss ---------------------------------------------------------------------------------- */

struct loss_param { double grad_scale, valid_thresh; int64_t normalization; };
enum { PER_BATCH, PER_NOTHING, PER_VALID };
static const struct param loss_params[] = {
  { "grad_scale",    P_FLOAT, offsetof(struct loss_param, grad_scale),    "1",    "the gradient" },
  { "valid_thresh",  P_FLOAT, offsetof(struct loss_param, valid_thresh),  "0",
    "normalization valid counts elements above this" },
  { "normalization", P_ENUM,  offsetof(struct loss_param, normalization), "null",
    "the gradient is divided by: null nothing, batch all dims but the last, valid counted elements", "batch|null|valid" },
  { 0 }
};

static const char *loss_grad(const void *p)
{
  return ((const struct loss_param *)p)->normalization == PER_VALID ? "i0" : "";
}

static int loss_backward(struct call *c)
{
  const struct loss_param *p = c->param;
  const ty_desc *d = &c->out[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  int64_t n = desc_count(d), by = 1;
  if (p->normalization == PER_BATCH) by = n / d->dim[d->ndim - 1];
  if (p->normalization == PER_VALID) by = MAX(r->count_above(c->in[0].p, p->valid_thresh, n), 1);
  r->fill(c->out[0].p, p->grad_scale / (double)by, n);
  return TY_OK;
}

static const struct kernel loss_back_cpu[] = { { "rows", loss_backward, T_FLOAT }, { 0 } };

/* -- make_loss --------------------------------------------------------------------------------- */

static int ones_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  uint64_t one = 0;
  if (!c->out[0].p) return TY_OK;
  set_number(&one, d->dtype, 1);
  return move_fill(c->device, c->out[0].p, &one, dtype_size(d->dtype), desc_count(d));
}

MOVE_ANYWHERE(copy_kernels, copy_kernel)
MOVE_ANYWHERE(ones_back_kernels, ones_backward)

/* -- IdentityAttachKLSparseReg ----------------------------------------------------------------- */

struct sparse_param { double sparseness_target, penalty, momentum; };
static const struct param sparse_params[] = {
  { "sparseness_target", P_FLOAT, offsetof(struct sparse_param, sparseness_target), "0.1",
    "activation that each unit should have on average", NULL, "[0,1]" },
  { "penalty",           P_FLOAT, offsetof(struct sparse_param, penalty),           "0.001", "weight of the penalty" },
  { "momentum",          P_FLOAT, offsetof(struct sparse_param, momentum),          "0.9",
    "weight of the old moving average", NULL, "[0,1]" },
  { 0 }
};

static int sparse_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[0], &s->out[0]));
  ty_desc d = s->in[0];
  return d.ndim ? shape_is(s, &s->in[1], 1, &d.dim[d.ndim > 1]) : TY_OK;
}

/* Computes the gradient of a unit, an index of axis 1. in: head gradient, data, moving average
** (changed: the gradient uses the new one). */
static void sparse_unit(struct call *c, const struct vec_ops *r, struct split s, int64_t unit)
{
  const struct sparse_param *p = c->param;
  double sum = 0, t = p->sparseness_target;
  for (int64_t o = 0; o < s.outer; o++)
    sum += r->sum(vec_at(r, c->in[1].p, (o * s.k + unit) * s.inner), s.inner);
  r->set(c->in[2].p, unit,
      p->momentum * r->get(c->in[2].p, unit) +
          (1 - p->momentum) * sum / (double)(s.outer * s.inner));
  double average = r->get(c->in[2].p, unit),
         more = p->penalty * (-t / average + (1 - t) / (1 - average));
  for (int64_t o = 0; c->out[0].p && o < s.outer; o++) {
    int64_t start = (o * s.k + unit) * s.inner;
    r->affine(vec_at(r, c->out[0].p, start), vec_at(r, c->in[0].p, start), 1, more, s.inner);
  }
}

static int sparse_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  struct split s = split_at(d, d->ndim > 1);
  for (int64_t unit = 0; unit < s.k; unit++) sparse_unit(c, vec_ops_of(d->dtype), s, unit);
  return TY_OK;
}

static const struct kernel sparse_back_cpu[] = { { "rows", sparse_backward, T_FLOAT }, { 0 } };

/* -- the operators ----------------------------------------------------------------------------- */

#define REGRESSION \
  .in = "data label", .param = scale_params, .param_size = sizeof(struct scale_param), \
  .shape = regression_shape, .type = label_type, .grad = "o0 i1", .inplace = "0=0", \
  .back_inplace = "0=0", .flags = OP_LOSS

const struct op op_regression_output[] = {
  { .name = "LinearRegressionOutput", .alias = "_sparse_LinearRegressionOutput", .cpu = identity_cpu,
    .back_cpu = gap_back_cpu, REGRESSION,
    .doc = "Data as it is; the gradient is (data - label) grad_scale / m, m outputs per sample, whatever the head gradient." },
  { .name = "LogisticRegressionOutput", .alias = "_sparse_LogisticRegressionOutput", .cpu = logistic_cpu,
    .back_cpu = gap_back_cpu, REGRESSION,
    .doc = "Sigmoid of data; the gradient is (sigmoid - label) grad_scale / m, m outputs per sample, whatever the head gradient." },
  { .name = "MAERegressionOutput", .alias = "_sparse_MAERegressionOutput", .cpu = identity_cpu,
    .back_cpu = absolute_back_cpu, REGRESSION,
    .doc = "Data as it is; the gradient is grad_scale / m where data is above its label and -grad_scale / m "
           "elsewhere, m outputs per sample." },
  { .name = "SVMOutput", .in = "data label", .param = svm_params, .param_size = sizeof(struct svm_param),
    .shape = svm_shape, .type = class_type, .indices = classes_of,
    .doc = "Scores (rows, classes) as they are, one dimension is one row; the gradient is that of the one-against-all "
           "hinge loss, squared unless use_linear.",
    .grad = "o0 i1", .inplace = "0=0", .cpu = identity_cpu, .back_cpu = svm_back_cpu, .flags = OP_LOSS },
  { .name = "MakeLoss", .in = "data", .param = loss_params, .param_size = sizeof(struct loss_param), .grad_of = loss_grad,
    .doc = "Data as it is, taken as a loss: its gradient is grad_scale, divided as normalization says, whatever the head gradient.",
    .inplace = "0=0", .cpu = identity_cpu, .back_cpu = loss_back_cpu, .flags = OP_LOSS | OP_NAMED_INPUT },
  { .name = "make_loss", .alias = "_sparse_make_loss", .in = "data", .out = "loss", .grad = "",
    .doc = "Data as it is, taken as a loss: its gradient is 1, whatever the head gradient.",
    .inplace = "0=0", .cpu = copy_kernels, .back_cpu = ones_back_kernels, .flags = OP_LOSS },
  { .name = "IdentityAttachKLSparseReg", .in = "data moving_avg!", .param = sparse_params,
    .param_size = sizeof(struct sparse_param),
    .doc = "Data as it is; backward moves the average activation of each unit and adds the slope of its divergence "
           "from sparseness_target.",
    .shape = sparse_shape, .grad = "g0 i0 i1!", .inplace = "0=0", .cpu = identity_cpu, .back_cpu = sparse_back_cpu,
    .flags = OP_OWN_GRADIENT },
  { 0 }
};
