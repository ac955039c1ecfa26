/* unfolding.c - im2col, col2im, LRN (kernels/unfold.cu). */
#include "cuda/window.h"
#include "kernel/vec/vec.h"

struct cuda_window cuda_window_of(const struct call *c, const ty_desc *image, int64_t n)
{
  const struct dims *kernel = op_dims(c->op, c->param, "kernel"),
                    *stride = op_dims(c->op, c->param, "stride"),
                    *dilate = op_dims(c->op, c->param, "dilate"),
                    *pad = op_dims(c->op, c->param, "pad");
  struct cuda_window s = { n, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 },
    { 0 } };
  for (int i = 0; i < kernel->n; i++) {
    int a = 3 - (int)kernel->n + i;
    s.in[a] = image->dim[i + 2];
    s.kernel[a] = kernel->d[i];
    s.stride[a] = stride->d[i];
    s.dilate[a] = dilate->d[i];
    s.pad[a] = pad->d[i];
    s.out[a] = (s.in[a] + 2 * s.pad[a] - (s.kernel[a] - 1) * s.dilate[a] - 1) / s.stride[a] + 1;
  }
  return s;
}

static int run_taps(const struct call *c, const struct operand *image, bool fold)
{
  struct cuda_window s = cuda_window_of(c, &image->d, desc_count(&c->out[0].d));
  int32_t add = c->add & 1;
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_unfold, fold ? "fold" : "unfold", &f, "T=%s",
      cuda_type(image->d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &s, &add };
  return cuda_run(c, f, s.n, params);
}

static int unfold_image(struct call *c) { return run_taps(c, &c->in[0], false); }
static int unfold_back(struct call *c)  { return run_taps(c, &c->out[0], true); }
static int fold_columns(struct call *c) { return run_taps(c, &c->out[0], true); }
static int fold_back(struct call *c)    { return run_taps(c, &c->in[0], false); }

/* -- LRN --------------------------------------------------------------------------------------- */

struct lrn_args { int64_t n, k, inner, half; double alpha, beta, knorm; };
static struct lrn_args lrn_of(const struct call *c, const ty_desc *d)
{
  struct split s = split_at(d, 1);
  int64_t size = (int64_t)cuda_number(c, "nsize", 1);
  return (struct lrn_args){ desc_count(d), s.k, s.inner, size / 2,
    cuda_number(c, "alpha", 0) / (double)size, cuda_number(c, "beta", 0),
    cuda_number(c, "knorm", 0) };
}

static int lrn_forward(struct call *c)
{
  struct lrn_args s = lrn_of(c, &c->in[0].d);
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_unfold, "lrn", &f, "T=%s", cuda_type(c->in[0].d.dtype)));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* in: head gradient, data, norm */
static int lrn_backward(struct call *c)
{
  struct lrn_args s = lrn_of(c, &c->in[1].d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(cuda_family(c->device, FAMILY_unfold, "lrn_back", &f, "T=%s", cuda_type(c->in[1].d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &s };
  return cuda_run(c, f, s.n, params);
}

static const struct kernel unfolds[] = { { "taps", unfold_image, T_FLOAT }, { 0 } };
static const struct kernel unfolds_back[] = { { "taps", unfold_back, T_FLOAT, .add = 1 }, { 0 } };
static const struct kernel folds[] = { { "taps", fold_columns, T_FLOAT }, { 0 } };
static const struct kernel folds_back[] = { { "taps", fold_back, T_FLOAT, .add = 1 }, { 0 } };
static const struct kernel lrns[] = { { "channels", lrn_forward, T_FLOAT }, { 0 } };
static const struct kernel lrns_back[] = { { "channels", lrn_backward, T_FLOAT }, { 0 } };

const struct op_kernels cuda_unfolding[] = {
  { "im2col", unfolds, unfolds_back },
  { "col2im", folds, folds_back },
  { "LRN", lrns, lrns_back },
  { 0 }
};
