/* psroi_pooling.c - position-sensitive pooling of regions: PSROIPooling, DeformablePSROIPooling.
**
** Each bin of a region reads its own channels: data has output_dim planes for each cell of a grid
** of group_size x group_size cells, and bin (i, j) reads the cell that contains its position in the
** region. Corners of a region (sample, x1, y1, x2, y2) are rounded to whole units, the last one is
** included, and a region is at least a tenth of a pixel large. PSROIPooling takes the mean of the
** pixels of a bin. DeformablePSROIPooling moves the bin by trans (regions, 2 classes, part_size,
** part_size) times trans_std times the region's size, and takes the mean of the bilinear samples
** inside the image. Empty bins and regions of a sample that the batch does not have give 0.
** Coordinates are rounded to the data's type.
** Sources: Dai et al., "R-FCN", NIPS 2016; Dai et al., "Deformable Convolutional Networks",
** ICCV 2017.
*/
#include "kernel/element/regions.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct psroi_param {
  double  spatial_scale, trans_std;
  int64_t output_dim, pooled_size, group_size, part_size, sample_per_part, no_trans;
};
#define FIELD(name) offsetof(struct psroi_param, name)
#define SCALE \
  { "spatial_scale", P_FLOAT, FIELD(spatial_scale), NULL, \
    "pixels of data per unit of the corners", NULL, "[0,1]" }
#define PLANES \
  { "output_dim",  P_INT, FIELD(output_dim),  NULL, "channels of the result", NULL, \
    "[1,16777216]" }
#define POOLED \
  { "pooled_size", P_INT, FIELD(pooled_size), NULL, "bins along each side of a region", NULL, \
    "[1,65536]" }
static const struct param psroi_params[] = {
  SCALE, PLANES, POOLED,
  { "group_size", P_INT, FIELD(group_size), "0", "cells along each side of the grid of channels; 0: pooled_size", NULL, "[0,65536]" },
  { 0 }
};
static const struct param deformable_params[] = {
  SCALE, PLANES,
  { "group_size", P_INT, FIELD(group_size), NULL, "cells along each side of the grid of channels", NULL, "[1,65536]" },
  POOLED,
  { "part_size", P_INT, FIELD(part_size), "0", "cells along each side of trans; 0: pooled_size", NULL, "[0,65536]" },
  { "sample_per_part", P_INT, FIELD(sample_per_part), "1", "samples along each side of a bin", NULL, "[1,1024]" },
  { "trans_std", P_FLOAT, FIELD(trans_std), "0", "factor of trans", NULL, "[0,1]" },
  { "no_trans", P_BOOL, FIELD(no_trans), "0", "there is no trans" },
  { 0 }
};

static int psroi_check(void *param)
{
  struct psroi_param *p = param;
  if (!p->group_size) p->group_size = p->pooled_size;
  if (!p->part_size) p->part_size = p->pooled_size;
  return TY_OK;
}

static int psroi_shape(struct infer *s)
{
  const struct psroi_param *p = s->param;
  ty_desc *d = &s->in[0], *rois = &s->in[1];
  if (d->ndim && d->ndim != 4)
    return infer_fail(
        s, TY_ESHAPE, d, "expected (batch, channels, height, width), got %d dimensions", d->ndim);
  if (rois->ndim && rois->ndim != 2)
    return infer_fail(s, TY_ESHAPE, rois, "expected (regions, 5), got %d dimensions", rois->ndim);
  if (d->ndim) TRY(shape_dim(s, d, 1, p->output_dim * p->group_size * p->group_size));
  if (!rois->ndim) return TY_OK;
  TRY(shape_dim(s, rois, 1, 5));
  int64_t out[4] = { rois->dim[0], p->output_dim, p->pooled_size, p->pooled_size };
  for (int k = 0; k < s->nout; k++) TRY(shape_is(s, &s->out[k], 4, out));
  return TY_OK;
}

