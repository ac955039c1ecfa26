/* cudasim.h - the CUDA device language as ordinary C++: is put in front of every source that the
** stand-in for NVRTC is given (g++ -include cudasim.h -x c++).
**
** A kernel's source sees the words of CUDA and knows by __CUDASIM__ that it is no GPU (inline PTX
** needs another way there). What the words do is in run/: a thread of a block is a fibre that
** runs until it has to wait for others.
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
#include "cudasim/maths.h"
#include "cudasim/kernel.h"
