/* correlation.c - Correlation: patches of one image against displaced patches of another.
**
** Both images are copied with their padding and with the channels last (the hidden outputs tmp1
** and tmp2), so that one row of a patch is one run of kernel_size * channels numbers. Output
** channel c is the displacement by stride2 (c % d - radius) across and stride2 (c / d - radius)
** down, d = 2 radius + 1; outputs are means over a patch.
*/
#include "kernel/vec/vec.h"
#include "op/op.h"

struct correlation_param {
  int64_t kernel_size, max_displacement, stride1, stride2, pad_size, is_multiply;
};
#define FIELD(f) offsetof(struct correlation_param, f)
static const struct param correlation_params[] = {
  { "kernel_size",      P_INT,  FIELD(kernel_size),      "1", "height and width of a patch", NULL, "[1,2147483647]" },
  { "max_displacement", P_INT,  FIELD(max_displacement), "1", "largest displacement", NULL, "[0,2147483647]" },
  { "stride1",          P_INT,  FIELD(stride1),          "1", "step between patches", NULL, "[1,2147483647]" },
  { "stride2",          P_INT,  FIELD(stride2),          "1", "step between displacements", NULL, "[1,2147483647]" },
  { "pad_size",         P_INT,  FIELD(pad_size),         "0", "zeros around both images", NULL, "[0,2147483647]" },
  { "is_multiply",      P_BOOL, FIELD(is_multiply),      "1", "products, else absolute differences" },
  { 0 }
};

/* h, w: height and width without padding. H, W: with it. radius, side: displacements to each side
** and in all, along an axis. */
struct geometry { int64_t n, c, h, w, H, W, out_h, out_w, radius, side; };

static struct geometry make_geometry(const struct correlation_param *p, const ty_desc *d)
{
  struct geometry g = { .n = d->dim[0], .c = d->dim[1], .h = d->dim[2], .w = d->dim[3] };
  int64_t border = p->max_displacement + (p->kernel_size - 1) / 2;
  g.H = g.h + 2 * p->pad_size;
  g.W = g.w + 2 * p->pad_size;
  g.out_h = (g.H - 2 * border + p->stride1 - 1) / p->stride1;
  g.out_w = (g.W - 2 * border + p->stride1 - 1) / p->stride1;
  g.radius = p->max_displacement / p->stride2;
  g.side = 2 * g.radius + 1;
  return g;
}

static int correlation_shape(struct infer *s)
{
  const struct correlation_param *p = s->param;
  for (int i = 0; i < 2; i++)
    if (s->in[i].ndim && s->in[i].ndim != 4)
      return infer_fail(s, TY_ESHAPE, &s->in[i],
          "expected (batch, channels, height, width), got %d dimensions", s->in[i].ndim);
  TRY(shape_both(s, &s->in[0], &s->in[1]));
  ty_desc d = s->in[0];
  if (!desc_known(&d)) return TY_OK;
  struct geometry g = make_geometry(p, &d);
  int64_t border = 2 * p->max_displacement + p->kernel_size - 1;
  if (g.H <= border || g.W <= border || g.out_h < 1 || g.out_w < 1)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "%lld x %lld pixels with padding are too few for displacement %lld and kernel %lld",
        (long long)g.H, (long long)g.W, (long long)p->max_displacement, (long long)p->kernel_size);
  TRY(desc_check_size(&(ty_desc){ .dtype = TY_F64, .ndim = 4, .dim = { g.n, g.H, g.W, g.c } }));
  int64_t out[4] = { g.n, g.side * g.side, g.out_h, g.out_w }, padded[4] = { g.n, g.H, g.W, g.c };
  for (int i = 1; i < 3; i++) TRY(shape_is(s, &s->out[i], 4, padded));
  return shape_is(s, &s->out[0], 4, out);
}

struct correlation {
  const struct vec_ops *r;
  const struct correlation_param *p;
  struct geometry g;
  const void *x1, *x2, *dy;                           /* the call's arguments, channels second */
  void *pad1, *pad2, *y, *dx1, *dx2;
  void *grad1, *grad2;                                /* gradients of pad1 and pad2 */
  void *sign;                                         /* scratch: a row of a patch per sample */
};

