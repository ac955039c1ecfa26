/* roi_pooling.c - ROIPooling: the maximum over a grid of bins in each region of interest.
**
** A region is (sample, x1, y1, x2, y2). Its corners are scaled and rounded half away from zero, the
** pixels at both are included, and a region is at least one pixel large. Bin i of n covers pixels
** floor(i size / n) to ceil((i + 1) size / n) - 1, clipped to the image. An empty bin and a region
** of a sample that the batch does not have give 0. The hidden second output holds the index of each
** maximum in its plane (-1: none).
*/
#include "kernel/element/regions.h"
#include "kernel/vec/vec.h"
#include "op/op.h"

struct roi_param { struct dims pooled_size; double spatial_scale; };
static const struct param roi_params[] = {
  { "pooled_size",   P_SHAPE, offsetof(struct roi_param, pooled_size),   NULL, "bins of a region: height, width", NULL, SIZES_RANGE },
  { "spatial_scale", P_FLOAT, offsetof(struct roi_param, spatial_scale), NULL,
    "pixels of data per unit of the corners", NULL, "[0,1]" },
  { 0 }
};

static int roi_check(void *param)
{
  const struct roi_param *p = param;
  NEED(p->pooled_size.n == 2 && p->pooled_size.d[0] > 0 && p->pooled_size.d[1] > 0, TY_EVALUE,
      "parameter pooled_size: expected two positive numbers");
  return TY_OK;
}

static int roi_shape(struct infer *s)
{
  const struct roi_param *p = s->param;
  ty_desc d = s->in[0], rois = s->in[1];
  if (d.ndim && d.ndim != 4)
    return infer_fail(s, TY_ESHAPE, &s->in[0],
        "expected (batch, channels, height, width), got %d dimensions", d.ndim);
  if (rois.ndim && rois.ndim != 2)
    return infer_fail(
        s, TY_ESHAPE, &s->in[1], "expected (regions, 5), got %d dimensions", rois.ndim);
  if (!rois.ndim) return TY_OK;
  TRY(shape_dim(s, &s->in[1], 1, 5));
  if (!d.ndim) return TY_OK;
  int64_t out[4] = { rois.dim[0], d.dim[1], p->pooled_size.d[0], p->pooled_size.d[1] };
  TRY(shape_is(s, &s->out[1], 4, out));
  return shape_is(s, &s->out[0], 4, out);
}

/* Infers the types. The indices of the maxima are int32, since a half type would round them. */
static int roi_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->out[0]));
  TRY(type_both(s, &s->in[0], &s->in[1]));
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_is(s, &s->out[1], TY_I32);
}

struct roi {
  const struct vec_ops *r;
  const struct roi_param *p;
  const ty_desc *d;
  const void *x, *rois;
  void *y;
  int32_t *argmax;
};

/* Returns the index in a plane of the greatest pixel of a bin; -1: the bin is empty. */
static int64_t find_greatest(
    const struct roi *k, int64_t plane, struct bin_ends y, struct bin_ends x)
{
  int64_t w = k->d->dim[3], best = -1;
  double most = -INFINITY;
  for (int64_t i = y.from; i < y.to; i++)
    for (int64_t j = x.from; j < x.to; j++) {
      double v = k->r->get(k->x, plane + i * w + j);
      if (v > most) most = v, best = i * w + j;
    }
  return best;
}

static void pool_one_region(const struct roi *k, int64_t n)
{
  const struct vec_ops *r = k->r;
  double v[5];
  for (int i = 0; i < 5; i++) v[i] = r->get(k->rois, 5 * n + i);
  const int64_t *d = k->d->dim, *bins = k->p->pooled_size.d;
  struct pool_region g = pool_region(v, k->p->spatial_scale, d[0]);
  int64_t out = n * d[1] * bins[0] * bins[1];
  for (int64_t c = 0; c < d[1]; c++)
    for (int64_t b = 0; b < bins[0] * bins[1]; b++, out++) {
      int64_t plane = (g.image * d[1] + c) * d[2] * d[3];
      struct bin_ends y = pool_bin(&g, 0, b / bins[1], bins[0], d[2]);
      struct bin_ends x = pool_bin(&g, 1, b % bins[1], bins[1], d[3]);
      int64_t best = g.image >= 0 ? find_greatest(k, plane, y, x) : -1;
      if (k->y) r->set(k->y, out, best < 0 ? 0 : r->get(k->x, plane + best));
      if (k->argmax) k->argmax[out] = (int32_t)best;
    }
}

static void roi_body(int64_t begin, int64_t end, void *context)
{
  for (int64_t n = begin; n < end; n++) pool_one_region(context, n);
}

static int roi_forward(struct call *c)
{
  const ty_desc *d = &c->in[0].d;
  struct roi k = { vec_ops_of(d->dtype), c->param, d, c->in[0].p, c->in[1].p, c->out[0].p,
    c->out[1].p };
  parallel_for(c->in[1].d.dim[0], elements_ns(d->dim[1] * d->dim[2] * d->dim[3]), roi_body, &k);
  return TY_OK;
}

/* Computes the gradient, serially since regions may overlap. in: head gradient, regions, indices of
** the maxima. */
static int roi_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d, *out = &c->in[0].d;
  const struct vec_ops *r = vec_ops_of(d->dtype);
  int64_t bins = out->dim[2] * out->dim[3], pixels = d->dim[2] * d->dim[3];
  if (c->out[1].p) memset(c->out[1].p, 0, desc_bytes(&c->out[1].d));
  if (!c->out[0].p) return TY_OK;
  memset(c->out[0].p, 0, desc_bytes(d));
  for (int64_t i = 0; i < desc_count(out); i++) {
    int64_t best = ((const int32_t *)c->in[2].p)[i];
    if (best < 0) continue;
    int64_t sample = (int64_t)r->get(c->in[1].p, i / (bins * d->dim[1]) * 5);
    int64_t at_ = (sample * d->dim[1] + i / bins % d->dim[1]) * pixels + best;
    r->set(c->out[0].p, at_, r->get(c->out[0].p, at_) + r->get(c->in[0].p, i));
  }
  return TY_OK;
}

enum { T_INDICES = T_FLOAT | 1 << TY_I32 };
static const struct kernel roi_cpu[] = { { "bins", roi_forward, T_INDICES }, { 0 } };
static const struct kernel roi_back_cpu[] = { { "bins", roi_backward, T_INDICES }, { 0 } };

const struct op op_roi_pooling[] = {
  { .name = "ROIPooling", .alias = "_npx_roi_pooling", .in = "data rois", .out = "output [maxidx]",
    .doc = "Maxima over pooled_size bins of each region (sample, x1, y1, x2, y2) of images: (regions, channels, bins, bins).",
    .param = roi_params, .param_size = sizeof(struct roi_param), .check = roi_check, .shape = roi_shape,
    .type = roi_type, .grad = "g0 i1 o1",
    .cpu = roi_cpu, .back_cpu = roi_back_cpu },
  { 0 }
};
