/* regions.c - ROIPooling, ROIAlign, RROIAlign, PSROIPooling, DeformablePSROIPooling
** (kernels/regions.cu). */
#include "cuda/row.h"
#include "kernel/element/regions.h"



/* -- maxima ------------------------------------------------------------------------------------ */

struct roi_args { double scale; int64_t n, regions, bins[2], size[2], images, channels; };
static struct roi_args make_roi_args(
    const struct call *c, const ty_desc *data, const ty_desc *bins, int64_t n)
{
  return (struct roi_args){ cuda_number(c, "spatial_scale", 1), n, bins->dim[0],
    { bins->dim[2], bins->dim[3] }, { data->dim[2], data->dim[3] }, data->dim[0], data->dim[1] };
}

static int64_t pool_sizes(const struct call *c, void *s)
{
  const ty_desc *y = &c->out[0].d;
  *(struct roi_args *)s = make_roi_args(c, &c->in[0].d, y, desc_count(y));
  return desc_count(y);
}

static int64_t pool_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  *(struct roi_args *)s = make_roi_args(c, d, &c->in[0].d, desc_count(d));
  return desc_count(d);
}

/* -- means of samples -------------------------------------------------------------------------- */

enum { UPRIGHT, ROTATED };
struct align_args { struct align_grid grid; int64_t n, regions, channels, own; };
static struct align_args make_align_args(
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

static int64_t align_sizes(const struct call *c, void *s)
{
  const ty_desc *y = &c->out[0].d;
  *(struct align_args *)s = make_align_args(c, &c->in[0].d, y, desc_count(y));
  return desc_count(y);
}

static int64_t align_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  *(struct align_args *)s = make_align_args(c, d, &c->in[0].d, desc_count(d));
  return desc_count(d);
}

/* -- bins that read different channels --------------------------------------------------------- */

struct ps_args { struct ps_grid grid; int64_t n, regions, channels, classes; };
static struct ps_args make_ps_args(
    const struct call *c, const ty_desc *data, const ty_desc *bins, int64_t n)
{
  int64_t pooled = bins->dim[2], parts = (int64_t)cuda_number(c, "part_size", 0);
  struct ps_grid g = { cuda_number(c, "spatial_scale", 1), cuda_number(c, "trans_std", 0),
    bins->dim[1], pooled, (int64_t)cuda_number(c, "group_size", 0), parts ? parts : pooled,
    (int64_t)cuda_number(c, "sample_per_part", 1), { data->dim[2], data->dim[3] }, data->dim[0],
    data->dtype == TY_F32 };
  return (struct ps_args){ g, n, bins->dim[0], data->dim[1], 0 };
}

static int64_t mean_sizes(const struct call *c, void *s)
{
  const ty_desc *y = &c->out[0].d;
  *(struct ps_args *)s = make_ps_args(c, &c->in[0].d, y, desc_count(y));
  return desc_count(y);
}

static int64_t mean_back_sizes(const struct call *c, void *s)
{
  const ty_desc *d = &c->out[0].d;
  *(struct ps_args *)s = make_ps_args(c, d, &c->in[0].d, desc_count(d));
  return desc_count(d);
}

static int64_t classes_of(const struct call *c, const struct operand *trans)
{
  return cuda_flag(c, "no_trans") ? 0 : trans->d.dim[1] / 2;
}

static int64_t moved_sizes(const struct call *c, void *s)
{
  const ty_desc *y = &c->out[0].d;
  struct ps_args *to = s;
  *to = make_ps_args(c, &c->in[0].d, y, desc_count(y));
  to->classes = classes_of(c, &c->in[2]);
  return to->n;
}

#define WORDS_BACK "T=$i1 TEAM=32"

/* Computes the gradients; in: head gradient, data, regions, numbers of samples, trans if there is
** one. */
static int moved_backward(struct call *c)
{
  const ty_desc *d = &c->in[1].d;
  struct ps_args s = make_ps_args(c, d, &c->in[0].d, desc_count(d));
  void *none = NULL, **trans = c->nin > 4 ? &c->in[4].p : &none;
  s.classes = classes_of(c, &c->in[4]);
  for (int i = 1; i < c->nout; i++) TRY(cuda_zero(c, &c->out[i]));
  if (c->out[0].p)
    TRY(cuda_start(c, FAMILY_regions, "ps_sample_back", WORDS_BACK, s.n,
        (void *[]){ &c->out[0].p, &c->in[0].p, &c->in[3].p, &c->in[2].p, trans, &s }));
  if (!s.classes || !c->out[2].p) return TY_OK;
  s.n = desc_count(&c->out[2].d);
  return cuda_start(c, FAMILY_regions, "ps_trans_back", WORDS_BACK, s.n * 32,
      (void *[]){ &c->out[2].p, &c->in[0].p, &c->in[3].p, &c->in[1].p, &c->in[2].p, trans, &s });
}

/* Dtypes of operands; indices of maxima are int32. A backward row gets the head gradient and the
** regions. */
enum { T_BINS = T_FLOAT | T(TY_I32) };
#define BINS(table, kernel_, arguments, ...) \
  static const struct kernel table[] = { \
    { "bins", CUDA_ROW(FAMILY_regions, kernel_, "T=$o0 TEAM=32", arguments, __VA_ARGS__), \
      .types = T_BINS }, { 0 } };
BINS(pools,       "roi_pool",      "o0 o1 i0 i1 s",    pool_sizes)
BINS(pools_back,  "roi_pool_back", "o0 i0 i2 i1 s",    pool_back_sizes, .zeros = 2)
BINS(aligns,      "align",         "o0 i0 i1 s",       align_sizes)
BINS(aligns_back, "align_back",    "o0 i0 i1 s",       align_back_sizes, .zeros = 2)
BINS(means,       "ps_mean",       "o0 i0 i1 s",       mean_sizes)
BINS(means_back,  "ps_mean_back",  "o0 i0 i1 s",       mean_back_sizes, .zeros = 2)
BINS(moved,       "ps_sample",     "o0 o1 i0 i1 i2 s", moved_sizes)
static const struct kernel moved_back[] = { { "bins", moved_backward, T_BINS }, { 0 } };

const struct op_kernels cuda_regions[] = {
  { "ROIPooling", pools, pools_back },
  { "_contrib_ROIAlign", aligns, aligns_back },
  { "_contrib_RROIAlign", aligns, NULL, ROTATED },
  { "_contrib_PSROIPooling", means, means_back },
  { "_contrib_DeformablePSROIPooling", moved, moved_back },
  { 0 }
};
