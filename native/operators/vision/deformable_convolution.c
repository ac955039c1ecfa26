/* deformable_convolution.c - deformable convolution: _contrib_DeformableConvolution and, with a
** mask, its modulated form.
**
** Tap t of the window at output position o reads the image at its usual position plus offset (2 t:
** down, 2 t + 1: across), bilinearly, times mask t. The samples fill a matrix of columns (C * taps,
** positions) of one sample, which the weight multiplies. In backward each element of the columns'
** gradient contributes to the pixels, the offset and the mask from which it was computed. Channels
** are divided into num_deformable_group groups with separate offsets. At the border the two forms
** differ: without a mask, positions outside [0, H) x [0, W) are 0 and the last row and column
** extend to the edge; with one, pixels outside the image are 0 and positions from -1 to H and W
** count.
*/
#include "op/op.h"
#include "operators/nn/convolution.h"
#include "kernel/element/deform.h"
#include "kernel/vec/vec.h"

struct deform { struct conv c; int64_t num_deformable_group, im2col_step; };
#define REST \
  { "num_filter", P_INT, offsetof(struct conv, num_filter), NULL, "channels of the output", NULL, \
    "[1,]" }, \
  { "num_group",  P_INT, offsetof(struct conv, num_group),  "1",  "independent groups", NULL, \
    "[1,]" }, \
  { "num_deformable_group", P_INT, offsetof(struct deform, num_deformable_group), "1", \
    "sets of channels with their own offsets", NULL, "[1,]" }, \
  { "workspace",  P_INT, offsetof(struct conv, workspace), "1024", "without effect", NULL, \
    "[0,]" }, \
  { "no_bias",    P_BOOL, offsetof(struct conv, no_bias),  "0",    "there is no bias input" }
#define LAYOUT \
  { "layout", P_ENUM, offsetof(struct conv, layout), "None", "None: channels second", \
    "NCW|NCHW|NCDHW", NULL, 1 }
static const struct param v1_params[] = { CONV_WINDOW, REST, LAYOUT, { 0 } };
static const struct param modulated_params[] = {
  CONV_WINDOW, REST,
  { "im2col_step", P_INT, offsetof(struct deform, im2col_step), "64", "without effect", NULL, "[0,]" },
  LAYOUT, { 0 }
};

static bool has_mask(const struct op *op) { return op->param == modulated_params; }
static const char *v1_ports(const void *param)
{
  return ((const struct deform *)param)->c.no_bias ? "data offset weight"
                                                   : "data offset weight bias";
}
static const char *modulated_ports(const void *param)
{
  return ((const struct deform *)param)->c.no_bias ? "data offset mask weight"
                                                   : "data offset mask weight bias";
}

static int deform_check(void *param)
{
  struct deform *p = param;
  TRY(conv_check(&p->c));
  NEED(p->c.kernel.n == 2, TY_EVALUE, "parameter kernel: expected 2 entries, got %lld",
      (long long)p->c.kernel.n);
  return TY_OK;
}

/* -- shapes ------------------------------------------------------------------------------------ */

/* Returns the output's size along spatial axis i; 0 while unknown, negative where the window does
** not fit. */
static int64_t output_size(const struct conv *p, const ty_desc *x, int i)
{
  int64_t reach = (p->kernel.d[i] - 1) * p->dilate.d[i] + 1,
          whole = x->dim[2 + i] + 2 * p->pad.d[i];
  return !x->dim[2 + i] ? 0 : whole < reach ? -1 : (whole - reach) / p->stride.d[i] + 1;
}

