/* im2col.c - im2col: a matrix whose columns are the elements under the window at each position;
** col2im: its adjoint, which adds columns to an image. Each channel of each image is processed
** separately.
*/
#include "op/op.h"
#include "operators/nn/convolution.h"

struct unfold { struct dims kernel, stride, dilate, pad, output_size; };

#define WINDOW \
  { "kernel", P_SHAPE, offsetof(struct unfold, kernel), NULL, "size of the window", NULL, \
    SIZES_RANGE }, \
  { "stride", P_SHAPE, offsetof(struct unfold, stride), "()", "steps of the window; (): 1", NULL, \
    SIZES_RANGE }, \
  { "dilate", P_SHAPE, offsetof(struct unfold, dilate), "()", \
    "distance of the window's elements; (): 1", NULL, SIZES_RANGE }, \
  { "pad",    P_SHAPE, offsetof(struct unfold, pad),    "()", "zeros on both sides; (): 0", NULL, \
    SIZES_RANGE }
static const struct param im2col_params[] = { WINDOW, { 0 } };
static const struct param col2im_params[] = {
  { "output_size", P_SHAPE, offsetof(struct unfold, output_size), NULL, "spatial shape of the image", NULL, SIZES_RANGE }, WINDOW, { 0 }
};

static int unfold_check(void *param)
{
  struct unfold *p = param;
  struct conv c = { .kernel = p->kernel,
    .stride = p->stride,
    .dilate = p->dilate,
    .pad = p->pad,
    .num_filter = 1,
    .num_group = 1,
    .layout = -1 };
  TRY(conv_check(&c));
  p->stride = c.stride;
  p->dilate = c.dilate;
  p->pad = c.pad;
  return TY_OK;
}

static int check_fold(void *param)
{
  struct unfold *p = param;
  TRY(unfold_check(param));
  if (p->output_size.n == p->kernel.n) return TY_OK;
  int code = fail(TY_EVALUE,
      "parameter output_size: expected %lld entries, as kernel has, got %lld",
      (long long)p->kernel.n, (long long)p->output_size.n);
  fail_argument("output_size", "as many entries as kernel has", NULL);
  return code;
}

/* -- inference --------------------------------------------------------------------------------- */

/* Returns the positions of the window along axis i; 0: unknown, -1: it does not fit. */
static int64_t position_count(const struct unfold *p, int i, int64_t in)
{
  int64_t free = in + 2 * p->pad.d[i] - (p->kernel.d[i] - 1) * p->dilate.d[i] - 1;
  return !in ? 0 : free < 0 ? -1 : free / p->stride.d[i] + 1;
}

/* Sets *columns to the positions of the window (0: unknown), *taps to its elements. Fails if the
** window does not fit. */
static int count_columns(
    struct infer *s, ty_desc *slot, const int64_t *in, int64_t *columns, int64_t *taps)
{
  const struct unfold *p = s->param;
  *columns = *taps = 1;
  for (int i = 0; i < (int)p->kernel.n; i++) {
    int64_t n = position_count(p, i, in[i]);
    if (n < 0)
      return infer_fail(s, TY_ESHAPE, slot,
          "the window does not fit into axis %d of %lld elements with its padding", i + 2,
          (long long)in[i]);
    *columns = size_times(*columns, n);
    *taps = size_times(*taps, p->kernel.d[i]);
  }
  return TY_OK;
}

static int im2col_shape(struct infer *s)
{
  const struct unfold *p = s->param;
  ty_desc *x = &s->in[0];
  int64_t columns, taps;
  if (!x->ndim) return TY_OK;
  if (x->ndim != p->kernel.n + 2)
    return infer_fail(s, TY_ESHAPE, x, "expected %lld dimensions for a kernel of %lld, got %d",
        (long long)p->kernel.n + 2, (long long)p->kernel.n, x->ndim);
  TRY(count_columns(s, x, x->dim + 2, &columns, &taps));
  TRY(shape_is(s, &s->out[0], 3, (int64_t[]){ x->dim[0], size_times(x->dim[1], taps), columns }));
  return shape_dim(s, x, 0, s->out[0].dim[0]);
}