static int deformable_shape(struct infer *s)
{
  const struct psroi_param *p = s->param;
  TRY(psroi_shape(s));
  if (p->no_trans || !s->in[1].ndim) return TY_OK;
  ty_desc *trans = &s->in[2];
  int64_t expected[4] = { s->in[1].dim[0], 0, p->part_size, p->part_size };
  TRY(shape_is(s, trans, 4, expected));
  int64_t two = trans->dim[1];
  if (two && (two % 2 || p->output_dim % (two / 2)))
    return infer_fail(s, TY_ESHAPE, trans,
        "%lld channels; expected two for each class, whose number divides output_dim %lld",
        (long long)two, (long long)p->output_dim);
  return TY_OK;
}

static const char *deformable_in(const void *param)
{
  return ((const struct psroi_param *)param)->no_trans ? "data rois" : "data rois trans";
}

/* -- regions and bins -------------------------------------------------------------------------- */

struct psroi_call {                                   /* what all regions share */
  const struct vec_ops *r;
  const struct psroi_param *p;
  const ty_desc *d;                                   /* of data */
  int64_t classes;                                    /* of trans; 0: there is no trans */
  const void *rois, *x, *trans, *dy, *count;
  void   *y, *counted, *dx, *dtrans;
  struct ps_grid s;
};

static struct ps_grid make_grid(const struct psroi_param *p, const ty_desc *d)
{
  return (struct ps_grid){ p->spatial_scale, p->trans_std, p->output_dim, p->pooled_size,
    p->group_size, p->part_size, p->sample_per_part, { d->dim[2], d->dim[3] }, d->dim[0],
    d->dtype == TY_F32 };
}

static struct ps_region read_region(const struct psroi_call *k, int64_t n, double shift)
{
  double v[5];
  for (int i = 0; i < 5; i++) v[i] = k->r->get(k->rois, 5 * n + i);
  return ps_region(&k->s, v, shift);
}

/* A bin of one channel of the result. out: index in the result. position: row and column of the
** bin. plane: index in data of the plane that it reads. */
struct psroi_bin { int64_t region, out, channel, position[2], plane; };

/* Returns bin i of region n, counted over channels, rows and columns. */
static struct psroi_bin make_bin(
    const struct psroi_call *k, const struct ps_region *g, int64_t n, int64_t i)
{
  const int64_t s = k->p->pooled_size, cells = k->p->group_size;
  struct psroi_bin b = {
    n, n * k->p->output_dim * s * s + i, i / (s * s), { i / s % s, i % s }, 0
  };
  int64_t channel = (b.channel * cells + ps_cell(&k->s, b.position[0])) * cells +
      ps_cell(&k->s, b.position[1]);
  b.plane = (g->image * k->d->dim[1] + channel) * k->d->dim[2] * k->d->dim[3];
  return b;
}

static int64_t bins_of_region(const struct psroi_call *k)
{
  return k->p->output_dim * k->p->pooled_size * k->p->pooled_size;
}

/* -- whole pixels ------------------------------------------------------------------------------ */

struct pixel_window { int64_t from[2], to[2]; };
static struct pixel_window make_pixel_window(
    const struct psroi_call *k, const struct ps_region *g, const struct psroi_bin *b)
{
  struct bin_ends y = ps_pixels(&k->s, g, 0, b->position[0]),
                  x = ps_pixels(&k->s, g, 1, b->position[1]);
  return (struct pixel_window){ { y.from, x.from }, { y.to, x.to } };
}

static double area_of(const struct pixel_window *q)
{
  return q->to[0] > q->from[0] && q->to[1] > q->from[1]
      ? (double)((q->to[0] - q->from[0]) * (q->to[1] - q->from[1]))
      : 0;
}

