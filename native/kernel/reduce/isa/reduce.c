/* reduce.c - inner loops of reductions (kernel/reduce/reduce.h), compiled once per instruction set:
** -DISA=baseline, avx2, avx512, neon.
**
** reduce.inc has the loops for one element type and is included for each. Accumulators are double
** or int64, reduced in W lanes, so that results have the same bits with every instruction set. */
#include "base/cast.h"
#include "base/intrinsics.h"
#include "kernel/reduce/reduce.h"

enum {
  /* lanes of a row */
  W = 16,
  /* most columns when several rows of a narrow matrix are read as one row */
  WIDE = 64
};
#ifdef __clang__
#define LANES
#define ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#else
#define ANY_ORDER _Pragma("GCC ivdep")
/* keeps lanes a loop that is vectorised, not sixteen statements */
#define LANES _Pragma("GCC unroll 1")
#endif
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
/* Appends the suffix of the element type to name f. */
#define T_NAME(f) JOIN(f, SUFFIX)
/* Merge functions, in the order of R_*. */
#define MERGES \
  { A_NAME(sum_merge), A_NAME(sum_merge), A_NAME(sum_merge), A_NAME(sum_merge), \
    A_NAME(prod_merge), A_NAME(prod_merge), A_NAME(max_merge), A_NAME(min_merge), \
    A_NAME(sum_merge) }

/* Returns a / b, wrapping; 0 if b is 0. */
static inline int64_t divide_integers(int64_t a, int64_t b)
{
  return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

/* Returns the larger number; a NaN is more extreme than any number. Two selections without a
** branch, so that loops over lanes are vectorised. */
static inline double max_real(double a, double v)
{
  double m = v > a ? v : a;
  return v == v ? m : v;
}
static inline double min_real(double a, double v)
{
  double m = v < a ? v : a;
  return v == v ? m : v;
}
static inline int64_t max_whole(int64_t a, int64_t v) { return v > a ? v : a; }
static inline int64_t min_whole(int64_t a, int64_t v) { return v < a ? v : a; }

/* One step of each reduction: adds v to a; c: the centre. Integers wrap (unsigned arithmetic). */

#define REAL 1
#define ACC double
#define A_NAME(f) JOIN(f, real)
#define FIELD f
#define IS_NAN(v) ((v) != (v))
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define OVER(a, b) ((a) / (b))
#define LOWEST (-HUGE_VAL)
#define HIGHEST HUGE_VAL
#define STEP_SUM(a, v, c)     a += v
#define STEP_NANSUM(a, v, c)  a += IS_NAN(v) ? 0 : v
#define STEP_ABS(a, v, c)     a += fabs(v)
#define STEP_SQUARE(a, v, c)  a += v * v
#define STEP_PROD(a, v, c)    a *= v
#define STEP_NANPROD(a, v, c) a *= IS_NAN(v) ? 1 : v
#define STEP_DEVIATION(a, v, c)  a += (v - c) * (v - c)
#define STEP_MAX(a, v, c)     a = max_real(a, v)
#define STEP_MIN(a, v, c)     a = min_real(a, v)
#include "kernel/reduce/isa/accumulators.inc"
#define TYPE float
#define SUFFIX bf16
#define STORED uint16_t
#define GET(v) f32_of_bf16(v)
#define PUT(v) bf16_of_f32(v)
#define ONLY_REDUCES
#define NO_GRADIENTS
#include "kernel/reduce/isa/reduce.inc"
#undef SUFFIX
#undef STORED
#undef GET
#undef PUT
#undef ONLY_REDUCES
#undef NO_GRADIENTS
#define STORED TYPE
#define GET(v) (v)
#define PUT(v) (v)
#define SUFFIX f32
#include "kernel/reduce/isa/reduce.inc"
#undef TYPE
#undef SUFFIX
#define TYPE double
#define SUFFIX f64
#include "kernel/reduce/isa/reduce.inc"
#undef TYPE
#undef SUFFIX
#undef REAL
#undef ACC
#undef A_NAME
#undef FIELD
#undef IS_NAN
#undef ADD
#undef MULTIPLY
#undef OVER
#undef LOWEST
#undef HIGHEST
#undef STEP_SUM
#undef STEP_NANSUM
#undef STEP_ABS
#undef STEP_SQUARE
#undef STEP_PROD
#undef STEP_NANPROD
#undef STEP_DEVIATION
#undef STEP_MAX
#undef STEP_MIN

#define REAL 0
#define ACC int64_t
#define A_NAME(f) JOIN(f, whole)
#define FIELD i
#define IS_NAN(v) 0
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#define WRAP(e)               (int64_t)(e)
#define U(x)                  (uint64_t)(x)
#define ADD(a, b)             WRAP(U(a) + U(b))
#define MULTIPLY(a, b)        WRAP(U(a) * U(b))
#define OVER(a, b)            divide_integers(a, b)
#define STEP_SUM(a, v, c)     a = WRAP(U(a) + U(v))
#define STEP_NANSUM(a, v, c)  a = WRAP(U(a) + U(v))
#define STEP_ABS(a, v, c)     a = WRAP(U(a) + (v < 0 ? 0 - U(v) : U(v)))
#define STEP_SQUARE(a, v, c)  a = WRAP(U(a) + U(v) * U(v))
#define STEP_PROD(a, v, c)    a = WRAP(U(a) * U(v))
#define STEP_NANPROD(a, v, c) a = WRAP(U(a) * U(v))
#define STEP_DEVIATION(a, v, c)  a = WRAP(U(a) + (U(v) - U(c)) * (U(v) - U(c)))
#define STEP_MAX(a, v, c)     a = max_whole(a, v)
#define STEP_MIN(a, v, c)     a = min_whole(a, v)
#include "kernel/reduce/isa/accumulators.inc"
#define TYPE int32_t
#define SUFFIX i32
#include "kernel/reduce/isa/reduce.inc"
#undef TYPE
#undef SUFFIX
#define TYPE int64_t
#define SUFFIX i64
#include "kernel/reduce/isa/reduce.inc"