static int deform_shape(struct infer *s)
{
  const struct deform *q = s->param;
  const struct conv *p = &q->c;
  ty_desc *x = &s->in[0];
  const bool mask = has_mask(s->op);
  const int weight = mask ? 3 : 2;
  if (!x->ndim) return TY_OK;
  if (x->ndim != 4)
    return infer_fail(
        s, TY_ESHAPE, x, "expected (batch, channels, height, width), got %d dimensions", x->ndim);
  const int64_t channels = x->dim[1], taps = p->kernel.d[0] * p->kernel.d[1],
                h = output_size(p, x, 0), w = output_size(p, x, 1);
  if (h < 0 || w < 0)
    return infer_fail(s, TY_ESHAPE, x,
        "the window does not fit into %lld x %lld pixels with their padding", (long long)x->dim[2],
        (long long)x->dim[3]);
  if (channels % p->num_group || channels % q->num_deformable_group)
    return infer_fail(s, TY_ESHAPE, x,
        "%lld channels cannot be divided into num_group %lld and num_deformable_group %lld",
        (long long)channels, (long long)p->num_group, (long long)q->num_deformable_group);
  if (taps > INT32_MAX || q->num_deformable_group > INT32_MAX)
    return infer_fail(s, TY_ESHAPE, x, "a window of %lld taps for %lld groups is too large",
        (long long)taps, (long long)q->num_deformable_group);
  TRY(shape_is(
      s, &s->in[1], 4, (int64_t[]){ x->dim[0], 2 * taps * q->num_deformable_group, h, w }));
  if (mask)
    TRY(shape_is(s, &s->in[2], 4, (int64_t[]){ x->dim[0], taps * q->num_deformable_group, h, w }));
  TRY(shape_is(s, &s->in[weight], 4,
      (int64_t[]){ p->num_filter, channels / p->num_group, p->kernel.d[0], p->kernel.d[1] }));
  if (s->nin > weight + 1) TRY(shape_is(s, &s->in[weight + 1], 1, &p->num_filter));
  TRY(shape_is(s, &s->out[0], 4, (int64_t[]){ x->dim[0], p->num_filter, h, w }));
  return shape_dim(s, x, 0, s->out[0].dim[0]);
}

/* -- one sample -------------------------------------------------------------------------------- */

struct deform_job {
  const struct vec_ops *r;
  const struct deform *p;
  bool modulated;
  int64_t channels, h, w;
  int64_t H, W;                                       /* height and width of the output */
  int64_t taps;
  /* arrays of the current sample */
  const void *x, *offset;
  const void *mask;                                   /* NULL: there is none */
  void *columns, *dx, *doffset, *dmask;
};

struct mix { struct deform_mix m; double mask; };

/* Returns the four pixels and weights that unit u reads for output position o, and its mask. Unit u
** is tap u % taps of deformable group u / taps. */
static struct mix mix_at(const struct deform_job *j, int64_t u, int64_t o)
{
  const struct conv *p = &j->p->c;
  const int64_t area = j->H * j->W, t = u % j->taps, pair = 2 * u * area + o;
  const double row = (double)(o / j->W * p->stride.d[0] - p->pad.d[0] +
      t / p->kernel.d[1] * p->dilate.d[0]);
  const double column = (double)(o % j->W * p->stride.d[1] - p->pad.d[1] +
      t % p->kernel.d[1] * p->dilate.d[1]);
  const double y = row + j->r->get(j->offset, pair), x = column + j->r->get(j->offset, pair + area);
  return (struct mix){ deform_mix(y, x, j->h, j->w, j->modulated),
    j->mask ? j->r->get(j->mask, u * area + o) : 1 };
}

/* Returns the weighted sum of the four pixels of m; pixels that do not count are not read. */
static double mixed_value(
    const struct deform_job *j, const void *plane, const struct deform_mix *m,
    const double weight[4])
{
  double sum = 0;
  for (int k = 0; k < 4; k++)
    if (m->weight[k] != 0 || weight[k] != 0) sum += weight[k] * j->r->get(plane, m->at[k]);
  return sum;
}

/* Fills the columns of units begin .. end - 1 for all channels of their group. */
static void fill_columns(int64_t begin, int64_t end, void *context)
{
  const struct deform_job *j = context;
  const int64_t area = j->H * j->W, each = j->channels / j->p->num_deformable_group;
  for (int64_t u = begin; u < end; u++)
    for (int64_t o = 0; o < area; o++) {
      int64_t g = u / j->taps, t = u % j->taps;
      struct mix m = mix_at(j, u, o);
      for (int64_t c = g * each; c < (g + 1) * each; c++)
        j->r->set(j->columns, (c * j->taps + t) * area + o,
            m.mask * mixed_value(j, vec_at(j->r, j->x, c * j->h * j->w), &m.m, m.m.weight));
    }
}

/* Computes the gradients of offset and mask of units begin .. end - 1 from that of the columns. */
static void gather_range(int64_t begin, int64_t end, void *context)
{
  const struct deform_job *j = context;
  const int64_t area = j->H * j->W, each = j->channels / j->p->num_deformable_group;
  for (int64_t u = begin; u < end; u++)
    for (int64_t o = 0; o < area; o++) {
      int64_t g = u / j->taps, t = u % j->taps;
      struct mix m = mix_at(j, u, o);
      double down = 0, across = 0, through = 0;
      for (int64_t c = g * each; c < (g + 1) * each; c++) {
        const void *plane = vec_at(j->r, j->x, c * j->h * j->w);
        double d = j->r->get(j->columns, (c * j->taps + t) * area + o);
        down += d * mixed_value(j, plane, &m.m, m.m.down);
        across += d * mixed_value(j, plane, &m.m, m.m.across);
        through += d * mixed_value(j, plane, &m.m, m.m.weight);
      }
      if (j->doffset) {
        j->r->set(j->doffset, 2 * u * area + o, m.mask * down);
        j->r->set(j->doffset, (2 * u + 1) * area + o, m.mask * across);
      }
      if (j->dmask) j->r->set(j->dmask, u * area + o, through);
    }
}

