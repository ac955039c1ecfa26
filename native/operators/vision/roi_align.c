/* roi_align.c - means of bilinear samples over a grid of bins in each region: ROIAlign,
** RROIAlign (rotated regions).
**
** A region is (sample, x1, y1, x2, y2) or (sample, centre x, centre y, width, height, degrees),
** in units of which spatial_scale makes pixels; it is at least one pixel large, except that an
** aligned region keeps its size, less half a pixel at each end. A bin takes grid x grid samples:
** as many as asked for, or one per pixel begun. A sample more than one pixel outside the image
** is 0 and counts; the others stick to the border. A sample of the batch that does not exist,
** and a region without size, with NaN or further than 1e9 pixels off, give 0. Which samples can
** be inside follows from the geometry, so that a huge region costs no more than the image.
** Coordinates are rounded as the data's type does. Source: He et al., "Mask R-CNN", ICCV 2017.
*/
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
      "pooled_size: expected two positive numbers");
  return TY_OK;
}

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

struct align_call {                                       /* what all regions share */
  const struct vec_ops *r;
  const struct align_param *p;
  const ty_desc *d;                                   /* of data */
  int64_t channels;                                   /* of the result */
  bool    rotated;
  const void *rois;
  /* forward: y from x; backward: x (gradient) from y */
  void   *x, *y;
};

struct align_region {
  int64_t sample;                                     /* -1: there is nothing to see */
  /* y, x: first pixel, size of a bin, samples per bin */
  double  start[2], bin[2], grid[2];
  /* of a rotated region; start is relative to the centre */
  double  centre[2], cosine, sine;
};

static double held(const struct align_call *k, double v)
{
  return k->r->dtype == TY_F32 ? (double)(float)v : v;
}

/* Scaled numbers of a region; false: it cannot be seen. */
static bool read_region(const struct align_call *k, int64_t n, int columns, double *v)
{
  double scale = held(k, k->p->spatial_scale);
  for (int i = 0; i < columns; i++) {
    v[i] = k->r->get(k->rois, n * columns + i);
    if (i > 0 && i < 5) v[i] = held(k, v[i] * scale);
    if (!(fabs(v[i]) <= 1e9)) return false;
  }
  return v[0] > -1 && v[0] < (double)k->d->dim[0];
}

static struct align_region region_of(const struct align_call *k, int64_t n)
{
  struct align_region g = { .sample = -1, .cosine = 1 };
  double v[6], shift = k->p->aligned ? 0.5 : 0;
  if (!read_region(k, n, k->rotated ? 6 : 5, v)) return g;
  for (int i = 0; i < 2; i++) { /* y, then x */
    double first = held(k, v[2 - i] - shift),
           size = k->rotated ? v[4 - i] : held(k, held(k, v[4 - i] - shift) - first);
    if (k->p->aligned && !(size > 0)) return g;
    if (!k->p->aligned) size = MAX(size, 1);
    g.centre[i] = k->rotated ? first : 0;
    g.start[i] = k->rotated ? held(k, -size / 2) : first;
    g.bin[i] = held(k, size / (double)k->p->pooled_size.d[i]);
    g.grid[i] = k->p->ratio > 0 ? (double)k->p->ratio : fmax(ceil(g.bin[i]), 1);
  }
  if (k->rotated) {
    double angle = held(k, v[5] * (M_PI / 180));
    g.cosine = held(k, cos(angle));
    g.sine = held(k, sin(angle));
  }
  g.sample = (int64_t)v[0];
  return g;
}

/* Sample i of bin `b` along an axis, before rotation. */
static double sample_at(
    const struct align_call *k, const struct align_region *g, int axis, int64_t b, double i)
{
  double first = held(k, g->start[axis] + held(k, (double)b * g->bin[axis]));
  return held(k, first + held(k, held(k, (i + 0.5) * g->bin[axis]) / g->grid[axis]));
}

/* The samples of bin `b` along an axis that may lie within `low` .. `high`: from .. to - 1, a
** few too many. */
static void samples_within(const struct align_region *g, int axis, int64_t b, double low,
    double high, double *from, double *to)
{
  double step = g->bin[axis] / g->grid[axis], first = g->start[axis] + (double)b * g->bin[axis];
  *from = fmin(fmax(floor((low - first) / step) - 2, 0), g->grid[axis]);
  *to = fmin(fmax(ceil((high - first) / step) + 2, 0), g->grid[axis]);
}