static int64_t pixel_at(const struct geometry *g, int64_t n, int64_t y, int64_t x)
{
  return ((n * g->H + y) * g->W + x) * g->c;
}

/* Copies sample n (channels, h, w) into the zeroed padded copy, or back from it. */
static void move_image(const struct correlation *k, int64_t n, void *padded, void *image, bool back)
{
  const struct vec_ops *r = k->r;
  const struct geometry *g = &k->g;
  int64_t pad = k->p->pad_size;
  if (!back)
    memset(vec_at(r, padded, pixel_at(g, n, 0, 0)), 0, r->size * (size_t)(g->H * g->W * g->c));
  for (int64_t c = 0; c < g->c; c++)
    for (int64_t i = 0; i < g->h * g->w; i++) {
      int64_t a = pixel_at(g, n, pad + i / g->w, pad + i % g->w) + c,
              b = (n * g->c + c) * g->h * g->w + i;
      if (back)
        r->set(image, b, r->get(padded, a));
      else
        r->set(padded, a, r->get(image, b));
    }
}

/* The two patches of output (channel, y, x), at `first` and `second`: `rows` runs of `run` numbers,
** `row` numbers apart. The part of a patch beyond the padded image is left out and counts as 0. */
struct patch { int64_t first, second, run, row, rows; };
static struct patch make_patch(
    const struct correlation *k, int64_t n, int64_t channel, int64_t y, int64_t x)
{
  const struct geometry *g = &k->g;
  int64_t across = (channel % g->side - g->radius) * k->p->stride2,
          down = (channel / g->side - g->radius) * k->p->stride2;
  int64_t y1 = y * k->p->stride1 + k->p->max_displacement,
          x1 = x * k->p->stride1 + k->p->max_displacement;
  int64_t width = MIN(k->p->kernel_size, g->W - MAX(x1, x1 + across)),
          height = MIN(k->p->kernel_size, g->H - MAX(y1, y1 + down));
  return (struct patch){ pixel_at(g, n, y1, x1), pixel_at(g, n, y1 + down, x1 + across),
    width * g->c, g->W * g->c, height };
}

/* Returns the sum of the products or absolute differences of two patches. */
static double compare_patches(const struct correlation *k, const struct patch *q)
{
  double s = 0;
  for (int64_t i = 0; i < q->rows; i++) {
    void *a = vec_at(k->r, k->pad1, q->first + i * q->row),
         *b = vec_at(k->r, k->pad2, q->second + i * q->row);
    s += k->p->is_multiply ? k->r->dot(a, b, q->run) : k->r->sum_gap(a, b, q->run);
  }
  return s;
}

/* Adds the gradients of two patches, given that of their output, to grad1 and grad2. */
static void scatter_gradient(
    const struct correlation *k, int64_t n, const struct patch *q, double g)
{
  const struct vec_ops *r = k->r;
  void *sign = vec_at(r, k->sign, n * k->p->kernel_size * k->g.c);
  for (int64_t i = 0; i < q->rows; i++) {
    int64_t one = q->first + i * q->row, two = q->second + i * q->row;
    void *a = vec_at(r, k->pad1, one), *b = vec_at(r, k->pad2, two), *da = vec_at(r, k->grad1, one),
         *db = vec_at(r, k->grad2, two);
    if (!k->p->is_multiply) r->gap_sign(sign, b, a, -g, q->run); /* -g where b > a, else g */
    r->affine2(da, da, k->p->is_multiply ? b : sign, 1, k->p->is_multiply ? g : 1, 0, q->run);
    r->affine2(db, db, k->p->is_multiply ? a : sign, 1, k->p->is_multiply ? g : -1, 0, q->run);
  }
}

