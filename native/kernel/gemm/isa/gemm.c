/* gemm.c - inner loops of products, compiled once per instruction set with
** -DISA=baseline|avx2|avx512|neon. vector.inc says what a vector is, math.inc has loops over rows,
** tile.inc the tiles of a product, image.inc the way from an image and back, rows.inc products of a
** few rows; all are written for REAL and read twice, for float and for double. attend.inc,
** attention, is for float only.
*/
#include "base/cpu.h"
#include "base/vmath.h"
#include "kernel/gemm/isa.h"
#include "kernel/kernel.h"

#define JOIN(a, b) JOIN_(a, b)
#define JOIN_(a, b) a##_##b
#define UNROLL _Pragma("GCC unroll 16")
enum {
  AHEAD = 12,                                         /* rows of B between prefetch and use */
  EARLY = 8,                                          /* rows of A between prefetch and copy */
  COPIED = 2,                                         /* strips that are copied at once, at least */
  MAP_ROWS = 4,                                       /* rows of a map computed together */
  LONG = 128,                                         /* steps from which on C is prefetched */
};

#define T_(name) JOIN(name, f32)
#define REAL float
#define INTEGER int32_t
#define BITS 32
#include "kernel/gemm/isa/vector.inc"
#include "kernel/gemm/isa/shared.inc"
#define SHARED
#include "kernel/gemm/isa/math.inc"
#undef SHARED
#include "kernel/gemm/isa/transpose.inc"
#include "kernel/gemm/isa/tile.inc"
#include "kernel/gemm/isa/image.inc"
#include "kernel/gemm/isa/rows.inc"
#if VBYTES > 16 || defined TY_NEON
#include "kernel/gemm/isa/weights.inc"
#include "kernel/gemm/isa/attend.inc"
#define ATTENTION .score = score_rows, .weigh = weigh_rows, .weights = weigh_scores
#else
#define ATTENTION
#endif
#include "kernel/gemm/isa/undef.inc"

#define T_(name) JOIN(name, f64)
#define REAL double
#define INTEGER int64_t
#define BITS 64
#define SHARED static
#include "kernel/gemm/isa/vector.inc"
#include "kernel/gemm/isa/math.inc"
#include "kernel/gemm/isa/transpose.inc"
#include "kernel/gemm/isa/tile.inc"
#include "kernel/gemm/isa/image.inc"
#include "kernel/gemm/isa/rows.inc"

#if VBYTES == 64
#define FOLD(t) fold_##t
#else
#define FOLD(t) NULL
#endif

#define gelu_back_f64 NULL
#define TYPE(t, bytes, ...) { \
  .mr = MR, .nr = 2 * VBYTES / bytes, .w = VBYTES / bytes, .kc = 2048 / bytes, .element = bytes, \
  .word = bytes, .per = 1, .block = block_##t, \
  .panel = pack_panel_##t, .panel_t = pack_panel_t_##t, .strip = pack_strip_##t, .dots = dots_##t, \
  .act = act_##t, .gelu_back = gelu_back_##t, \
  .axpy = axpy_##t, .add_rows = add_rows_##t, .scatter = scatter_##t, .dot = dot_##t, \
  .sum = sum_##t, .fill = fill_##t, \
  .window_row = window_row_##t, .window_map = window_map_##t, \
  .scatter_panel = scatter_panel_##t, .fold = FOLD(t), __VA_ARGS__ }
#define ISA_NAME_(isa) gemm_isa_##isa
#define ISA_NAME(isa) ISA_NAME_(isa)
extern const struct gemm_isa ISA_NAME(ISA);
const struct gemm_isa ISA_NAME(ISA) = { { TYPE(f32, 4, ATTENTION), TYPE(f64, 8) } };
