// tensor.cuh - products of 16 x 16 and 16 x 8 tiles of half types on a warp's tensor cores, for
// compute capability 8.0 or later. With g = l / 4 and t = l % 4, lane l holds
//   left factor    columns 2t and 2t + 1 of rows g and g + 8, then 2t + 8 and 2t + 9 of both
//   right factor   rows 2t and 2t + 1, then rows 2t + 8 and 2t + 9, of column g
//   sums           columns 2t and 2t + 1 of row g, then of row g + 8
// The lower half of a word is the first of two numbers.
#pragma once

template <typename N> struct is_brain { enum { value = 0 }; };
template <> struct is_brain<bf16> { enum { value = 1 }; };

// Adds left times right to sums. BRAIN: bf16, else f16. All lanes of a warp must call it.
template <int BRAIN> FN void multiply_tile(float (&sums)[4], const u32 (&left)[4], u32 right0,
    u32 right1)
{
#ifdef __CUDASIM__
  cudasim_multiply_tile(sums, left, right0, right1, BRAIN);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if (BRAIN)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
#endif
}

// Returns two numbers as a word of bf16 (BRAIN) or f16.
template <int BRAIN> FN u32 word_of(float low, float high)
{
  const u32 first = BRAIN ? float_to_bf16_bits(low) : float_to_half_bits(low);
  const u32 second = BRAIN ? float_to_bf16_bits(high) : float_to_half_bits(high);
  return first | second << 16;
}
