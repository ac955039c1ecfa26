/* narrow.c - converts float32 to bfloat16 by the processor's instruction (-DISA=avx512_narrow);
** empty for other instruction sets.
*/
#include "base/cast.h"
#if defined __AVX512BF16__ && !defined TY_TILES
#include "base/isa/halves.inc"

static void plain_f32_bf16(void *restrict dst, const void *restrict src, int64_t n)
{
  uint16_t *restrict y = dst;
  const float *restrict x = src;
  for (int64_t i = 0; i < n; i++) y[i] = bf16_of_f32(x[i]);
}
HALF_LOOP(f32_bf16, uint16_t, float)

const cast_fn cast_f32_bf16_avx512_narrow = f32_bf16;
#endif
