/* regions.c - ROIPooling, ROIAlign, RROIAlign, PSROIPooling, DeformablePSROIPooling
** (kernels/regions.cu). */
#include "cuda/family.h"
#include "kernel/element/regions.h"

static int regions_family(const struct call *c, int dtype, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_regions, name, f, "T=%s TEAM=32", cuda_type(dtype));
}

static int zero_rest(const struct call *c)
{
  for (int i = 1; i < c->nout; i++) TRY(cuda_zero(c, &c->out[i]));
  return TY_OK;
}

/* -- maxima ------------------------------------------------------------------------------------ */

struct roi_args { double scale; int64_t n, regions, bins[2], size[2], images, channels; };
static struct roi_args roi_args_of(
    const struct call *c, const ty_desc *data, const ty_desc *bins, int64_t n)
{
  return (struct roi_args){ cuda_number(c, "spatial_scale", 1), n, bins->dim[0],
    { bins->dim[2], bins->dim[3] }, { data->dim[2], data->dim[3] }, data->dim[0], data->dim[1] };
}

static int pool_forward(struct call *c)
{
  const ty_desc *y = &c->out[0].d;
  struct roi_args s = roi_args_of(c, &c->in[0].d, y, desc_count(y));
  cu_function f;
  TRY(regions_family(c, y->dtype, "roi_pool", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* in: head gradient, regions, places of the maxima */
static int pool_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct roi_args s = roi_args_of(c, d, &c->in[0].d, desc_count(d));
  cu_function f;
  TRY(zero_rest(c));
  if (!c->out[0].p) return TY_OK;
  TRY(regions_family(c, d->dtype, "roi_pool_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[2].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* -- means of samples -------------------------------------------------------------------------- */

enum { UPRIGHT, ROTATED };
struct align_args { struct align_grid grid; int64_t n, regions, channels, own; };
static struct align_args align_args_of(
    const struct call *c, const ty_desc *data, const ty_desc *bins, int64_t n)
{
  bool rotated = cuda_what(c) == ROTATED;
  double ratio = cuda_number(c, rotated ? "sampling_ratio" : "sample_ratio", -1);
  struct align_grid g = { cuda_number(c, "spatial_scale", 1), { bins->dim[2], bins->dim[3] },
    { data->dim[2], data->dim[3] }, data->dim[0], (int64_t)ratio, cuda_flag(c, "aligned"), rotated,
    data->dtype == TY_F32 };
  bool own = cuda_flag(c, "position_sensitive");
  return (struct align_args){ g, n, bins->dim[0], bins->dim[1], own };
}

static int align_forward(struct call *c)
{
  const ty_desc *y = &c->out[0].d;
  struct align_args s = align_args_of(c, &c->in[0].d, y, desc_count(y));
  cu_function f;
  TRY(regions_family(c, y->dtype, "align", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* in: head gradient, regions */
static int align_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct align_args s = align_args_of(c, d, &c->in[0].d, desc_count(d));
  cu_function f;
  TRY(zero_rest(c));
  if (!c->out[0].p) return TY_OK;
  TRY(regions_family(c, d->dtype, "align_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* -- bins with channels of their own ----------------------------------------------------------- */

struct ps_args { struct ps_grid grid; int64_t n, regions, channels, classes; };
static struct ps_args ps_args_of(
    const struct call *c, const ty_desc *data, const ty_desc *bins, int64_t n)
{
  int64_t pooled = bins->dim[2], parts = (int64_t)cuda_number(c, "part_size", 0);
  struct ps_grid g = { cuda_number(c, "spatial_scale", 1), cuda_number(c, "trans_std", 0),
    bins->dim[1], pooled, (int64_t)cuda_number(c, "group_size", 0), parts ? parts : pooled,
    (int64_t)cuda_number(c, "sample_per_part", 1), { data->dim[2], data->dim[3] }, data->dim[0],
    data->dtype == TY_F32 };
  return (struct ps_args){ g, n, bins->dim[0], data->dim[1], 0 };
}

static int mean_forward(struct call *c)
{
  const ty_desc *y = &c->out[0].d;
  struct ps_args s = ps_args_of(c, &c->in[0].d, y, desc_count(y));
  cu_function f;
  TRY(regions_family(c, y->dtype, "ps_mean", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

/* in: head gradient, regions */
static int mean_backward(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  struct ps_args s = ps_args_of(c, d, &c->in[0].d, desc_count(d));
  cu_function f;
  TRY(zero_rest(c));
  if (!c->out[0].p) return TY_OK;
  TRY(regions_family(c, d->dtype, "ps_mean_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &s };
  return cuda_run(c, f, s.n, params);
}

static int64_t classes_of(const struct call *c, const struct operand *trans)
{
  return cuda_flag(c, "no_trans") ? 0 : trans->d.dim[1] / 2;
}

static int moved_forward(struct call *c)
{
  const ty_desc *y = &c->out[0].d;
  struct ps_args s = ps_args_of(c, &c->in[0].d, y, desc_count(y));
  void *none = NULL, **trans = c->nin > 2 ? &c->in[2].p : &none;
  cu_function f;
  s.classes = classes_of(c, &c->in[2]);
  TRY(regions_family(c, y->dtype, "ps_sample", &f));
  void *params[] = { &c->out[0].p, &c->out[1].p, &c->in[0].p, &c->in[1].p, trans, &s };
  return cuda_run(c, f, s.n, params);
}

/* in: head gradient, data, regions, samples counted, trans where there is one */
static int moved_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  struct ps_args s = ps_args_of(c, d, &c->in[0].d, desc_count(d));
  void *none = NULL, **trans = c->nin > 4 ? &c->in[4].p : &none;
  cu_function f, back;
  s.classes = classes_of(c, &c->in[4]);
  TRY(zero_rest(c));
  TRY(regions_family(c, d->dtype, "ps_sample_back", &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[3].p, &c->in[2].p, trans, &s };
  if (c->out[0].p) TRY(cuda_run(c, f, s.n, params));
  if (!s.classes || !c->out[2].p) return TY_OK;
  s.n = desc_count(&c->out[2].d);
  TRY(regions_family(c, d->dtype, "ps_trans_back", &back));
  void *more[] = { &c->out[2].p, &c->in[0].p, &c->in[3].p, &c->in[1].p, &c->in[2].p, trans, &s };
  return cuda_run(c, back, s.n * 32, more);
}

/* int32: places of maxima */
#define KERNEL(table, run) \
  static const struct kernel table[] = { { "bins", run, T_FLOAT | T(TY_I32) }, { 0 } };
KERNEL(pools, pool_forward)
KERNEL(pools_back, pool_backward)
KERNEL(aligns, align_forward)
KERNEL(aligns_back, align_backward)
KERNEL(means, mean_forward)
KERNEL(means_back, mean_backward)
KERNEL(moved, moved_forward)
KERNEL(moved_back, moved_backward)

const struct op_kernels cuda_regions[] = {
  { "ROIPooling", pools, pools_back },
  { "_contrib_ROIAlign", aligns, aligns_back },
  { "_contrib_RROIAlign", aligns, NULL, ROTATED },
  { "_contrib_PSROIPooling", means, means_back },
  { "_contrib_DeformablePSROIPooling", moved, moved_back },
  { 0 }
};
