/* conv.h - convolution and its two gradients over plain (N, C, spatial) arrays, 1 to 3 spatial
** axes.
**
** All three go through the packed product, without a matrix of columns: forward fills panels of
** the right side straight from the image; the data's gradient makes a few columns at a time and
** adds them to the image while they are in cache; the weight's gradient reads the image in place
** as the left side. A deconvolution is the same three in other roles.
*/
#pragma once
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/levels.h"

/* Channels and filters are those of one group. Leading axes of a 1-D or 2-D convolution are 1. */
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
bool window_1x1(const struct window *w);            /* 1 x 1, stride 1, no padding */
/* Returns whether a packed weight is worth its memory between runs of inference. */
bool convolve_keeps(const struct window *w);

/* The end of a convolution, per filter i: y = act(scale[i] conv(x, weight) + bias[i] + what y
** holds). bias is of the convolution's dtype; NULL: zeros, ones. scale: of float32 only. */
struct convolve_end { const void *bias; const float *scale; int act; bool add; };

/* Convolves. kept: the packed weight, state of the instruction. */
size_t convolve_forward_scratch(const struct window *w);
int convolve_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Returns whether rounded_forward is faster. It rounds operands to bfloat16 and adds in float32,
** which the caller must allow. */
bool   rounded_profitable(const struct window *w);
size_t rounded_scratch(const struct window *w);
/* Convolves like convolve_forward. Call where rounded_profitable. */
int rounded_forward(const struct window *w, const void *x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Returns whether tiles_forward serves: this processor has tiles, and the window is a plane's of
** one group. It rounds operands to bfloat16 and adds in float32, which the caller must allow. */
bool   tiles_profitable(const struct window *w);
size_t tiles_scratch(const struct window *w);
/* Convolves like convolve_forward, where y has its channels in blocks, x if block_x is not 0. Call
** where tiles_profitable. */
int tiles_forward(const struct window *w, const void *x, int block_x, const struct operand *weight,
    const struct convolve_end *end, void *y, struct gemm_kept *kept, void *tmp);
/* Computes dx (+)= gradient of x, from dy, both with their channels in blocks. Call where
** tiles_profitable, with filters and channels in sixteens. */
size_t tiles_data_scratch(const struct window *w);
int tiles_data(const struct window *w, const void *dy, const struct operand *weight, void *dx,
    bool add, struct gemm_kept *kept, void *tmp);
/* Computes dw (+)= gradient of the weight, from dy, whose channels are in blocks, and x, which has
** them so if block_x is not 0. Call where tiles_profitable and tiles_weight_fits. */
bool   tiles_weight_fits(const struct window *w);
size_t tiles_weight_scratch(const struct window *w);
void tiles_weight(const struct window *w, const void *x, int block_x, const void *dy, void *dw,
    bool add, void *tmp);
/* Returns whether few_forward is faster: it is for few positions, and reads the unpacked weight
** once. */
bool   few_profitable(const struct window *w);
size_t few_scratch(const struct window *w);
/* Convolves like convolve_forward. Call where few_profitable. */
void few_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp);
/* Computes dx (+)= gradient of x, from dy; or, for a deconvolution, act(that + bias). */
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
  /* Type of x. 128 is subtracted from the levels of TY_U8; numbers of TY_F32 are quantized to int8;
  ** TY_I8 is read as it is. */
  int dtype;
  const void *x;
  const struct operand *weight;
  int32_t zero;                                       /* level of 0; of TY_U8 minus 128 */
  /* number of a level of x; 0: of TY_F32 the largest magnitude of an image / 127 */
  float scale;
  /* what is done with sums: scale, bias, addend and out are those of filter 0 and position 0; n,
  ** sum, zero_term and unit are not read */
  struct level_row row;
};
size_t convolve_levels_scratch(const struct window *w, int dtype);
/* kept: state of the instruction, for the weight in the order of the words. Returns a code. */
int convolve_levels(const struct convolve_levels *v, struct gemm_kept *kept, void *tmp);

/* Windows that see one channel: no state. */
bool   depthwise_profitable(const struct window *w);
size_t depth_scratch(const struct window *w);         /* of depth_forward */
void depth_forward(const struct window *w, const void *x, const void *weight,
    const struct convolve_end *end, void *y, void *tmp);
void   depth_data(const struct window *w, const void *dy, const void *weight, void *dx, bool add);
void   depth_weight(const struct window *w, const void *x, const void *dy, void *dw, bool add);

/* Computes the same in plain loops. */
void convolve_reference(
    const struct window *w, const void *x, const void *weight, const void *bias, void *y, bool add);
void convolve_reference_data(
    const struct window *w, const void *dy, const void *weight, void *dx, bool add);
void convolve_reference_weight(
    const struct window *w, const void *x, const void *dy, void *dw, bool add);
/* Copies to or from columns (N, C * taps, positions). */
void   conv_im2col(const struct window *w, const void *x, void *columns, bool add);
void   conv_col2im(const struct window *w, const void *columns, void *x, bool add);