static void mean_body(int64_t begin, int64_t end, void *context)
{
  const struct psroi_call *k = context;
  for (int64_t n = begin; n < end; n++) {
    struct ps_region g = read_region(k, n, 0);
    for (int64_t i = 0; i < bins_of_region(k); i++) {
      struct psroi_bin b = make_bin(k, &g, n, i);
      struct pixel_window q = make_pixel_window(k, &g, &b);
      double area = g.image < 0 ? 0 : area_of(&q), sum = 0;
      for (int64_t y = q.from[0]; area > 0 && y < q.to[0]; y++)
        sum += k->r->sum(
            vec_at(k->r, k->x, b.plane + y * k->d->dim[3] + q.from[1]), q.to[1] - q.from[1]);
      k->r->set(k->y, b.out, area > 0 ? sum / area : 0);
    }
  }
}

static int mean_forward(struct call *c)
{
  struct psroi_call k = { .r = vec_ops_of(c->in[0].d.dtype),
    .p = c->param,
    .d = &c->in[0].d,
    .s = make_grid(c->param, &c->in[0].d),
    .x = c->in[0].p,
    .rois = c->in[1].p,
    .y = c->out[0].p };
  parallel_for(c->in[1].d.dim[0], elements_ns(16 * bins_of_region(&k)), mean_body, &k);
  return TY_OK;
}

/* Adds the gradient of region n's bins to dx. */
static void scatter_mean(const struct psroi_call *k, const struct ps_region *g, int64_t n)
{
  for (int64_t i = 0; i < bins_of_region(k); i++) {
    struct psroi_bin b = make_bin(k, g, n, i);
    struct pixel_window q = make_pixel_window(k, g, &b);
    double area = area_of(&q), share = area > 0 ? k->r->get(k->dy, b.out) / area : 0;
    for (int64_t y = q.from[0]; area > 0 && y < q.to[0]; y++) {
      void *row = vec_at(k->r, k->dx, b.plane + y * k->d->dim[3] + q.from[1]);
      k->r->affine(row, row, 1, share, q.to[1] - q.from[1]);
    }
  }
}

/* Computes the gradient, serially since regions may overlap. in: head gradient, regions. */
static int mean_backward(struct call *c)
{
  struct psroi_call k = { .r = vec_ops_of(c->out[0].d.dtype),
    .p = c->param,
    .d = &c->out[0].d,
    .s = make_grid(c->param, &c->out[0].d),
    .dy = c->in[0].p,
    .rois = c->in[1].p,
    .dx = c->out[0].p };
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!k.dx) return TY_OK;
  memset(k.dx, 0, desc_bytes(k.d));
  for (int64_t n = 0; n < c->in[1].d.dim[0]; n++) {
    struct ps_region g = read_region(&k, n, 0);
    if (g.image >= 0) scatter_mean(&k, &g, n);
  }
  return TY_OK;
}

/* -- moved samples ----------------------------------------------------------------------------- */

/* Returns the index in trans of a bin's offset x; y is one plane after it. */
static int64_t offsets_of(const struct psroi_call *k, const struct psroi_bin *b)
{
  const int64_t parts = k->p->part_size, class = b->channel / (k->p->output_dim / k->classes);
  return ((b->region * k->classes + class) * 2 * parts + ps_part(&k->s, b->position[0])) * parts +
      ps_part(&k->s, b->position[1]);
}

/* Sets start to the y and x of a bin's first corner, in pixels. */
static void find_start(const struct psroi_call *k, const struct ps_region *g,
    const struct psroi_bin *b, double start[2])
{
  int64_t plane = k->p->part_size * k->p->part_size, offset = k->classes ? offsets_of(k, b) : 0;
  for (int i = 0; i < 2; i++) {
    double trans = k->classes ? k->r->get(k->trans, offset + (1 - i) * plane) : 0;
    start[i] = ps_start(&k->s, g, i, b->position[i], trans);
  }
}

