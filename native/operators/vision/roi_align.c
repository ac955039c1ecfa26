/* roi_align.c - means of bilinear samples over a grid of bins in each region: ROIAlign,
** RROIAlign (rotated regions).
**
** A region is (sample, x1, y1, x2, y2) or (sample, centre x, centre y, width, height, degrees);
** spatial_scale converts its coordinates to pixels. A region smaller than one pixel is enlarged to
** one, except that an aligned region moves by half a pixel and keeps its size. The samples of a bin
** form a grid of the given number per axis, or of one per pixel, rounded up. A sample more than one
** pixel outside the image counts as 0; a nearer one takes the value at the border. A region is 0 if
** the batch has no such sample, or if it has no size, contains NaN, or is more than 1e9 pixels
** away. Only samples that can be inside the image are visited, so the cost of a huge region is
** bounded by the size of the image. Coordinates are rounded to the data's type.
** Source: He et al., "Mask R-CNN", ICCV 2017.
*/
#include "kernel/element/regions.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct align_param {
  struct dims pooled_size;
  double spatial_scale;
  int64_t ratio, position_sensitive, aligned;
};
#define POOLED { "pooled_size", P_SHAPE, offsetof(struct align_param, pooled_size), NULL, \
  "bins of a region: height, width", NULL, SIZES_RANGE }
#define SCALE { "spatial_scale", P_FLOAT, offsetof(struct align_param, spatial_scale), NULL, \
                "pixels of data per unit of the regions", NULL, "[0,1]" }
#define RATIO(name) { name, P_INT, offsetof(struct align_param, ratio), "-1", \
  "samples per side of a bin; 0 and below: by its size", NULL, "[-2147483648,1024]" }
static const struct param align_params[] = {
  POOLED, SCALE, RATIO("sample_ratio"),
  { "position_sensitive", P_BOOL, offsetof(struct align_param, position_sensitive), "0", "each bin reads channels of its own" },
  { "aligned", P_BOOL, offsetof(struct align_param, aligned), "0", "regions move by half a pixel and keep their size" },
  { 0 }
};
static const struct param rotated_params[] = { POOLED, SCALE, RATIO("sampling_ratio"), { 0 } };

static int align_check(void *param)
{
  const struct align_param *p = param;
  NEED(p->pooled_size.n == 2 && p->pooled_size.d[0] > 0 && p->pooled_size.d[1] > 0, TY_EVALUE,
      "parameter pooled_size: expected two positive numbers");
  return TY_OK;
}

/* Infers the shapes. columns: numbers of a region; expected: the shape of regions in errors. */
static int regions_shape(struct infer *s, int64_t columns, const char *expected)
{
  const struct align_param *p = s->param;
  const ty_desc *d = &s->in[0], *rois = &s->in[1];
  int64_t bins = p->pooled_size.d[0] * p->pooled_size.d[1];
  if (d->ndim && d->ndim != 4)
    return infer_fail(
        s, TY_ESHAPE, d, "expected (batch, channels, height, width), got %d dimensions", d->ndim);
  if (rois->ndim && rois->ndim != 2)
    return infer_fail(s, TY_ESHAPE, rois, "expected %s, got %d dimensions", expected, rois->ndim);
  if (rois->ndim) TRY(shape_dim(s, &s->in[1], 1, columns));
  if (!d->ndim || !rois->ndim) return TY_OK;
  if (p->position_sensitive && d->dim[1] % bins)
    return infer_fail(s, TY_ESHAPE, d, "%lld channels for %lld bins; expected a multiple",
        (long long)d->dim[1], (long long)bins);
  int64_t channels = p->position_sensitive ? d->dim[1] / bins : d->dim[1];
  int64_t out[4] = { rois->dim[0], channels, p->pooled_size.d[0], p->pooled_size.d[1] };
  return shape_is(s, &s->out[0], 4, out);
}

static int align_shape(struct infer *s) { return regions_shape(s, 5, "(regions, 5)"); }
static int rotated_shape(struct infer *s) { return regions_shape(s, 6, "(regions, 6)"); }

