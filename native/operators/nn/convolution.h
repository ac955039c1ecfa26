/* convolution.h - common parts of Convolution and Deconvolution: parameters, checks, windows. */
#pragma once
#include "kernel/conv/conv.h"
#include "op/op.h"

struct conv {
  struct dims kernel, stride, dilate, pad, adj, target_shape;
  int64_t num_filter, num_group, workspace, no_bias, cudnn_tune, cudnn_off, layout;
};
enum { LAYOUT_NCW, LAYOUT_NCHW, LAYOUT_NCDHW, LAYOUT_NHWC, LAYOUT_NDHWC };

#define CONV_WINDOW \
  { "kernel",     P_SHAPE, offsetof(struct conv, kernel),     NULL, \
    "the window: (w), (h, w) or (d, h, w)" }, \
  { "stride",     P_SHAPE, offsetof(struct conv, stride),     "()", \
    "steps of the window; (): 1" }, \
  { "dilate",     P_SHAPE, offsetof(struct conv, dilate),     "()", \
    "distance of the window's elements; (): 1" }, \
  { "pad",        P_SHAPE, offsetof(struct conv, pad),        "()",   "zeros on both sides; (): 0" }
#define CONV_TUNE "off|limited_workspace|fastest"
#define CONV_REST(memory, bias, layouts) \
  { "num_filter", P_INT,   offsetof(struct conv, num_filter), NULL,   "channels of the output", \
    NULL, "[1,]" }, \
  { "num_group",  P_INT,   offsetof(struct conv, num_group),  "1",    "independent groups", NULL, \
    "[1,]" }, \
  { "workspace",  P_INT,   offsetof(struct conv, workspace),  memory, \
    "MiB of scratch at most, on a GPU", NULL, "[0,]" }, \
  { "no_bias",    P_BOOL,  offsetof(struct conv, no_bias),    bias,   "there is no bias input" }, \
  { "cudnn_tune", P_ENUM,  offsetof(struct conv, cudnn_tune), "None", "without effect", CONV_TUNE, \
    NULL, 1 }, \
  { "cudnn_off",  P_BOOL,  offsetof(struct conv, cudnn_off),  "0",    "without effect" }, \
  { "layout",     P_ENUM,  offsetof(struct conv, layout),     "None", "None: channels second", \
    layouts, NULL, 1 }

const char *conv_ports(const void *param);
/* Checks the parameters, and sets empty stride, dilate and pad to their defaults. */
int  conv_check(void *param);
/* Fails with TY_EVALUE at parameter `name`. */
int  conv_bad(const char *name, const char *expected, int64_t got);
bool conv_channels_last(const struct conv *p);
/* Refuses channels on the last axis. */
const char *conv_refuse_last(const struct call *c);
/* Refuses channels on the last axis, and what gemm_refuse refuses. */
const char *conv_refuse_layout(const struct call *c);

/* Returns the window of a convolution with data x and output y; for a deconvolution x is its output
** and y its data. */
struct window conv_window(
    const struct conv *p, const ty_desc *x, const ty_desc *weight, const ty_desc *y);
/* Return the window of a forward, and of a backward call. */
struct window conv_make_window(const struct call *c);
struct window conv_window_back(const struct call *c);
const void *conv_bias_of(const struct call *c);       /* NULL: there is none */
/* Returns bias, scale, activation and addition of a forward call with its epilogue. */
struct convolve_end conv_make_end(const struct call *c);
/* Computes the gradient of the bias in a backward call, if it is wanted. */
void conv_bias_gradient(struct call *c);