/* Computes the gradient of channels begin .. end - 1 of the image. */
static void scatter_range(int64_t begin, int64_t end, void *context)
{
  const struct deform_job *j = context;
  const int64_t area = j->H * j->W, each = j->channels / j->p->num_deformable_group;
  for (int64_t c = begin; c < end; c++) {
    void *plane = vec_at(j->r, j->dx, c * j->h * j->w);
    j->r->fill(plane, 0, j->h * j->w);
    for (int64_t t = 0; t < j->taps; t++)
      for (int64_t o = 0; o < area; o++) {
        struct mix m = mix_at(j, c / each * j->taps + t, o);
        double d = m.mask * j->r->get(j->columns, (c * j->taps + t) * area + o);
        for (int k = 0; k < 4; k++)
          if (m.m.weight[k] != 0)
            j->r->set(plane, m.m.at[k], j->r->get(plane, m.m.at[k]) + m.m.weight[k] * d);
      }
  }
}

/* -- kernels ----------------------------------------------------------------------------------- */

static struct deform_job make_deform_job(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  const struct deform *p = c->param;
  return (struct deform_job){ .r = vec_ops_of(x->dtype),
    .p = p,
    .modulated = has_mask(c->op),
    .channels = x->dim[1],
    .h = x->dim[2],
    .w = x->dim[3],
    .H = y->dim[2],
    .W = y->dim[3],
    .taps = p->c.kernel.d[0] * p->c.kernel.d[1],
    .columns = c->tmp };
}

/* Returns sample i of an array; NULL if there is no array. */
static void *sample_at(const struct operand *a, int64_t i)
{
  return a && a->p
      ? (char *)a->p + (size_t)(i * (desc_count(&a->d) / a->d.dim[0])) * dtype_size(a->d.dtype)
      : NULL;
}

static void take_sample(struct deform_job *j, const struct operand *in, int64_t i)
{
  j->x = sample_at(&in[0], i);
  j->offset = sample_at(&in[1], i);
  j->mask = j->modulated ? sample_at(&in[2], i) : NULL;
}

/* Sizes of the product of one group: weight (filters, depth) by columns (depth, area). */
struct sizes { int64_t groups, filters, depth, area; };
static struct sizes make_sizes(const struct deform_job *j)
{
  const struct conv *p = &j->p->c;
  return (struct sizes){ p->num_group, p->num_filter / p->num_group,
    j->channels / p->num_group * j->taps, j->H * j->W };
}

/* Calls body for all units in parallel. */
static void each_tap(struct deform_job *j, parallel_fn body)
{
  int64_t groups = j->p->num_deformable_group;
  parallel_for_stoppable(
      groups * j->taps, elements_ns(8 * j->channels / groups * j->H * j->W), body, j);
}

static int deform_forward(struct call *c)
{
  const ty_desc *x = &c->in[0].d, *y = &c->out[0].d;
  struct deform_job j = make_deform_job(c, x, y);
  const struct sizes z = make_sizes(&j);
  const struct vec_ops *r = j.r;
  const struct operand *weight = &c->in[j.modulated ? 3 : 2],
                       *bias = j.p->c.no_bias ? NULL : weight + 1;
  for (int64_t i = 0; i < x->dim[0]; i++) {
    void *out = sample_at(&c->out[0], i);
    take_sample(&j, c->in, i);
    each_tap(&j, fill_columns);
    for (int64_t f = 0; bias && f < z.groups * z.filters; f++)
      r->fill(vec_at(r, out, f * z.area), r->get(bias->p, f), z.area);
    for (int64_t g = 0; g < z.groups; g++)
      TRY(gemm_one(x->dtype, false, false, z.filters, z.area, z.depth, 1,
          vec_at(r, weight->p, g * z.filters * z.depth), z.depth,
          vec_at(r, j.columns, g * z.depth * z.area), z.area, bias != NULL,
          vec_at(r, out, g * z.filters * z.area), z.area));
  }
  return TY_OK;
}

