/* tensor.h - mma.sync, m16n8k16 of half types with sums in float. Lanes have the elements that the
** table of fragments in PTX names. Products are added one after another, from column 0 on; a GPU
** adds them in groups, with more bits. */
#pragma once

CUDASIM_PLAIN static inline float cudasim_half_of(uint32_t word, int which, bool brain)
{
  const unsigned short bits = (unsigned short)(word >> 16 * which);
  return brain ? cudasim_from_bfloat(bits) : cudasim_from_half(bits);
}

/* Gives each lane the words of all others, two at a time, since an exchange moves 64 bits. */
CUDASIM_PLAIN static inline void cudasim_words(
    uint32_t (&all)[32][2], uint32_t low, uint32_t high, int line)
{
  const uint64_t *of = cudasim_warp(~0u, low | (uint64_t)high << 32, line);
  if ((uint32_t)of[32] != ~0u) cudasim_trap("mma.sync: a lane takes no part", line);
  for (int i = 0; i < 32; i++) {
    all[i][0] = (uint32_t)of[i];
    all[i][1] = (uint32_t)(of[i] >> 32);
  }
}

/* Adds left (16 x 16) times right (16 x 8) to sums (16 x 8), of bfloat16 if `brain`, else of
** float16. The arguments are this lane's parts of each. */
CUDASIM_PLAIN static inline void cudasim_multiply_tile(float (&sums)[4],
    const uint32_t (&left)[4], uint32_t right0, uint32_t right1, bool brain,
    int line = __builtin_LINE())
{
  uint32_t first[32][2], second[32][2], right[32][2];
  cudasim_words(first, left[0], left[1], line);
  cudasim_words(second, left[2], left[3], line);
  cudasim_words(right, right0, right1, line);
  const int lane = (int)cudasim_self->lane, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; i++) {
    const int column = 2 * t + i % 2;
    for (int k = 0; k < 16; k++) {
      const int of_left = g * 4 + k % 8 / 2, of_right = column * 4 + k % 8 / 2;
      const uint32_t a = (k < 8 ? first : second)[of_left][i / 2], b = right[of_right][k / 8];
      sums[i] += cudasim_half_of(a, k % 2, brain) * cudasim_half_of(b, k % 2, brain);
    }
  }
}
