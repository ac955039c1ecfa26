/* convolution_onednn.h - oneDNN's kernels, as entries for Convolution's tables; empty in a build
** without oneDNN. */
#pragma once
#include "op/op.h"

#ifdef TY_DNNL
const char *onednn_conv_refuse(const struct call *c);
const char *onednn_conv_back_refuse(const struct call *c);
size_t onednn_conv_scratch(const struct call *c);
size_t onednn_conv_back_scratch(const struct call *c);
size_t onednn_conv_state(const struct call *c);
int    onednn_conv(struct call *c);
int    onednn_conv_back(struct call *c);
void   onednn_conv_done(void *state);

#define ONEDNN_CONV \
  { "oneDNN", onednn_conv, T(TY_F32), onednn_conv_refuse, onednn_conv_scratch, onednn_conv_state, \
    onednn_conv_done, .flags = K_PRECISION, .blocks = IN_BLOCKS(1, 1), \
    .fuses = CAN(POST_SCALE) | CAN(POST_ACCUMULATE) | CAN(POST_ACT), .lead = image_lead, \
    .whole = WEIGHT_AND_BIAS },
#define ONEDNN_CONV_BACK \
  { "oneDNN", onednn_conv_back, T(TY_F32), onednn_conv_back_refuse, onednn_conv_back_scratch, \
    onednn_conv_state, onednn_conv_done, 7, K_PRECISION, IN_BLOCKS(3, 1) },
#else
#define ONEDNN_CONV
#define ONEDNN_CONV_BACK
#endif
