/* vec.c - the tables of kernel/vec/vec.h for one instruction set, compiled once per set with
** -DISA=name.
**
** Each .inc file of this folder has a family of loops over REAL and is included for float and for
** double. Sums have the same order, and the same bits, with every instruction set. exp, tanh and
** sigmoid are those of base/vmath.h, which the compiler vectorises. */
#include "kernel/vec/cell.h"
#include "kernel/vec/norm.h"
#include "kernel/vec/pool.h"
#include "kernel/vec/sampler.h"
#include "kernel/vec/softmax.h"
#include "kernel/vec/update.h"
#include "base/philox.h"
#include "base/vmath.h"

enum { BLOCK_ELEMENTS = 4096 };                       /* elements summed in their own type */
#ifdef __clang__
/* Declares that the iterations of a loop are independent. */
#define ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#else
#define ANY_ORDER _Pragma("GCC ivdep")
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)

#define REAL float
#define LANE int32_t
#define DTYPE TY_F32
#define SQRT sqrtf
/* Appends the suffix of the type to name f. */
#define T_NAME(f) f##_f32
#define ROWS JOIN(vec_ops_f32, ISA)
#include "kernel/vec/isa/lanes.inc"
#include "kernel/vec/isa/sum.inc"
#include "kernel/vec/isa/softmax.inc"
#include "kernel/vec/isa/blocked.inc"
#include "kernel/vec/isa/norm.inc"
#include "kernel/vec/isa/pool.inc"
#include "kernel/vec/isa/pool_blocked.inc"
#include "kernel/vec/isa/rnn_cell.inc"
#include "kernel/vec/isa/sampler.inc"
#include "kernel/vec/isa/table.inc"
#undef REAL
#undef LANE
#undef DTYPE
#undef SQRT
#undef T_NAME
#undef ROWS

#define REAL double
#define LANE int64_t
#define DTYPE TY_F64
#define SQRT sqrt
#define T_NAME(f) f##_f64
#define ROWS JOIN(vec_ops_f64, ISA)
#include "kernel/vec/isa/lanes.inc"
#include "kernel/vec/isa/sum.inc"
#include "kernel/vec/isa/softmax.inc"
#include "kernel/vec/isa/blocked.inc"
#include "kernel/vec/isa/norm.inc"
#include "kernel/vec/isa/pool.inc"
#include "kernel/vec/isa/pool_blocked.inc"
#include "kernel/vec/isa/rnn_cell.inc"
#include "kernel/vec/isa/sampler.inc"
#include "kernel/vec/isa/table.inc"
