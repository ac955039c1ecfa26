/* cuda_fp16.h - both half types are in one header. */
#pragma once
#include "cudasim/halves.h"
