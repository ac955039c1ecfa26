/* unfolding.c - im2col, col2im, LRN (kernels/unfold.cu). */
#include "cuda/row.h"
#include "cuda/window.h"
#include "kernel/vec/vec.h"

struct cuda_window cuda_make_window(const struct call *c, const ty_desc *image, int64_t n)
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

static int64_t unfold_sizes(const struct call *c, void *s)
{
  struct cuda_window *w = s;
  *w = cuda_make_window(c, &c->in[0].d, desc_count(&c->out[0].d));
  return w->n;
}

static int64_t fold_sizes(const struct call *c, void *s)
{
  struct cuda_window *w = s;
  *w = cuda_make_window(c, &c->out[0].d, desc_count(&c->out[0].d));
  return w->n;
}

/* -- LRN --------------------------------------------------------------------------------------- */

struct lrn_args { int64_t n, k, inner, half; double alpha, beta, knorm; };
static int64_t lrn_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  struct split at = split_at(d, 1);
  int64_t size = (int64_t)cuda_number(c, "nsize", 1);
  *(struct lrn_args *)s = (struct lrn_args){ desc_count(d), at.k, at.inner, size / 2,
    cuda_number(c, "alpha", 0) / (double)size, cuda_number(c, "beta", 0),
    cuda_number(c, "knorm", 0) };
  return desc_count(d);
}

#define ROW(table, shown, kernel_, arguments, sizes, adds) \
  static const struct kernel table[] = { \
    { shown, CUDA_ROW(FAMILY_unfold, kernel_, "T=$i0", arguments, sizes), .types = T_FLOAT, \
      .add = adds }, { 0 } };
ROW(unfolds,      "taps",     "unfold",   "o0 i0 s add",   unfold_sizes, 0)
ROW(unfolds_back, "taps",     "fold",     "o0 i0 s add",   fold_sizes,   1)
ROW(folds,        "taps",     "fold",     "o0 i0 s add",   fold_sizes,   0)
ROW(folds_back,   "taps",     "unfold",   "o0 i0 s add",   unfold_sizes, 1)
ROW(lrns,         "channels", "lrn",      "o0 o1 i0 s",    lrn_sizes,    0)
/* in: head gradient, data, the norm that forward wrote */
ROW(lrns_back,    "channels", "lrn_back", "o0 i0 i1 i2 s", lrn_sizes,    0)

const struct op_kernels cuda_unfolding[] = {
  { "im2col", unfolds, unfolds_back },
  { "col2im", folds, folds_back },
  { "LRN", lrns, lrns_back },
  { 0 }
};