/* -- one region -------------------------------------------------------------------------------- */

struct align_call {                                   /* what all regions share */
  const struct vec_ops *r;
  const struct align_param *p;
  const ty_desc *d;                                   /* of data */
  int64_t channels;                                   /* of the result */
  const void *rois;
  void   *x;                                          /* data; backward writes its gradient */
  void   *y;                                          /* the result; backward reads its gradient */
  struct align_grid s;
};

static struct align_grid make_grid(const struct align_param *p, const ty_desc *d, bool rotated)
{
  return (struct align_grid){ p->spatial_scale, { p->pooled_size.d[0], p->pooled_size.d[1] },
    { d->dim[2], d->dim[3] }, d->dim[0], p->ratio, p->aligned != 0, rotated,
    d->dtype == TY_F32 };
}

static struct align_region read_region(const struct align_call *k, int64_t n)
{
  const int columns = k->s.rotated ? 6 : 5;
  double v[6];
  for (int i = 0; i < columns; i++) v[i] = k->r->get(k->rois, n * columns + i);
  return align_region(&k->s, v);
}

/* -- bilinear samples -------------------------------------------------------------------------- */

struct align_taps { int64_t at[4]; double weight[4]; };     /* indices in a plane */

/* Finds the pixels of the sample at (y, x). Returns false if it is outside the image. */
static bool taps_at(const struct align_call *k, double y, double x, struct align_taps *t)
{
  struct align_tap v = align_tap(&k->s, 0, y), u = align_tap(&k->s, 1, x);
  int64_t w = k->d->dim[3];
  if (v.at < 0 || u.at < 0) return false;
  *t = (struct align_taps){ { v.at * w + u.at, v.at * w + u.next, v.next * w + u.at,
                              v.next * w + u.next },
    { (1 - v.weight) * (1 - u.weight), (1 - v.weight) * u.weight, v.weight * (1 - u.weight),
      v.weight * u.weight } };
  return true;
}

/* A bin of all channels: indices of the first channel's plane in data and of its element in the
** result, and the steps from one channel to the next. */
struct align_bin {
  const struct align_call *k;
  int64_t plane, out, next_plane, next_out;
  double share;                                       /* 1 / samples of the bin */
};

/* Adds a sample to the bin in the result. */
static void add_to_bin(const struct align_bin *b, const struct align_taps *t)
{
  const struct vec_ops *r = b->k->r;
  for (int64_t c = 0; c < b->k->channels; c++) {
    int64_t plane = b->plane + c * b->next_plane, out = b->out + c * b->next_out;
    double v = 0;
    for (int i = 0; i < 4; i++)
      if (t->weight[i] != 0) v += t->weight[i] * r->get(b->k->x, plane + t->at[i]);
    r->set(b->k->y, out, r->get(b->k->y, out) + v * b->share);
  }
}

/* Adds a sample's part of the bin's gradient to the gradient of data. */
static void add_to_image(const struct align_bin *b, const struct align_taps *t)
{
  const struct vec_ops *r = b->k->r;
  for (int64_t c = 0; c < b->k->channels; c++) {
    int64_t plane = b->plane + c * b->next_plane, out = b->out + c * b->next_out;
    double g = r->get(b->k->y, out) * b->share;
    for (int i = 0; i < 4; i++)
      if (t->weight[i] != 0)
        r->set(b->k->x, plane + t->at[i], r->get(b->k->x, plane + t->at[i]) + t->weight[i] * g);
  }
}

typedef void (*visitor)(const struct align_bin *b, const struct align_taps *t);

/* Calls visit for each sample of bin (by, bx) inside the image. */
static void visit_bin(const struct align_call *k, const struct align_region *g, int64_t by,
    int64_t bx, const struct align_bin *b, visitor visit)
{
  double low[2], high[2];
  struct align_taps t;
  for (int i = 0; i < 2; i++) align_image(&k->s, g, i, &low[i], &high[i]);
  struct sample_ends v = align_within(g, 0, by, low[0], high[0]);
  struct sample_ends u = align_within(g, 1, bx, low[1], high[1]);
  for (double i = v.from; i < v.to; i++)
    for (double j = u.from; j < u.to; j++) {
      double y = align_sample(&k->s, g, 0, by, i), x = align_sample(&k->s, g, 1, bx, j);
      if (k->s.rotated) align_turn(&k->s, g, &y, &x);
      if (taps_at(k, y, x, &t)) visit(b, &t);
    }
}

