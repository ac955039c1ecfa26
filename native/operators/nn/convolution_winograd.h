/* convolution_winograd.h - Winograd kernels, as entries for Convolution's tables. */
#pragma once
#include "op/op.h"

const char *winograd_conv_refuse(const struct call *c);
const char *winograd_conv_back_refuse(const struct call *c);
size_t winograd_conv_scratch(const struct call *c);
size_t winograd_conv_back_scratch(const struct call *c);
size_t winograd_conv_state(const struct call *c);
int    winograd_conv(struct call *c);
int    winograd_conv_back(struct call *c);

#define WINOGRAD_CONV \
  { "Winograd", winograd_conv, T(TY_F32), winograd_conv_refuse, winograd_conv_scratch, \
    winograd_conv_state, gemm_kept_done, .blocks = IN_BLOCKS(1, 1), \
    .fuses = CAN(POST_SCALE) | CAN(POST_ACCUMULATE) | CAN(POST_ACT), .lead = image_lead, \
    .whole = WEIGHT_AND_BIAS },
#define WINOGRAD_CONV_BACK \
  { "Winograd", winograd_conv_back, T(TY_F32), winograd_conv_back_refuse, \
    winograd_conv_back_scratch, NULL, NULL, 7, 0, IN_BLOCKS(3, 1) },
