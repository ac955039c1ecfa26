/* resampling.c - UpSampling, BilinearResize2D, AdaptiveAvgPooling2D (kernels/resample.cu). */
#include "cuda/family.h"

static int resample_family(const struct call *c, int dtype, const char *name, cu_function *f)
{
  return cuda_family(c->device, FAMILY_resample, name, f, "T=%s TEAM=32", cuda_type(dtype));
}

/* as kernels/resample.cu has it */
struct resample_args { int64_t n, channels, all_channels, first, h, w, H, W; };
static struct resample_args args_of(const ty_desc *small, const ty_desc *large, int64_t n)
{
  return (struct resample_args){ n, small->dim[1], large->dim[1], 0, small->dim[2], small->dim[3],
    large->dim[2], large->dim[3] };
}

/* -- UpSampling -------------------------------------------------------------------------------- */

/* small: n inputs, joined along the channels of large, or added. */
static int repeat_pixels(const struct call *c, const struct operand *small, int n,
    const struct operand *large, bool back)
{
  bool sum = cuda_word(c, "multi_input_mode", "sum");
  int64_t first = 0;
  cu_function f;
  TRY(resample_family(c, large->d.dtype, back ? "repeat_pixels_back" : "repeat_pixels", &f));
  for (int i = 0; i < n; i++) {
    const ty_desc *d = &small[i].d;
    int64_t pixels = large->d.dim[2] * large->d.dim[3];
    int64_t count = back ? desc_count(d) : d->dim[0] * d->dim[1] * pixels;
    struct resample_args s = args_of(d, &large->d, count);
    int32_t add = sum && i;
    s.first = sum ? 0 : first;
    first += d->dim[1];
    if (!small[i].p || !large->p) continue;
    void *to = back ? small[i].p : large->p, *from = back ? large->p : small[i].p;
    void *params[] = { &to, &from, &s, &add };
    TRY(cuda_run(c, f, count, params));
  }
  return TY_OK;
}

struct kernel_args { int64_t n, channels, h, w, scale, k, pad; };
static int run_bilinear(const struct call *c, const char *name, const ty_desc *d, int64_t n,
    int64_t threads, void *to, void *a, void *b)
{
  int64_t scale = (int64_t)cuda_number(c, "scale", 1);
  struct kernel_args s = { n, d->dim[1], d->dim[2], d->dim[3], scale, 2 * scale - scale % 2,
    scale / 2 };
  cu_function f;
  if (!to) return TY_OK;
  TRY(resample_family(c, d->dtype, name, &f));
  void *params[] = { &to, &a, &b, &s };
  return cuda_run(c, f, threads, params);
}

static bool is_bilinear(const struct call *c) { return cuda_word(c, "sample_type", "bilinear"); }

static int up_forward(struct call *c)
{
  int64_t n = desc_count(&c->out[0].d);
  if (!is_bilinear(c)) return repeat_pixels(c, c->in, c->nin, &c->out[0], false);
  return run_bilinear(c, "repeat_kernels", &c->in[0].d, n, n, c->out[0].p, c->in[0].p, c->in[1].p);
}

/* in: head gradient, for bilinear also data and weight */
static int up_backward(struct call *c)
{
  if (!is_bilinear(c)) return repeat_pixels(c, c->out, c->nout, &c->in[0], true);
  const ty_desc *d = &c->in[1].d;
  int64_t n = desc_count(d), taps = desc_count(&c->in[2].d);
  TRY(run_bilinear(c, "repeat_kernels_back", d, n, n, c->out[0].p, c->in[0].p, c->in[2].p));
  return run_bilinear(c, "repeat_kernels_weight", d, d->dim[0], taps * 32, c->out[1].p, c->in[0].p,
      c->in[1].p);
}

/* -- other sizes ------------------------------------------------------------------------------- */

static int run_sizes(const struct call *c, const char *name, const ty_desc *small,
    const ty_desc *large, const ty_desc *to)
{
  struct resample_args s = args_of(small, large, desc_count(to));
  int32_t corners = cuda_flag(c, "align_corners");
  cu_function f;
  for (int i = 1; i < c->nout; i++) TRY(cuda_zero(c, &c->out[i]));
  if (!c->out[0].p) return TY_OK;
  TRY(resample_family(c, to->dtype, name, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &s, &corners };
  return cuda_run(c, f, s.n, params);
}

static int resample_forward(struct call *c, const char *name)
{
  return run_sizes(c, name, &c->in[0].d, &c->out[0].d, &c->out[0].d);
}
static int resample_backward(struct call *c, const char *name)
{
  return run_sizes(c, name, &c->out[0].d, &c->in[0].d, &c->out[0].d);
}
static int resize_bilinear(struct call *c) { return resample_forward(c, "resize"); }
static int resize_back(struct call *c) { return resample_backward(c, "resize_back"); }
static int pool_adaptive(struct call *c) { return resample_forward(c, "adaptive"); }
static int adaptive_back(struct call *c) { return resample_backward(c, "adaptive_back"); }

static const struct kernel ups[] = { { "pixels", up_forward, T_FLOAT }, { 0 } };
static const struct kernel ups_back[] = { { "pixels", up_backward, T_FLOAT }, { 0 } };
static const struct kernel resizes[] = { { "pixels", resize_bilinear, T_FLOAT }, { 0 } };
static const struct kernel resizes_back[] = { { "pixels", resize_back, T_FLOAT }, { 0 } };
static const struct kernel adapts[] = { { "windows", pool_adaptive, T_FLOAT }, { 0 } };
static const struct kernel adapts_back[] = { { "windows", adaptive_back, T_FLOAT }, { 0 } };

const struct op_kernels cuda_resampling[] = {
  { "UpSampling", ups, ups_back },
  { "_contrib_BilinearResize2D", resizes, resizes_back },
  { "_contrib_AdaptiveAvgPooling2D", adapts, adapts_back },
  { 0 }
};