/* Recomputes the columns of sample i and adds their part of the weight's gradient to dweight, which
** sample 0 overwrites. */
static int back_weight(
    struct deform_job *j, const struct sizes *z, const void *dy, void *dweight, int64_t i)
{
  const struct vec_ops *r = j->r;
  each_tap(j, fill_columns);
  for (int64_t g = 0; g < z->groups; g++)
    TRY(gemm_one(r->dtype, false, true, z->filters, z->depth, z->area, 1,
        vec_at(r, dy, g * z->filters * z->area), z->area,
        vec_at(r, j->columns, g * z->depth * z->area), z->area, i > 0,
        vec_at(r, dweight, g * z->filters * z->depth), z->depth));
  return TY_OK;
}

/* Computes the gradient of the columns and from it those of data, offset and mask. */
static int back_columns(
    struct deform_job *j, const struct sizes *z, const void *dy, const void *weight)
{
  const struct vec_ops *r = j->r;
  for (int64_t g = 0; g < z->groups; g++)
    TRY(gemm_one(r->dtype, true, false, z->depth, z->area, z->filters, 1,
        vec_at(r, weight, g * z->filters * z->depth), z->depth,
        vec_at(r, dy, g * z->filters * z->area), z->area, 0,
        vec_at(r, j->columns, g * z->depth * z->area), z->area));
  if (j->doffset || j->dmask) each_tap(j, gather_range);
  if (j->dx)
    parallel_for_stoppable(
        j->channels, elements_ns(8 * j->taps * z->area), scatter_range, j);
  return TY_OK;
}

/* Computes the gradients. in: head gradient, data, offset, mask if there is one, weight. */
static int deform_backward(struct call *c)
{
  const ty_desc *x = &c->in[1].d, *y = &c->in[0].d;
  struct deform_job j = make_deform_job(c, x, y);
  const struct sizes z = make_sizes(&j);
  const int w = j.modulated ? 3 : 2;
  for (int64_t i = 0; i < x->dim[0]; i++) {
    const void *dy = sample_at(&c->in[0], i);
    take_sample(&j, c->in + 1, i);
    j.dx = sample_at(&c->out[0], i);
    j.doffset = sample_at(&c->out[1], i);
    j.dmask = j.modulated ? sample_at(&c->out[2], i) : NULL;
    if (c->out[w].p) TRY(back_weight(&j, &z, dy, c->out[w].p, i));
    if (j.dx || j.doffset || j.dmask) TRY(back_columns(&j, &z, dy, c->in[1 + w].p));
  }
  if (c->nout > w + 1 && c->out[w + 1].p)
    convolve_bias(x->dtype, x->dim[0], y->dim[1], z.area, c->in[0].p, c->out[w + 1].p, false);
  return TY_OK;
}

static size_t columns_bytes(const struct call *c, const ty_desc *x, const ty_desc *y)
{
  struct deform_job j = make_deform_job(c, x, y);
  return (size_t)(j.channels * j.taps * j.H * j.W) * dtype_size(x->dtype);
}
static size_t deform_scratch(const struct call *c)
{
  return columns_bytes(c, &c->in[0].d, &c->out[0].d);
}
static size_t deform_back_scratch(const struct call *c)
{
  return columns_bytes(c, &c->in[1].d, &c->in[0].d);
}

static const struct kernel cpu[]  = { { "columns", deform_forward,  T_FLOAT, .scratch = deform_scratch }, { 0 } };
static const struct kernel back[] = { { "columns", deform_backward, T_FLOAT, .scratch = deform_back_scratch }, { 0 } };

const struct op op_deformable_convolution[] = { {
  .name = "_contrib_DeformableConvolution",
  .doc = "Convolution of data (N, C, H, W) whose taps are moved by offset (N, 2 taps num_deformable_group, H', W'): down, across of each "
         "tap; weight as of Convolution. Gradients of all inputs.",
  .in = "data offset weight bias", .in_of = v1_ports, .out = "output", .param = v1_params, .param_size = sizeof(struct deform),
  .check = deform_check, .shape = deform_shape, .grad = "g0 i0 i1 i2", .cpu = cpu, .back_cpu = back,
}, {
  .name = "_contrib_ModulatedDeformableConvolution",
  .doc = "DeformableConvolution whose taps are also multiplied by mask (N, taps num_deformable_group, H', W'). Gradients of all inputs.",
  .in = "data offset mask weight bias", .in_of = modulated_ports, .out = "output", .param = modulated_params,
  .param_size = sizeof(struct deform), .check = deform_check, .shape = deform_shape, .grad = "g0 i0 i1 i2 i3", .cpu = cpu, .back_cpu = back,
}, { 0 } };
