/* warps.h - shuffles and votes. All use one exchange: each lane of a mask gives 64 bits and gets
** those of the others. */

#pragma once

/* Returns the values of the lanes of `mask`, by lane; [32]: which lanes took part, those of the
** mask that have not ended. */
extern "C" const uint64_t *cudasim_warp(unsigned mask, uint64_t value, int line);
extern "C" unsigned cudasim_active(void);

static inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE())
{
  cudasim_warp(mask, 0, line);
}
static inline unsigned __activemask() { return cudasim_active(); }

/* -- shuffles ---------------------------------------------------------------------------------- */

template <class T> static inline uint64_t cudasim_bits(T v)
{
  static_assert(sizeof v <= 8, "a shuffle moves at most 8 bytes");
  uint64_t u = 0;
  __builtin_memcpy(&u, &v, sizeof v);
  return u;
}

template <class T> static inline T cudasim_value(uint64_t u)
{
  T v;
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
}

/* Returns the value of lane `from`, or this lane's own where the source is outside of its group. */
template <class T>
CUDASIM_PLAIN static inline T cudasim_shuffle(unsigned mask, T v, int from, bool own, int line)
{
  const uint64_t *all = cudasim_warp(mask, cudasim_bits(v), line);
  if (own) return v;
  if (!(all[32] >> from & 1)) cudasim_trap("a shuffle reads a lane that takes no part", line);
  return cudasim_value<T>(all[from]);
}

template <class T>
static inline T __shfl_sync(
    unsigned mask, T v, int from, int width = 32, int line = __builtin_LINE())
{
  int first = (int)cudasim_self->lane & ~(width - 1);
  return cudasim_shuffle(mask, v, first | (from & (width - 1)), false, line);
}

template <class T>
static inline T __shfl_xor_sync(
    unsigned mask, T v, int by, int width = 32, int line = __builtin_LINE())
{
  int lane = (int)cudasim_self->lane, from = lane ^ by;
  return cudasim_shuffle(mask, v, from, from >= (lane & ~(width - 1)) + width, line);
}

template <class T>
static inline T __shfl_down_sync(
    unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
  int lane = (int)cudasim_self->lane;
  bool own = (lane & (width - 1)) + (int)by >= width;
  return cudasim_shuffle(mask, v, lane + (int)by, own, line);
}

template <class T>
static inline T __shfl_up_sync(
    unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
  int lane = (int)cudasim_self->lane;
  return cudasim_shuffle(mask, v, lane - (int)by, (lane & (width - 1)) < (int)by, line);
}

/* -- votes ------------------------------------------------------------------------------------- */

CUDASIM_PLAIN static inline unsigned __ballot_sync(
    unsigned mask, int p, int line = __builtin_LINE())
{
  const uint64_t *all = cudasim_warp(mask, p != 0, line);
  unsigned bits = 0;
  for (int i = 0; i < 32; i++)
    if (all[32] >> i & 1 && all[i]) bits |= 1u << i;
  return bits;
}

static inline int __any_sync(unsigned mask, int p, int line = __builtin_LINE())
{
  return __ballot_sync(mask, p, line) != 0;
}

static inline int __all_sync(unsigned mask, int p, int line = __builtin_LINE())
{
  return __ballot_sync(mask, !p, line) == 0;
}

template <class T>
CUDASIM_PLAIN static inline unsigned __match_any_sync(
    unsigned mask, T v, int line = __builtin_LINE())
{
  uint64_t mine = cudasim_bits(v);
  const uint64_t *all = cudasim_warp(mask, mine, line);
  unsigned bits = 0;
  for (int i = 0; i < 32; i++)
    if (all[32] >> i & 1 && all[i] == mine) bits |= 1u << i;
  return bits;
}

#define CUDASIM_REDUCE(name, T, expression) \
  CUDASIM_PLAIN static inline T __reduce_##name##_sync( \
      unsigned mask, T v, int line = __builtin_LINE()) \
  { \
    const uint64_t *all = cudasim_warp(mask, cudasim_bits(v), line); \
    T a = v; \
    bool first = true; \
    for (int i = 0; i < 32; i++) { \
      if (!(all[32] >> i & 1)) continue; \
      T b = cudasim_value<T>(all[i]); \
      a = first ? b : (T)(expression); \
      first = false; \
    } \
    return a; \
  }
CUDASIM_REDUCE(add, int, a + b)
CUDASIM_REDUCE(add, unsigned, a + b)
CUDASIM_REDUCE(min, int, b < a ? b : a)
CUDASIM_REDUCE(min, unsigned, b < a ? b : a)
CUDASIM_REDUCE(max, int, a < b ? b : a)
CUDASIM_REDUCE(max, unsigned, a < b ? b : a)
CUDASIM_REDUCE(and, unsigned, a & b)
CUDASIM_REDUCE(or, unsigned, a | b)
CUDASIM_REDUCE(xor, unsigned, a ^ b)
#undef CUDASIM_REDUCE