/* The four pixels of a sample: their indices in a plane, by row and column, and the distance of the
** sample from the first pixel, y and x. */
struct psroi_taps { int64_t at[2][2]; double way[2]; };
/* Finds the pixels of sample i of a bin. Returns false if it is outside the image. */
static bool taps_at(const struct psroi_call *k, const struct ps_region *g, const double start[2],
    int64_t i, struct psroi_taps *t)
{
  const int64_t per = k->p->sample_per_part, w = k->d->dim[3];
  struct align_tap y = ps_tap(&k->s, g, 0, start[0], i / per);
  struct align_tap x = ps_tap(&k->s, g, 1, start[1], i % per);
  if (y.at < 0 || x.at < 0) return false;
  *t = (struct psroi_taps){ { { y.at * w + x.at, y.at * w + x.next },
                              { y.next * w + x.at, y.next * w + x.next } },
    { y.weight, x.weight } };
  return true;
}

static double weight_of(const struct psroi_taps *t, int y, int x)
{
  return (y ? t->way[0] : 1 - t->way[0]) * (x ? t->way[1] : 1 - t->way[1]);
}

/* Computes a bin of the result and the number of its samples inside the image. */
static void sample_bin(
    const struct psroi_call *k, const struct ps_region *g, const struct psroi_bin *b)
{
  const int64_t all = k->p->sample_per_part * k->p->sample_per_part;
  double start[2], sum = 0;
  int64_t count = 0;
  struct psroi_taps t;
  if (g->image >= 0) find_start(k, g, b, start);
  for (int64_t i = 0; g->image >= 0 && i < all; i++) {
    if (!taps_at(k, g, start, i, &t)) continue;
    count++;
    for (int j = 0; j < 4; j++)
      sum += weight_of(&t, j / 2, j % 2) * k->r->get(k->x, b->plane + t.at[j / 2][j % 2]);
  }
  if (k->y) k->r->set(k->y, b->out, count ? sum / (double)count : 0);
  if (k->counted) k->r->set(k->counted, b->out, (double)count);
}

static void sample_body(int64_t begin, int64_t end, void *context)
{
  const struct psroi_call *k = context;
  for (int64_t n = begin; n < end; n++) {
    struct ps_region g = read_region(k, n, 0.5);
    for (int64_t i = 0; i < bins_of_region(k); i++) {
      struct psroi_bin b = make_bin(k, &g, n, i);
      sample_bin(k, &g, &b);
    }
  }
}

static int64_t classes_of(const struct psroi_param *p, const struct operand *trans)
{
  return p->no_trans ? 0 : trans->d.dim[1] / 2;
}

static int sample_forward(struct call *c)
{
  struct psroi_call k = { .r = vec_ops_of(c->in[0].d.dtype),
    .p = c->param,
    .d = &c->in[0].d,
    .s = make_grid(c->param, &c->in[0].d),
    .x = c->in[0].p,
    .rois = c->in[1].p,
    .y = c->out[0].p,
    .counted = c->out[1].p,
    .classes = classes_of(c->param, &c->in[2]) };
  if (k.classes) k.trans = c->in[2].p;
  parallel_for(c->in[1].d.dim[0], elements_ns(16 * bins_of_region(&k)), sample_body, &k);
  return TY_OK;
}

static void add_at(const struct psroi_call *k, void *p, int64_t i, double v)
{
  k->r->set(p, i, k->r->get(p, i) + v);
}

/* Returns the change of a sample's value per pixel that the sample moves along an axis. */
static double sample_slope(
    const struct psroi_call *k, const struct psroi_taps *t, int64_t plane, int axis)
{
  double v[2][2], other = t->way[1 - axis];
  for (int j = 0; j < 4; j++) v[j / 2][j % 2] = k->r->get(k->x, plane + t->at[j / 2][j % 2]);
  return axis ? (v[0][1] - v[0][0]) * (1 - other) + (v[1][1] - v[1][0]) * other
              : (v[1][0] - v[0][0]) * (1 - other) + (v[1][1] - v[0][1]) * other;
}

