/* dnn.h - convolutions on a GPU, by cuDNN. */
#pragma once
#include "cuda/cuda.h"

/* which of the three arrays is made of the other two */
enum dnn_result { DNN_MAKES_Y, DNN_MAKES_X, DNN_MAKES_W };
/* x (n, channels, in), weight (filters, channels / groups, kernel), y (n, filters, out), with
** `axes` spatial axes; channels_last: all of them as (n, space, channels). Without holes, since
** plans are found by its bytes. */
struct dnn_convolution {
  int32_t makes, dtype, axes, channels_last;
  int32_t biased;                                     /* DNN_MAKES_Y: y = y + bias */
  int32_t relu;                                       /* DNN_MAKES_Y: y = relu(y), after bias */
  int16_t add;                                        /* onto what the result holds */
  int16_t tf32;                                       /* float32 may be multiplied so */
  int32_t aligned;                                    /* bytes, of all arrays */
  int64_t n, groups, channels, filters;
  int64_t in[3], out[3], kernel[3], stride[3], dilate[3], before[3], after[3];
  int64_t most;                                       /* bytes of workspace */
};
struct dnn_arrays { void *x, *w, *y, *bias; };
/* Returns NULL where cuDNN is there and does it, else the reason. Plans are made once and kept. */
const char *dnn_refuse(int device, const struct dnn_convolution *c);
size_t dnn_workspace(int device, const struct dnn_convolution *c);
/* Runs a convolution; the workspace has what dnn_workspace said. */
int  dnn_run(int device, const struct dnn_convolution *c, struct dnn_arrays a, void *workspace);
