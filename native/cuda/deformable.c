/* deformable.c - _contrib_DeformableConvolution and its modulated form: columns of the samples
** (kernels/deform.cu), image by image, and products by cublasLt. */
#include "cuda/reduce.h"
#include "cuda/product.h"
#include "cuda/row.h"
#include "cuda/taps.h"

/* Same as in kernels/deform.cu. */
struct deform_args {
  int64_t groups, channels, h, w, area, out_w, taps, kernel_w, stride[2], pad[2], dilate[2];
};
enum { PLAIN, MODULATED };
static bool is_modulated(const struct call *c) { return cuda_what(c) == MODULATED; }

static struct deform_args make_args(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  const int64_t *kernel = op_dims(c->op, c->param, "kernel")->d,
                *stride = op_dims(c->op, c->param, "stride")->d,
                *pad = op_dims(c->op, c->param, "pad")->d,
                *dilate = op_dims(c->op, c->param, "dilate")->d;
  int64_t groups = (int64_t)cuda_number(c, "num_deformable_group", 1);
  return (struct deform_args){ groups, x->dim[1] / groups, x->dim[2], x->dim[3],
    y->dim[2] * y->dim[3], y->dim[3], kernel[0] * kernel[1], kernel[1], { stride[0], stride[1] },
    { pad[0], pad[1] }, { dilate[0], dilate[1] } };
}

/* Starts a kernel of deform.cu. Operands have one type. */
static int start_deform(const struct call *c, const char *name, int64_t n, void **params)
{
  const char *words = is_modulated(c) ? "T=$o0 MODULATED=1" : "T=$o0 MODULATED=0";
  return cuda_start(c, FAMILY_deform, name, words, n, params);
}

/* The three matrices of a group: result = weight (filters x depth) times columns (depth x area).
** Each is computed by one product: the result forward, the others as gradients. */
enum { RESULT, WEIGHT, COLUMNS, PRODUCTS };
struct deform_plans { struct product_plan *of[PRODUCTS]; };
struct deform_sizes { int64_t groups, filters, depth; };

static struct deform_sizes make_sizes(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  const struct deform_args s = make_args(c, x, y);
  int64_t groups = (int64_t)cuda_number(c, "num_group", 1);
  return (struct deform_sizes){ groups, y->dim[1] / groups, x->dim[1] / groups * s.taps };
}

static struct product make_product(
    const struct call *c, const ty_desc *x, const ty_desc *y, int which, bool add)
{
  const struct deform_sizes z = make_sizes(c, x, y);
  int64_t area = y->dim[2] * y->dim[3], weight = z.filters * z.depth, columns = z.depth * area;
  int64_t result = z.filters * area;
  struct product p = { .dtype = x->dtype, .batch = z.groups, .alpha = 1, .beta = add };
  switch (which) {
  case RESULT:
    p.m = z.filters, p.n = area, p.k = z.depth, p.lda = z.depth, p.ldb = area, p.ldc = area;
    p.stride_a = weight, p.stride_b = columns, p.stride_c = result;
    break;
  case WEIGHT:
    p.m = z.filters, p.n = z.depth, p.k = area, p.lda = area, p.ldb = area, p.ldc = z.depth;
    p.tb = true, p.stride_a = result, p.stride_b = columns, p.stride_c = weight;
    break;
  default:
    p.m = z.depth, p.n = area, p.k = z.filters, p.lda = z.depth, p.ldb = area, p.ldc = area;
    p.ta = true, p.stride_a = weight, p.stride_b = result, p.stride_c = columns;
  }
  return p;
}

/* Returns one image of an operand. */
static void *image_at(const struct operand *a, int64_t i)
{
  size_t each = desc_bytes(&a->d) / (size_t)a->d.dim[0];
  return a->p ? (char *)a->p + (size_t)i * each : NULL;
}

/* -- scratch: columns, the workspace of products, taps ----------------------------------------- */

struct deform_pieces { void *columns, *workspace; char *taps; };