/* -- bilinear samples -------------------------------------------------------------------------- */

struct align_taps { int64_t at[4]; double weight[4]; };     /* places in a plane */

static bool taps_at(const struct align_call *k, double y, double x, struct align_taps *t)
{
  int64_t h = k->d->dim[2], w = k->d->dim[3];
  if (!(y >= -1 && y <= (double)h && x >= -1 && x <= (double)w)) return false;
  y = fmin(fmax(y, 0), (double)(h - 1));
  x = fmin(fmax(x, 0), (double)(w - 1));
  int64_t top = (int64_t)y, left = (int64_t)x, low = MIN(top + 1, h - 1),
          right = MIN(left + 1, w - 1);
  double fy = held(k, y - (double)top), fx = held(k, x - (double)left);
  *t = (struct align_taps){ { top * w + left, top * w + right, low * w + left, low * w + right },
    { (1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx } };
  return true;
}

/* What happens at each sample of a bin: its taps, for one channel after the other. */
struct align_bin {
  const struct align_call *k;
  int64_t plane, out, next_plane, next_out;
  double share;
};

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

/* Where the image lies, as seen from before the rotation: y and x, from low to high. */
static void image_within(
    const struct align_call *k, const struct align_region *g, double low[2], double high[2])
{
  low[0] = low[1] = INFINITY;
  high[0] = high[1] = -INFINITY;
  for (int i = 0; i < 4; i++) {
    double y = (i / 2 ? (double)k->d->dim[2] : -1) - g->centre[0],
           x = (i % 2 ? (double)k->d->dim[3] : -1) - g->centre[1];
    double corner[2] = { y * g->cosine + x * g->sine, x * g->cosine - y * g->sine };
    for (int j = 0; j < 2; j++)
      low[j] = fmin(low[j], corner[j]), high[j] = fmax(high[j], corner[j]);
  }
}

static void visit_bin(const struct align_call *k, const struct align_region *g, int64_t by,
    int64_t bx, const struct align_bin *b, visitor visit)
{
  double low[2], high[2], y0, y1, x0, x1;
  struct align_taps t;
  image_within(k, g, low, high);
  samples_within(g, 0, by, low[0], high[0], &y0, &y1);
  samples_within(g, 1, bx, low[1], high[1], &x0, &x1);
  for (double i = y0; i < y1; i++)
    for (double j = x0; j < x1; j++) {
      double y = sample_at(k, g, 0, by, i), x = sample_at(k, g, 1, bx, j), down = y;
      if (k->rotated) {
        y = held(k, held(k, held(k, down * g->cosine) - held(k, x * g->sine)) + g->centre[0]);
        x = held(k, held(k, held(k, x * g->cosine) + held(k, down * g->sine)) + g->centre[1]);
      }
      if (taps_at(k, y, x, &t)) visit(b, &t);
    }
}

static void visit_region(const struct align_call *k, int64_t n, visitor visit)
{
  struct align_region g = region_of(k, n);
  if (g.sample < 0) return;
  const int64_t *bins = k->p->pooled_size.d, count = bins[0] * bins[1],
                plane = k->d->dim[2] * k->d->dim[3];
  bool own = k->p->position_sensitive;
  for (int64_t i = 0; i < count; i++) {
    struct align_bin b = { k, (g.sample * k->d->dim[1] + (own ? i : 0)) * plane,
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
    k->r->fill(at(k->r, k->y, n * size), 0, size);
    visit_region(k, n, add_to_bin);
  }
}

static int forward(struct call *c, bool rotated)
{
  const ty_desc *d = &c->in[0].d;
  struct align_call k = { vec_ops_of(d->dtype), c->param, d, c->out[0].d.dim[1], rotated,
    c->in[1].p, c->in[0].p, c->out[0].p };
  parallel_for(c->in[1].d.dim[0], grain_of(desc_count(&c->out[0].d) / c->in[1].d.dim[0] * 16),
      forward_body, &k);
  return TY_OK;
}

static int align_forward(struct call *c) { return forward(c, false); }
static int rotated_forward(struct call *c) { return forward(c, true); }

/* in: head gradient, regions. Regions may overlap: one after the other. */
static int align_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct align_call k = { vec_ops_of(d->dtype), c->param, d, c->in[0].d.dim[1], false, c->in[1].p,
    c->out[0].p, c->in[0].p };
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
