/* cuda_fp16.h - both half types stand in one header here. */
#pragma once
#include "cudasim/halves.h"
