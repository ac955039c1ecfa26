/* layout.h - parameters that name the order of axes. LAYOUT_* are indices of the choices in
** LAYOUTS; convolutions accept all but the last. */
#pragma once
#include "base/base.h"

#define LAYOUTS_BUT_NWC "NCDHW|NCHW|NCW|NDHWC|NHWC"
#define LAYOUTS         LAYOUTS_BUT_NWC "|NWC"
enum { LAYOUT_NCDHW, LAYOUT_NCHW, LAYOUT_NCW, LAYOUT_NDHWC, LAYOUT_NHWC, LAYOUT_NWC };

/* Returns whether channels are last; None, -1, has them on axis 1. */
static inline bool layout_channels_last(int64_t layout) { return layout >= LAYOUT_NDHWC; }
/* Returns the first axis of space. */
static inline int layout_first_axis(int64_t layout) { return layout_channels_last(layout) ? 1 : 2; }