static size_t columns_bytes(const struct deform_args *s, int dtype)
{
  size_t n = (size_t)(s->groups * s->channels * s->taps * s->area);
  return align_up(n * dtype_size(dtype), ALIGN);
}
static size_t workspace_bytes(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  size_t most = 0;
  for (int i = 0; i < PRODUCTS; i++) {
    struct product p = make_product(c, x, y, i, false);
    most = MAX(most, product_workspace(c, &p));
  }
  return align_up(most, ALIGN);
}
static struct deform_pieces make_pieces(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  struct deform_args s = make_args(c, x, y);
  char *at = c->tmp;
  struct deform_pieces p;
  p.columns = cuda_piece(&at, columns_bytes(&s, x->dtype));
  p.workspace = cuda_piece(&at, workspace_bytes(c, x, y));
  p.taps = at;
  return p;
}

static size_t forward_scratch(const struct call *c)
{
  const ty_desc *x = &c->in[0].d, *y = &c->out[0].d;
  struct deform_args s = make_args(c, x, y);
  return columns_bytes(&s, x->dtype) + workspace_bytes(c, x, y);
}
static struct reduce bias_sum(const ty_desc *y)
{
  return cuda_reduce_all_but(y->dtype, y->dim[0], y->dim[1], y->dim[2] * y->dim[3]);
}
static size_t back_scratch(const struct call *c)
{
  const ty_desc *x = &c->in[1].d, *y = &c->in[0].d;
  struct deform_args s = make_args(c, x, y);
  struct reduce r = bias_sum(y);
  size_t taps = cuda_taps_bytes(4 * s.groups * s.taps * s.area, dtype_size(x->dtype)),
         sum = cuda_reduce_scratch(&r);
  return columns_bytes(&s, x->dtype) + workspace_bytes(c, x, y) + MAX(taps, sum);
}

/* -- kernels ----------------------------------------------------------------------------------- */

/* The inputs of one image. mask: NULL if there is none. */
struct deform_reads { void *x, *offset, *mask; };
/* Returns the arrays of image i. in: data, offset [, mask] */
static struct deform_reads make_deform_reads(
    const struct call *c, const struct operand *in, int64_t i)
{
  return (struct deform_reads){ image_at(&in[0], i), image_at(&in[1], i),
    is_modulated(c) ? image_at(&in[2], i) : NULL };
}

static int fill_columns(
    const struct call *c, struct deform_args *s, struct deform_reads *r, void *columns)
{
  return start_deform(c, "fill_columns", s->groups * s->channels * s->taps * s->area,
      (void *[]){ &columns, &r->x, &r->offset, &r->mask, s });
}

static int deform_forward(struct call *c)
{
  const ty_desc *x = &c->in[0].d, *y = &c->out[0].d;
  struct deform_args s = make_args(c, x, y);
  struct deform_pieces at = make_pieces(c, x, y);
  struct deform_plans *plans = c->state;
  const struct operand *weight = &c->in[is_modulated(c) ? 3 : 2];
  bool biased = !cuda_flag(c, "no_bias");
  struct product p = make_product(c, x, y, RESULT, biased);
  int64_t n = y->dim[1] * s.area;
  for (int64_t i = 0; c->out[0].p && i < x->dim[0]; i++) {
    struct deform_reads r = make_deform_reads(c, c->in, i);
    void *out = image_at(&c->out[0], i);
    if (biased)
      TRY(start_deform(c, "fill_bias", n, (void *[]){ &out, (void *)&weight[1].p, &n, &s.area }));
    TRY(fill_columns(c, &s, &r, at.columns));
    TRY(product_run(c, &p, &plans->of[RESULT], weight->p, at.columns, NULL, out,
        at.workspace));
  }
  return TY_OK;
}

/* Computes the gradients of offsets and masks. doffset, dmask: NULL if unused. */
static int back_sampling(const struct call *c, struct deform_args *s, struct deform_reads *r,
    void *columns, void *doffset, void *dmask)
{
  if (!doffset && !dmask) return TY_OK;
  return start_deform(c, "sampling_gradients", s->groups * s->taps * s->area,
      (void *[]){ &doffset, &dmask, &columns, &r->x, &r->offset, &r->mask, s });
}

