/* losses.c - regression outputs, SVMOutput, MakeLoss, make_loss (kernels/losses.cu): data goes
** through as it is; the gradients are those of losses that never are computed. */
#include "cuda/family.h"

static int loss_family(
    const struct call *c, const char *name, int data, int label, int team, cu_function *f)
{
  return cuda_family(c->device, FAMILY_losses, name, f, "T=%s LABEL=%s TEAM=%d", cuda_type(data),
      cuda_type(label), team);
}

static const char *float_refuse(const struct call *c)
{
  return c->nin && !dtype_float(c->in[0].d.dtype) ? "data is not of a float dtype" : NULL;
}

static int copy_forward(struct call *c)
{
  if (!c->out[0].p || c->out[0].p == c->in[0].p) return TY_OK;
  return device_copy(c->device, c->out[0].p, c->device, c->in[0].p, desc_bytes(&c->in[0].d));
}

static int logistic_forward(struct call *c)
{
  int64_t n = desc_count(&c->in[0].d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(loss_family(c, "logistic", c->in[0].d.dtype, TY_F32, 1, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &n };
  return cuda_run(c, f, n, params);
}

enum { SQUARED, ABSOLUTE };

/* in: output, label */
static int regression_backward(struct call *c)
{
  const ty_desc *label = &c->in[1].d;
  int64_t n = desc_count(label), each = n / label->dim[0];
  int32_t absolute = cuda_what(c) == ABSOLUTE;
  union cuda_scalar scale =
      cuda_scalar_of(c->in[0].d.dtype, cuda_number(c, "grad_scale", 1) / (double)each);
  cu_function f;
  TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  TRY(loss_family(c, "regression", c->in[0].d.dtype, label->dtype, 1, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &n, &scale, &absolute };
  return cuda_run(c, f, n, params);
}

static const char *svm_refuse(const struct call *c)
{
  return c->in[0].d.ndim < 2 ? "scores without rows" : float_refuse(c);
}

/* in: output, label */
static int svm_backward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  int64_t k = d->dim[d->ndim - 1], rows = desc_count(d) / k;
  int team = cuda_team(rows, k, 1);
  double factor = cuda_number(c, "regularization_coefficient", 1);
  union cuda_scalar margin = cuda_scalar_of(d->dtype, cuda_number(c, "margin", 1)),
                    scale = cuda_scalar_of(d->dtype, factor);
  int32_t linear = cuda_flag(c, "use_linear");
  cu_function f;
  TRY(cuda_zero(c, &c->out[1]));
  if (!c->out[0].p) return TY_OK;
  TRY(loss_family(c, "margins", d->dtype, c->in[1].d.dtype, team, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &rows, &k, &margin, &scale, &linear };
  return cuda_run(c, f, rows * team, params);
}

enum { PER_BATCH, PER_NOTHING, PER_VALID };

/* the counted elements */
static size_t make_scratch(const struct call *c) { return sizeof(int64_t); }

static int make_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = desc_count(d);
  int per = (int)cuda_number(c, "normalization", PER_NOTHING);
  double scale = cuda_number(c, "grad_scale", 1);
  void *count = per == PER_VALID ? c->tmp : NULL;
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  if (per == PER_BATCH) scale /= (double)(n / d->dim[d->ndim - 1]);
  if (per == PER_VALID) {
    union cuda_scalar limit = cuda_scalar_of(d->dtype, cuda_number(c, "valid_thresh", 0));
    TRY(loss_family(c, "count_above", d->dtype, TY_F32, CUDA_BLOCK, &f));
    void *params[] = { &count, &c->in[0].p, &limit, &n };
    TRY(cuda_launch(c->device, f, 1, CUDA_BLOCK, 0, params));
  }
  TRY(loss_family(c, "constant", d->dtype, TY_F32, 1, &f));
  void *params[] = { &c->out[0].p, &count, &n, &scale };
  return cuda_run(c, f, n, params);
}

const struct kernel cuda_copies[] = { { "copy", copy_forward, T_ANY, float_refuse }, { 0 } };
static const struct kernel logistic[] = {
  { "elements", logistic_forward, T_ANY, float_refuse }, { 0 }
};
static const struct kernel regression_back[] = {
  { "elements", regression_backward, T_ANY, float_refuse }, { 0 }
};
static const struct kernel svm_back[] = { { "rows", svm_backward, T_ANY, svm_refuse }, { 0 } };
static const struct kernel make_back[] = {
  { "elements", make_backward, T_FLOATS, .scratch = make_scratch }, { 0 }
};

const struct op_kernels cuda_losses[] = {
  { "LinearRegressionOutput", cuda_copies, regression_back },
  { "LogisticRegressionOutput", logistic, regression_back },
  { "MAERegressionOutput", cuda_copies, regression_back, ABSOLUTE },
  { "SVMOutput", cuda_copies, svm_back },
  { "MakeLoss", cuda_copies, make_back },
  { 0 }
};
