/* cudasim.h - the CUDA device language as ordinary C++. Is included before every source that the
** stand-in for NVRTC compiles (g++ -include cudasim.h -x c++).
**
** __CUDASIM__ is defined, for sources with inline PTX, which is not supported. The implementation
** is in run/: a thread of a block is a fibre that runs until it has to wait for others.
*/
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <type_traits>
#include "cudasim/qualifiers.h"
#include "cudasim/vectors.h"
#include "cudasim/threads.h"
#include "cudasim/warps.h"
#include "cudasim/atomics.h"
#include "cudasim/bits.h"
#include "cudasim/tensor.h"
#include "cudasim/maths.h"
#include "cudasim/kernel.h"
