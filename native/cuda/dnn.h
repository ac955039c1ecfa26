/* dnn.h - convolutions on a GPU, by cuDNN. */
#pragma once
#include "cuda/cuda.h"

/* Which array is computed from the other two: y forward, x or w for their gradients. */
enum dnn_result { DNN_MAKES_Y, DNN_MAKES_X, DNN_MAKES_W };
/* A convolution of x (n, channels, in) with w (filters, channels / groups, kernel) to y (n,
** filters, out), with up to three spatial axes. The bytes of this struct are the key of its plan,
** so it must not have padding. */
struct dnn_convolution {
  int32_t makes;                                      /* enum dnn_result */
  int32_t dtype;
  int32_t axes;                                       /* spatial axes */
  int32_t channels_last;                              /* arrays are (n, space, channels) */
  int32_t biased;                                     /* DNN_MAKES_Y: y = y + bias */
  int32_t relu;                                       /* DNN_MAKES_Y: y = relu(y), after bias */
  int16_t add;                                        /* adds to the result's contents */
  int16_t tf32;                                       /* float32 may be multiplied by TF32 */
  int32_t aligned;                                    /* bytes that divide all addresses */
  int64_t n, groups, channels, filters;
  /* along each axis */
  int64_t in[3], out[3], kernel[3], stride[3], dilate[3];
  int64_t before[3], after[3];                        /* zeros around x */
  int64_t most;                                       /* most bytes of workspace */
};
struct dnn_arrays { void *x, *w, *y, *bias; };
/* Returns NULL if cuDNN is available and supports the convolution, else the reason. Keeps the
** plan. */
const char *dnn_refuse(int device, const struct dnn_convolution *c);
/* Returns the bytes of workspace that a convolution needs. */
size_t dnn_workspace(int device, const struct dnn_convolution *c);
/* Runs a convolution in a workspace of dnn_workspace bytes. */
int  dnn_run(int device, const struct dnn_convolution *c, struct dnn_arrays a, void *workspace);
