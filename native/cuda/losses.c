/* losses.c - regression outputs, SVMOutput, MakeLoss, make_loss (kernels/losses.cu). Forward copies
** data; gradients are those of losses whose value is not computed. */
#include "cuda/row.h"

static const char *float_refuse(const struct call *c)
{
  return c->nin && !dtype_float(c->in[0].d.dtype) ? "data is not of a float dtype" : NULL;
}

static int copy_forward(struct call *c)
{
  if (!c->out[0].p || c->out[0].p == c->in[0].p) return TY_OK;
  return device_copy(c->device, c->out[0].p, c->device, c->in[0].p, desc_bytes(&c->in[0].d));
}

enum { SQUARED, ABSOLUTE };

/* in: output, label */
struct regression_args { int64_t n; union cuda_scalar scale; int64_t absolute; };
static int64_t regression_sizes(const struct call *c, void *s)
{
  const ty_desc *label = &c->in[1].d;
  int64_t n = desc_count(label), each = n / label->dim[0];
  double scale = cuda_number(c, "grad_scale", 1) / (double)each;
  *(struct regression_args *)s = (struct regression_args){ n,
    cuda_make_scalar(c->in[0].d.dtype, scale), cuda_what(c) == ABSOLUTE };
  return n;
}

static const char *svm_refuse(const struct call *c)
{
  return c->in[0].d.ndim < 2 ? "scores without rows" : float_refuse(c);
}

/* in: output, label */
struct svm_args { int64_t rows, k; union cuda_scalar margin, scale; int64_t linear, team; };
static int64_t svm_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->in[0].d;
  const int64_t k = d->dim[d->ndim - 1], rows = desc_count(d) / k, team = cuda_team(rows, k, 1);
  const double margin = cuda_number(c, "margin", 1);
  const double factor = cuda_number(c, "regularization_coefficient", 1);
  *(struct svm_args *)s = (struct svm_args){ rows, k, cuda_make_scalar(d->dtype, margin),
    cuda_make_scalar(d->dtype, factor), cuda_flag(c, "use_linear"), team };
  return rows * team;
}

enum { PER_BATCH, PER_NOTHING, PER_VALID };

/* Returns the bytes of a count of elements. */
static size_t make_scratch(const struct call *c) { return sizeof(int64_t); }

static int make_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = desc_count(d);
  int per = (int)cuda_number(c, "normalization", PER_NOTHING);
  double scale = cuda_number(c, "grad_scale", 1);
  void *count = per == PER_VALID ? c->tmp : NULL;
  if (!c->out[0].p) return TY_OK;
  if (per == PER_BATCH) scale /= (double)(n / d->dim[d->ndim - 1]);
  if (per == PER_VALID) {
    union cuda_scalar limit = cuda_make_scalar(d->dtype, cuda_number(c, "valid_thresh", 0));
    TRY(cuda_start(c, FAMILY_losses, "count_above", "T=$o0 LABEL=float TEAM=256", CUDA_BLOCK,
        (void *[]){ &count, &c->in[0].p, &limit, &n }));
  }
  return cuda_start(c, FAMILY_losses, "constant", "T=$o0 LABEL=float TEAM=1", n,
      (void *[]){ &c->out[0].p, &count, &n, &scale });
}

const struct kernel cuda_copies[] = { { "copy", copy_forward, T_ANY, float_refuse }, { 0 } };
static const struct kernel logistic[] = {
  { "elements", CUDA_ROW(FAMILY_losses, "logistic", "T=$i0 LABEL=float TEAM=1", "o0 i0 s0"),
    .types = T_ANY, .refuse = float_refuse }, { 0 }
};
static const struct kernel regression_back[] = {
  { "elements", CUDA_ROW(FAMILY_losses, "regression", "T=$i0 LABEL=$i1 TEAM=1",
    "o0 i0 i1 s0 s1 s2", regression_sizes, 2), .types = T_ANY, .refuse = float_refuse }, { 0 }
};
static const struct kernel svm_back[] = {
  { "rows", CUDA_ROW(FAMILY_losses, "margins", "T=$i0 LABEL=$i1 TEAM=%5",
    "o0 i0 i1 s0 s1 s2 s3 s4", svm_sizes, 2), .types = T_ANY, .refuse = svm_refuse }, { 0 }
};
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