/* Adds the gradient of a bin to dx and dtrans, where not NULL. */
static void scatter_bin(
    const struct psroi_call *k, const struct ps_region *g, const struct psroi_bin *b)
{
  const int64_t all = k->p->sample_per_part * k->p->sample_per_part,
                plane = k->p->part_size * k->p->part_size;
  double start[2], count = k->r->get(k->count, b->out), share = k->r->get(k->dy, b->out) / count;
  int64_t offset = k->dtrans ? offsets_of(k, b) : 0;
  struct psroi_taps t;
  if (!(count > 0)) return;
  find_start(k, g, b, start);
  for (int64_t i = 0; i < all; i++) {
    if (!taps_at(k, g, start, i, &t)) continue;
    for (int j = 0; k->dx && j < 4; j++)
      add_at(k, k->dx, b->plane + t.at[j / 2][j % 2], share * weight_of(&t, j / 2, j % 2));
    for (int axis = 0; k->dtrans && axis < 2; axis++)
      add_at(k, k->dtrans, offset + (1 - axis) * plane,
          share * sample_slope(k, &t, b->plane, axis) * k->p->trans_std * g->size[axis]);
  }
}

/* Computes the gradients, serially since regions may overlap. in: head gradient, data, regions,
** samples counted, trans. */
static int sample_backward(struct call *c)
{
  struct psroi_call k = { .r = vec_ops_of(c->in[1].d.dtype),
    .p = c->param,
    .d = &c->in[1].d,
    .s = make_grid(c->param, &c->in[1].d),
    .dy = c->in[0].p,
    .x = c->in[1].p,
    .rois = c->in[2].p,
    .count = c->in[3].p,
    .dx = c->out[0].p,
    .classes = classes_of(c->param, &c->in[4]) };
  if (k.classes) k.trans = c->in[4].p, k.dtrans = c->out[2].p;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].p) memset(c->out[i].p, 0, desc_bytes(&c->out[i].d));
  for (int64_t n = 0; n < c->in[2].d.dim[0] && (k.dx || k.dtrans); n++) {
    struct ps_region g = read_region(&k, n, 0.5);
    for (int64_t i = 0; g.image >= 0 && i < bins_of_region(&k); i++) {
      struct psroi_bin b = make_bin(&k, &g, n, i);
      scatter_bin(&k, &g, &b);
    }
  }
  return TY_OK;
}

static const char *deformable_grad(const void *param)
{
  return ((const struct psroi_param *)param)->no_trans ? "g0 i0 i1 o1" : "g0 i0 i1 o1 i2";
}

static const struct kernel mean_cpu[] = { { "bins", mean_forward, T_FLOAT }, { 0 } };
static const struct kernel mean_back_cpu[] = { { "bins", mean_backward, T_FLOAT }, { 0 } };
static const struct kernel sample_cpu[] = { { "bins", sample_forward, T_FLOAT }, { 0 } };
static const struct kernel sample_back_cpu[] = { { "bins", sample_backward, T_FLOAT }, { 0 } };

const struct op op_psroi_pooling[] = {
  { .name = "_contrib_PSROIPooling", .in = "data rois", .out = "output",
    .doc = "Means over the bins of each region (sample, x1, y1, x2, y2), each from channels of its own: (regions, output_dim, bins, bins).",
    .param = psroi_params, .param_size = sizeof(struct psroi_param), .check = psroi_check, .shape = psroi_shape,
    .grad = "g0 i1", .cpu = mean_cpu, .back_cpu = mean_back_cpu },
  { .name = "_contrib_DeformablePSROIPooling", .in = "data rois trans", .in_of = deformable_in, .out = "output [top_count]",
    .doc = "PSROIPooling over bilinear samples of bins that trans (regions, 2 classes, part_size, part_size) moves.",
    .param = deformable_params, .param_size = sizeof(struct psroi_param), .check = psroi_check, .shape = deformable_shape,
    .grad_of = deformable_grad, .cpu = sample_cpu, .back_cpu = sample_back_cpu },
  { 0 }
};
