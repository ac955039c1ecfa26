/* convert.c - converts elements between dtypes, as C casts do where C defines the result.
**
** float -> int32, int64: truncated; NaN and numbers that do not fit give the smallest integer, as
** x86 hardware does. float -> uint8, int8: the low byte of the int64 (-1.5 -> 255, 300.7 -> 44).
** Integers wrap. any -> bool: not zero. float16 and bfloat16 go through float32, rounded to nearest
** even, in blocks that fit the first-level cache. The loops are in base/isa/convert.c.
*/
#include "base/cast.h"
#include "base/convert.h"
#include "base/parallel.h"

float    half_to_float(uint16_t h) { return f32_of_f16(h); }
uint16_t float_to_half(float f) { return f16_of_f32(f); }
float    bf16_to_float(uint16_t h) { return f32_of_bf16(h); }
uint16_t float_to_bf16(float f) { return bf16_of_f32(f); }

cast_fn cast_between(int from, int to)
{
#define TABLE(isa) &casts_##isa,
  static const struct casts *const casts[] = { EACH_ISA(TABLE) };
#undef TABLE
#ifdef __x86_64__
  if (from == TY_F32 && to == TY_BF16 && cpu_multiplies_narrow())
    return cast_f32_bf16_avx512_narrow;
#endif
  return casts[cpu_isa()]->cast[from][to];
}

/* Elements of a block that is converted through float32. */
enum { BLOCK_ELEMENTS = 1024 };
/* Elements of a parallel chunk. */
enum { GRAIN_ELEMENTS = 1 << 15 };

struct cast_job { char *dst; const char *src; cast_fn direct, in, out; size_t dst_size, src_size; };

static void cast_part(int64_t begin, int64_t end, void *context)
{
  const struct cast_job *j = context;
  if (j->direct) {
    j->direct(
        j->dst + (size_t)begin * j->dst_size, j->src + (size_t)begin * j->src_size, end - begin);
    return;
  }
  float block[BLOCK_ELEMENTS];
  for (int64_t i = begin; i < end; i += BLOCK_ELEMENTS) {
    int64_t n = MIN(BLOCK_ELEMENTS, end - i);
    j->in(block, j->src + (size_t)i * j->src_size, n);
    j->out(j->dst + (size_t)i * j->dst_size, block, n);
  }
}

static void copy_part(int64_t begin, int64_t end, void *context)
{
  const struct cast_job *j = context;
  size_t at = (size_t)begin * j->dst_size;
  memcpy(j->dst + at, j->src + at, (size_t)(end - begin) * j->dst_size);
}

void dtype_convert(void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  struct cast_job j = { dst, src, cast_between(src_type, dst_type), cast_between(src_type, TY_F32),
    cast_between(TY_F32, dst_type), dtype_size(dst_type), dtype_size(src_type) };
  parallel_chunks(n, GRAIN_ELEMENTS, dst_type == src_type ? copy_part : cast_part, &j);
}
