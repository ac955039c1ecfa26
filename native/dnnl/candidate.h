/* candidate.h - what operators see of oneDNN: rows for their lists of kernels, empty in a build without it. */
#pragma once
#include "../op.h"

#define DNNL_CONV
#define DNNL_CONV_BACK
