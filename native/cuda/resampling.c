/* resampling.c - UpSampling, BilinearResize2D, AdaptiveAvgPooling2D (kernels/resample.cu). */
#include "cuda/row.h"


#define WORDS "T=$i0 TEAM=32"

/* Same as in kernels/resample.cu. */
struct resample_args { int64_t n, channels, all_channels, first, h, w, H, W; };
static struct resample_args make_args(const ty_desc *small, const ty_desc *large, int64_t n)
{
  return (struct resample_args){ n, small->dim[1], large->dim[1], 0, small->dim[2], small->dim[3],
    large->dim[2], large->dim[3] };
}

/* -- UpSampling -------------------------------------------------------------------------------- */

/* Repeats pixels. small: n inputs, which are joined along the channels of large, or added up. */
static int repeat_pixels(const struct call *c, const struct operand *small, int n,
    const struct operand *large, bool back)
{
  bool sum = cuda_word(c, "multi_input_mode", "sum");
  int64_t first = 0;
  for (int i = 0; i < n; i++) {
    const ty_desc *d = &small[i].d;
    int64_t pixels = large->d.dim[2] * large->d.dim[3];
    int64_t count = back ? desc_count(d) : d->dim[0] * d->dim[1] * pixels;
    struct resample_args s = make_args(d, &large->d, count);
    int32_t add = sum && i;
    s.first = sum ? 0 : first;
    first += d->dim[1];
    if (!small[i].p || !large->p) continue;
    void *to = back ? small[i].p : large->p, *from = back ? large->p : small[i].p;
    TRY(cuda_start(c, FAMILY_resample, back ? "repeat_pixels_back" : "repeat_pixels", WORDS, count,
        (void *[]){ &to, &from, &s, &add }));
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
  if (!to) return TY_OK;
  return cuda_start(c, FAMILY_resample, name, WORDS, threads, (void *[]){ &to, &a, &b, &s });
}

static bool is_bilinear(const struct call *c) { return cuda_word(c, "sample_type", "bilinear"); }

static int up_forward(struct call *c)
{
  int64_t n = desc_count(&c->out[0].d);
  if (!is_bilinear(c)) return repeat_pixels(c, c->in, c->nin, &c->out[0], false);
  return run_bilinear(c, "repeat_kernels", &c->in[0].d, n, n, c->out[0].p, c->in[0].p, c->in[1].p);
}

/* Computes the gradients. in: head gradient, for bilinear also data and weight. */
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

/* Sizes, then parameter `corners` of the kernel of bilinear resizing. */
struct size_args { struct resample_args at; int64_t corners; };
static int64_t fill_size_args(
    const struct call *c, const ty_desc *small, const ty_desc *large, void *s)
{
  int64_t n = desc_count(&c->out[0].d);
  *(struct size_args *)s =
      (struct size_args){ make_args(small, large, n), cuda_flag(c, "align_corners") };
  return n;
}

static int64_t forward_sizes(const struct call *c, void *s)
{
  return fill_size_args(c, &c->in[0].d, &c->out[0].d, s);
}

static int64_t backward_sizes(const struct call *c, void *s)
{
  return fill_size_args(c, &c->out[0].d, &c->in[0].d, s);
}

static const struct kernel ups[] = { { "pixels", up_forward, T_FLOAT }, { 0 } };
static const struct kernel ups_back[] = { { "pixels", up_backward, T_FLOAT }, { 0 } };
#define ROW(table, shown, kernel_, arguments, sizes, zeros) \
  static const struct kernel table[] = { \
    { shown, CUDA_ROW(FAMILY_resample, kernel_, "T=$o0 TEAM=32", arguments, sizes, zeros), \
      .types = T_FLOAT }, { 0 } };
ROW(resizes,      "pixels",  "resize",        "o0 i0 s s8", forward_sizes,  0)
ROW(resizes_back, "pixels",  "resize_back",   "o0 i0 s s8", backward_sizes, 2)
ROW(adapts,       "windows", "adaptive",      "o0 i0 s",    forward_sizes,  0)
ROW(adapts_back,  "windows", "adaptive_back", "o0 i0 s",    backward_sizes, 2)

const struct op_kernels cuda_resampling[] = {
  { "UpSampling", ups, ups_back },
  { "_contrib_BilinearResize2D", resizes, resizes_back },
  { "_contrib_AdaptiveAvgPooling2D", adapts, adapts_back },
  { 0 }
};
