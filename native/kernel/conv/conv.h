/* conv.h - convolution and its two gradients over plain (N, C, spatial) arrays, 1 to 3 spatial
** axes.
**
** All three use the packed product (kernel/gemm) without a matrix of columns: forward fills panels
** of the right side directly from the image; the gradient of the data computes a few columns at a
** time and adds them to the image while they are in the cache; the gradient of the weight reads the
** image in place as the left side. A deconvolution uses the same three with exchanged roles. */
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/levels.h"

/* The shapes of a convolution. Channels and filters are those of one group. The leading spatial
** axes of a 1-D or 2-D convolution have size 1. */
struct window {
  int64_t n, groups, channels, filters;
  int64_t in[3], out[3], kernel[3], stride[3], dilate[3], pad[3];
  int     dtype;
};
static inline int64_t window_taps(const struct window *w)
{
  return w->kernel[0] * w->kernel[1] * w->kernel[2];
}
static inline int64_t window_depth(const struct window *w) { return w->channels * window_taps(w); }
static inline int64_t window_in(const struct window *w) { return w->in[0] * w->in[1] * w->in[2]; }
static inline int64_t window_out(const struct window *w)
{
  return w->out[0] * w->out[1] * w->out[2];
}
static inline int64_t window_positions(const struct window *w) { return w->n * window_out(w); }
static inline double window_products(const struct window *w)
{
  return (double)window_positions(w) * (double)(w->groups * w->filters) * (double)window_depth(w);
}
bool window_1x1(const struct window *w);            /* kernel 1, stride 1, no padding */
/* Returns whether to keep the packed weight between runs of inference. */
bool convolve_keeps(const struct window *w);

/* The end of a convolution, per filter i: y = act(scale[i] conv(x, weight) + bias[i] + (add ? y :
** 0)). bias has the convolution's dtype; NULL: 0. scale: float32 convolutions only; NULL: 1. */
struct convolve_end { const void *bias; const float *scale; int act; bool add; };

/* Convolves. kept: the instruction's state, for the packed weight; tmp: convolve_forward_scratch
** bytes. Returns a code, as do the functions below. */
size_t convolve_forward_scratch(const struct window *w);
int convolve_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Returns whether rounded_forward is faster. It rounds operands to bfloat16 and adds in float32;
** use it only where that precision is allowed. */
bool   rounded_profitable(const struct window *w);
size_t rounded_scratch(const struct window *w);
/* Does the same as convolve_forward; requires rounded_profitable. */
int rounded_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Returns whether tiles_forward can be used: the processor has tiles (AMX), and the convolution is
** 2-D with one group. It rounds like rounded_forward. */
bool   tiles_profitable(const struct window *w);
size_t tiles_scratch(const struct window *w);
/* Does the same as convolve_forward; requires tiles_profitable. y has its channels in blocks, and
** so does x if block_x is not 0. */
int tiles_forward(const struct window *w, const void *x, int block_x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Computes dx (+)= gradient of x from dy, both with channels in blocks. Requires tiles_profitable,
** and filters and channels that are multiples of 16. */
size_t tiles_data_scratch(const struct window *w);
int tiles_data(const struct window *w, const void *dy, const struct operand *weight, void *dx,
    bool add, struct gemm_kept *kept, void *tmp);
/* Computes dw (+)= gradient of the weight from dy, with channels in blocks, and x, with channels in
** blocks if block_x is not 0. Requires tiles_profitable and tiles_weight_fits. */
bool   tiles_weight_fits(const struct window *w);
size_t tiles_weight_scratch(const struct window *w);
void tiles_weight(const struct window *w, const void *x, int block_x, const void *dy, void *dw,
    bool add, void *tmp);
/* Returns whether few_forward is faster. It is made for few positions and reads the unpacked weight
** in place. */
bool   few_profitable(const struct window *w);
size_t few_scratch(const struct window *w);
/* Does the same as convolve_forward; requires few_profitable. */
void few_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp);
/* Computes dx (+)= gradient of x from dy. bias, act: for the forward of a deconvolution, dx =
** act(gradient + bias); else NULL and ACT_NONE. */
size_t convolve_data_scratch(const struct window *w);
int convolve_data(const struct window *w, const void *dy, const struct operand *weight, void *dx,
    bool add, const void *bias, int act, struct gemm_kept *kept, void *tmp);
/* Computes dw (+)= gradient of the weight, from x and dy. */
size_t convolve_weight_scratch(const struct window *w);
int convolve_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add, void *tmp);
/* Computes out[c] (+)= sum of x[n, c, ...]. */
void convolve_bias(
    int dtype, int64_t n, int64_t c, int64_t spatial, const void *x, void *out, bool add);

/* A convolution of 8-bit levels (kernel/gemm/levels.h) with an int8 weight. */
struct convolve_levels {
  struct window w;
  /* Dtype of x: TY_I8 is used as it is; 128 is subtracted from TY_U8; TY_F32 is quantized to
  ** int8. */
  int dtype;
  const void *x;
  const struct operand *weight;
  /* level that represents 0, for TY_U8 after subtracting 128 */
  int32_t zero;
  /* number that one level of x represents; 0 (TY_F32): largest magnitude of each image / 127 */
  float scale;
  /* conversion of sums to results; pointers are for filter 0 and position 0. n, sum, zero_term and
  ** unit are not used */
  struct level_row row;
};
size_t convolve_levels_scratch(const struct window *w, int dtype);
/* kept: the instruction's state, for the reordered weight. Returns a code. */
int convolve_levels(const struct convolve_levels *v, struct gemm_kept *kept, void *tmp);

/* Depthwise convolutions, of one channel per group. They need no state. */
bool   depthwise_profitable(const struct window *w);
size_t depth_scratch(const struct window *w);         /* for depth_forward */
void depth_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp);
void   depth_data(const struct window *w, const void *dy, const void *weight, void *dx, bool add);
void   depth_weight(const struct window *w, const void *x, const void *dy, void *dw, bool add);

/* The same by plain loops, for tests. */
void convolve_reference(
    const struct window *w, const void *x, const void *weight, const void *bias, void *y, bool add);
void convolve_reference_data(
    const struct window *w, const void *dy, const void *weight, void *dx, bool add);
void convolve_reference_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add);
/* Copy to, or from, columns (N, C * taps, positions). */
void   conv_im2col(const struct window *w, const void *x, void *columns, bool add);
void   conv_col2im(const struct window *w, const void *columns, void *x, bool add);