static int back_image(const struct call *c, int dtype, struct deform_args *s,
    struct deform_reads *r, void *columns, void *dx, char *at)
{
  int64_t units = s->groups * s->taps * s->area;
  struct cuda_taps t = { 4 * units, s->channels, s->taps * s->area, 4, s->h * s->w };
  if (!dx) return TY_OK;
  cuda_taps_divide(&t, dtype_size(dtype), &at);
  TRY(start_deform(c, "list_taps", units,
      (void *[]){ &t.keys, &t.weight, &r->offset, &r->mask, s }));
  return cuda_add_taps(c, dtype, &t, dx, columns);
}

/* Computes one image's gradients; in: head gradient, data, offset, mask if there is one, weight. */
static int back_one(struct call *c, int64_t i, const struct deform_pieces *at)
{
  const ty_desc *x = &c->in[1].d, *y = &c->in[0].d;
  struct deform_args s = make_args(c, x, y);
  struct deform_plans *plans = c->state;
  struct deform_reads r = make_deform_reads(c, c->in + 1, i);
  const int w = is_modulated(c) ? 3 : 2;
  struct product dweight = make_product(c, x, y, WEIGHT, i > 0);
  struct product dcolumns = make_product(c, x, y, COLUMNS, false);
  void *dy = image_at(&c->in[0], i), *dx = image_at(&c->out[0], i),
       *doffset = image_at(&c->out[1], i);
  void *dmask = w == 3 ? image_at(&c->out[2], i) : NULL;
  if (c->out[w].p) {
    TRY(fill_columns(c, &s, &r, at->columns));
    TRY(product_run(c, &dweight, &plans->of[WEIGHT], dy, at->columns, NULL, c->out[w].p,
        at->workspace));
  }
  if (!dx && !doffset && !dmask) return TY_OK;
  TRY(product_run(c, &dcolumns, &plans->of[COLUMNS], c->in[1 + w].p, dy, NULL, at->columns,
      at->workspace));
  TRY(back_sampling(c, &s, &r, at->columns, doffset, dmask));
  return back_image(c, x->dtype, &s, &r, at->columns, dx, at->taps);
}

static int deform_backward(struct call *c)
{
  const ty_desc *x = &c->in[1].d, *y = &c->in[0].d;
  struct deform_pieces at = make_pieces(c, x, y);
  const int bias = is_modulated(c) ? 4 : 3;
  struct reduce r = bias_sum(y);
  TRY(cuda_zero(c, &c->out[0]));
  for (int64_t i = 0; i < x->dim[0]; i++) TRY(back_one(c, i, &at));
  if (c->nout <= bias || !c->out[bias].p) return TY_OK;
  struct cuda_reduce f = { R_SUM, F_NONE, y->dtype, c->in[0].p, .y = c->out[bias].p };
  return cuda_reduce(c->device, &r, &f, at.taps);
}

static const char *refuse_products(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  for (int i = 0; i < PRODUCTS; i++) {
    struct product p = make_product(c, x, y, i, true);
    const char *why = product_refuse(c, &p);
    if (why) return why;
  }
  return NULL;
}
static const char *refuse_forward(const struct call *c)
{
  return refuse_products(c, &c->in[0].d, &c->out[0].d);
}
static const char *refuse_back(const struct call *c)
{
  return refuse_products(c, &c->in[1].d, &c->in[0].d);
}

static size_t plans_size(const struct call *c) { return sizeof(struct deform_plans); }
static void plans_done(void *state)
{
  struct deform_plans *s = state;
  for (int i = 0; i < PRODUCTS; i++) product_done(s->of[i]);
}

static const struct kernel columns[] = {
  { "columns", deform_forward, T_FLOAT, refuse_forward, forward_scratch, plans_size, plans_done,
    .flags = K_PRECISION },
  { 0 }
};
static const struct kernel columns_back[] = {
  { "columns", deform_backward, T_FLOAT, refuse_back, back_scratch, plans_size, plans_done,
    .flags = K_PRECISION },
  { 0 }
};

const struct op_kernels cuda_deformable[] = {
  { "_contrib_DeformableConvolution", columns, columns_back },
  { "_contrib_ModulatedDeformableConvolution", columns, columns_back, MODULATED },
  { 0 }
};