static void sample_body(int64_t begin, int64_t end, void *context)
{
  const struct correlation *k = context;
  const struct geometry *g = &k->g;
  int64_t outputs = g->side * g->side * g->out_h * g->out_w, size = g->H * g->W * g->c;
  double share = 1 / (double)(k->p->kernel_size * k->p->kernel_size * g->c);
  for (int64_t n = begin; n < end; n++) {
    move_image(k, n, k->pad1, (void *)(uintptr_t)k->x1, false);
    move_image(k, n, k->pad2, (void *)(uintptr_t)k->x2, false);
    if (k->dy)
      memset(vec_at(k->r, k->grad1, n * size), 0, k->r->size * (size_t)size),
          memset(vec_at(k->r, k->grad2, n * size), 0, k->r->size * (size_t)size);
    for (int64_t i = 0; i < outputs; i++) {
      struct patch q = make_patch(
          k, n, i / (g->out_h * g->out_w), i / g->out_w % g->out_h, i % g->out_w);
      if (k->y) k->r->set(k->y, n * outputs + i, compare_patches(k, &q) * share);
      if (k->dy) scatter_gradient(k, n, &q, k->r->get(k->dy, n * outputs + i) * share);
    }
    if (k->dx1) move_image(k, n, k->grad1, k->dx1, true);
    if (k->dx2) move_image(k, n, k->grad2, k->dx2, true);
  }
}

static size_t padded_bytes(const struct geometry *g, const struct vec_ops *r)
{
  return align_up(r->size * (size_t)(g->n * g->H * g->W * g->c), ALIGN);
}

static int correlation_forward(struct call *c)
{
  const struct vec_ops *r = vec_ops_of(c->in[0].d.dtype);
  struct correlation k = { .r = r,
    .p = c->param,
    .g = make_geometry(c->param, &c->in[0].d),
    .x1 = c->in[0].p,
    .x2 = c->in[1].p,
    .y = c->out[0].p };
  k.pad1 = c->out[1].p ? c->out[1].p : c->tmp;
  k.pad2 = c->out[2].p ? c->out[2].p : (char *)c->tmp + padded_bytes(&k.g, r);
  parallel_chunks_stoppable(k.g.n, 1, sample_body, &k);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, both images. */
static int correlation_backward(struct call *c)
{
  const struct vec_ops *r = vec_ops_of(c->in[1].d.dtype);
  struct correlation k = { .r = r,
    .p = c->param,
    .g = make_geometry(c->param, &c->in[1].d),
    .dy = c->in[0].p,
    .x1 = c->in[1].p,
    .x2 = c->in[2].p,
    .dx1 = c->out[0].p,
    .dx2 = c->out[1].p };
  size_t bytes = padded_bytes(&k.g, r);
  char *tmp = c->tmp;
  k.pad1 = tmp;
  k.pad2 = tmp + bytes;
  k.grad1 = tmp + 2 * bytes;
  k.grad2 = tmp + 3 * bytes;
  k.sign = tmp + 4 * bytes;
  parallel_chunks_stoppable(k.g.n, 1, sample_body, &k);
  return TY_OK;
}

static size_t forward_scratch(const struct call *c)
{
  struct geometry g = make_geometry(c->param, &c->in[0].d);
  return 2 * padded_bytes(&g, vec_ops_of(c->in[0].d.dtype));
}

static size_t backward_scratch(const struct call *c)
{
  const struct correlation_param *p = c->param;
  const struct vec_ops *r = vec_ops_of(c->in[1].d.dtype);
  struct geometry g = make_geometry(p, &c->in[1].d);
  return 4 * padded_bytes(&g, r) + r->size * (size_t)(g.n * p->kernel_size * g.c);
}

static const struct kernel correlation_cpu[] = { { "patches", correlation_forward, T_FLOAT, NULL, forward_scratch }, { 0 } };
static const struct kernel correlation_back_cpu[] = { { "patches", correlation_backward, T_FLOAT, NULL,
                                                        backward_scratch }, { 0 } };

const struct op op_correlation[] = {
  { .name = "Correlation", .in = "data1 data2", .out = "output [tmp1] [tmp2]",
    .doc = "Mean product (or absolute difference) of each patch of data1 with patches of data2 displaced by up to "
           "max_displacement; one output channel per displacement.",
    .param = correlation_params, .param_size = sizeof(struct correlation_param), .shape = correlation_shape, .grad = "g0 i0 i1",
    .cpu = correlation_cpu, .back_cpu = correlation_back_cpu },
  { 0 }
};