/* Calls visit for each sample of all bins of region n. */
static void visit_region(const struct align_call *k, int64_t n, visitor visit)
{
  struct align_region g = read_region(k, n);
  if (g.image < 0) return;
  const int64_t *bins = k->p->pooled_size.d, count = bins[0] * bins[1],
                plane = k->d->dim[2] * k->d->dim[3];
  bool own = k->p->position_sensitive;
  for (int64_t i = 0; i < count; i++) {
    struct align_bin b = { k, (g.image * k->d->dim[1] + (own ? i : 0)) * plane,
      n * k->channels * count + i, own ? count * plane : plane, count,
      1 / (g.grid[0] * g.grid[1]) };
    visit_bin(k, &g, i / bins[1], i % bins[1], &b, visit);
  }
}

/* -- kernels ----------------------------------------------------------------------------------- */

static void forward_body(int64_t begin, int64_t end, void *context)
{
  const struct align_call *k = context;
  int64_t size = k->channels * k->p->pooled_size.d[0] * k->p->pooled_size.d[1];
  for (int64_t n = begin; n < end; n++) {
    k->r->fill(vec_at(k->r, k->y, n * size), 0, size);
    visit_region(k, n, add_to_bin);
  }
}

static int roi_forward(struct call *c, bool rotated)
{
  const ty_desc *d = &c->in[0].d;
  struct align_call k = { vec_ops_of(d->dtype), c->param, d, c->out[0].d.dim[1], c->in[1].p,
    c->in[0].p, c->out[0].p, make_grid(c->param, d, rotated) };
  parallel_for(c->in[1].d.dim[0], elements_ns(desc_count(&c->out[0].d) / c->in[1].d.dim[0] * 16),
      forward_body, &k);
  return TY_OK;
}

static int align_forward(struct call *c) { return roi_forward(c, false); }
static int rotated_forward(struct call *c) { return roi_forward(c, true); }

/* Computes the gradient, serially since regions may overlap. in: head gradient, regions. */
static int align_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct align_call k = { vec_ops_of(d->dtype), c->param, d, c->in[0].d.dim[1], c->in[1].p,
    c->out[0].p, c->in[0].p, make_grid(c->param, d, false) };
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!c->out[0].p) return TY_OK;
  memset(c->out[0].p, 0, desc_bytes(d));
  for (int64_t n = 0; n < c->in[1].d.dim[0]; n++) visit_region(&k, n, add_to_image);
  return TY_OK;
}

static const struct kernel align_cpu[] = { { "bins", align_forward, T_FLOAT }, { 0 } };
static const struct kernel align_back_cpu[] = { { "bins", align_backward, T_FLOAT }, { 0 } };
static const struct kernel rotated_cpu[] = { { "bins", rotated_forward, T_FLOAT }, { 0 } };

const struct op op_roi_align[] = {
  { .name = "_contrib_ROIAlign", .in = "data rois", .out = "output",
    .doc = "Means of bilinear samples over pooled_size bins of each region (sample, x1, y1, x2, y2): (regions, channels, bins, bins).",
    .param = align_params, .param_size = sizeof(struct align_param), .check = align_check, .shape = align_shape,
    .grad = "g0 i1", .cpu = align_cpu, .back_cpu = align_back_cpu },
  { .name = "_contrib_RROIAlign", .in = "data rois", .out = "output",
    .doc = "ROIAlign over rotated regions (sample, centre x, centre y, width, height, degrees); it has no gradient.",
    .param = rotated_params, .param_size = sizeof(struct align_param), .check = align_check, .shape = rotated_shape,
    .cpu = rotated_cpu },
  { 0 }
};