static int col2im_shape(struct infer *s)
{
  const struct unfold *p = s->param;
  ty_desc *x = &s->in[0];
  int64_t columns, taps, dim[5];
  TRY(count_columns(s, &s->out[0], p->output_size.d, &columns, &taps));
  TRY(shape_is(s, x, 3, (int64_t[]){ 0, 0, columns }));
  if (x->dim[1] % taps)
    return infer_fail(s, TY_ESHAPE, x, "%lld rows are not a multiple of the window's %lld elements",
        (long long)x->dim[1], (long long)taps);
  dim[0] = x->dim[0];
  dim[1] = x->dim[1] / taps;
  memcpy(dim + 2, p->output_size.d, sizeof *dim * (size_t)p->kernel.n);
  TRY(shape_is(s, &s->out[0], (int)p->kernel.n + 2, dim));
  return shape_dim(s, x, 0, s->out[0].dim[0]);
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* Returns the window of one channel of an image. */
static struct window make_window(const struct unfold *p, const ty_desc *image)
{
  struct window w = { .n = 1, .groups = 1, .channels = 1, .filters = 1, .dtype = image->dtype };
  for (int a = 0; a < 3; a++) {
    int i = a - (3 - (int)p->kernel.n);
    bool has = i >= 0;
    w.in[a] = has ? image->dim[i + 2] : 1;
    w.out[a] = has ? position_count(p, i, image->dim[i + 2]) : 1;
    w.kernel[a] = has ? p->kernel.d[i] : 1;
    w.stride[a] = has ? p->stride.d[i] : 1;
    w.dilate[a] = has ? p->dilate.d[i] : 1;
    w.pad[a] = has ? p->pad.d[i] : 0;
  }
  return w;
}

/* nanoseconds to copy an element of columns: 1, an estimate */
#define FOLD_NS (PARALLEL_CHUNK_NS / 10000)

struct unfold_job { struct window w; size_t size; const char *from; char *to; bool fold, add; };

static void fold_range(int64_t begin, int64_t end, void *context)
{
  const struct unfold_job *j = context;
  const int64_t image = window_in(&j->w), columns = window_taps(&j->w) * window_out(&j->w);
  for (int64_t i = begin; i < end; i++) {
    if (j->fold)
      conv_col2im(&j->w, j->from + (size_t)(i * columns) * j->size,
          j->to + (size_t)(i * image) * j->size, j->add);
    else
      conv_im2col(&j->w, j->from + (size_t)(i * image) * j->size,
          j->to + (size_t)(i * columns) * j->size, j->add);
  }
}

static int unfold_run(const struct call *c, const struct operand *image, bool fold)
{
  struct unfold_job j = { make_window(c->param, &image->d), dtype_size(image->d.dtype), c->in[0].p,
    c->out[0].p, fold, c->add & 1 };
  parallel_for_stoppable(image->d.dim[0] * image->d.dim[1],
      cost_ns(FOLD_NS, window_taps(&j.w) * window_out(&j.w)), fold_range, &j);
  return TY_OK;
}

static int im2col_forward(struct call *c)      { return unfold_run(c, &c->in[0], false); }
static int im2col_backward(struct call *c) { return unfold_run(c, &c->out[0], true); }
static int col2im_forward(struct call *c)        { return unfold_run(c, &c->out[0], true); }
static int col2im_backward(struct call *c)   { return unfold_run(c, &c->in[0], false); }

static const struct kernel im2col_cpu[]  = { { "loops", im2col_forward,      T_FLOAT }, { 0 } };
static const struct kernel im2col_back[] = { { "loops", im2col_backward, T_FLOAT, .add = 1 }, { 0 } };
static const struct kernel col2im_cpu[]  = { { "loops", col2im_forward,        T_FLOAT }, { 0 } };
static const struct kernel col2im_back[] = { { "loops", col2im_backward,   T_FLOAT, .add = 1 }, { 0 } };

const struct op op_im2col[] = { {
  .name = "im2col",
  .doc = "Unfolds data (N, C, spatial) into what each position of a window sees: (N, C * elements of the window, "
         "positions). Gradient: folds back.",
  .in = "data", .out = "output", .param = im2col_params, .param_size = sizeof(struct unfold), .check = unfold_check,
  .shape = im2col_shape,
  .grad = "g0", .cpu = im2col_cpu, .back_cpu = im2col_back, .flags = OP_NAMED_INPUT,
}, {
  .name = "col2im",
  .doc = "Adds columns (N, C * elements of the window, positions) to an image (N, C, output_size). Gradient: unfolds.",
  .in = "data", .out = "output", .param = col2im_params, .param_size = sizeof(struct unfold), .check = check_fold,
  .shape = col2im_shape,
  .grad = "g0", .cpu = col2im_cpu, .back_cpu = col2im_back, .flags = OP_NAMED_INPUT,
}, { 0 } };
