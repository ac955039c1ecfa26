// sort.cu - sorts lines of n elements that are `inner` apart: sort, argsort, topk, and keys that
// other families make. Elements become keys in the same order, as wide as the elements (NaN above
// all, -0 equals 0); descending orders use their complements; equal keys keep their order. Method:
// lines of up to 32 are counted by a warp. Lines that fit a tile are sorted by a block in shared
// memory, 8 bits of the keys at a time. Longer lines take one pass over memory per 8 bits; in it, a
// tile finds how many keys of each digit precede it by decoupled look-back. If only a few first
// elements are requested, blocks select the first k of each tile by their digits, from the highest
// one, and then again from those selected. Bound: bytes, one read and one write of a line that fits
// a tile, two of the keys per pass of a longer one, one read of x if few are selected.
#ifndef T
#include "prelude.cuh"
#define T float
#define POSITION i32    // indices
#define DOWN 1
#define TO_OUT 1
#include "team.cuh"
#include "keys.cuh"
#endif
#ifndef POSITION
#define POSITION i32
#endif
#ifndef DOWN
#define DOWN 0
#endif
#ifndef WIDE
#define WIDE 0          // 1: keys of 64 bits, or more than 2^32 elements in a line
#endif
#ifndef FROM_X
#define FROM_X 1        // 1: sorts elements of x; 0: keys of `from`
#endif
#ifndef TO_OUT
#define TO_OUT 0        // 1: writes elements and their indices; 0: keys
#endif
#ifndef BITS
#define BITS 32         // bits of a key
#endif
#ifndef ITEMS
#define ITEMS 8         // keys of a thread
#endif
#ifndef COUNT
#define COUNT u32       // number of keys of a line; its two highest bits are flags
#endif

#if WIDE
typedef sort_key pair;
typedef u64 KEY;
#else
struct alignas(8) pair {
  u32 key, index;
};
typedef u32 KEY;
#endif

enum { DIGIT = 8, DIGITS = 256, WARPS = 8, TILE = 256 * ITEMS };

FN KEY key_of(T v)
{
  const u64 key = order_of(v);
  return (KEY)(DOWN ? ~key & ~0ull >> (64 - BITS) : key);
}

// Returns the index of element i of line u in an array with `k` elements in a line.
FN i64 line_element(i64 u, i64 i, i64 k, i64 inner)
{
  return inner == 1 ? u * k + i : (u / inner * k + i) * inner + u % inner;
}

struct order_args {
  const T *x;
  const pair *from;
  pair *to;
  // results for the first k of each line: elements, their indices, ones at their indices in an
  // array of zeros; each may be NULL
  T *value;
  POSITION *index;
  T *mask;
  // n: keys of a line; whole: elements of x
  i64 lines, n, whole, k, inner;
};

FN pair source(const order_args &s, i64 line, i64 i)
{
#if FROM_X
  pair p;
  p.key = key_of(s.x[line_element(line, i, s.n, s.inner)]);
  p.index = i;
  return p;
#else
  return s.from[line * s.n + i];
#endif
}

// Returns the pair that fills a tile after the end of a line: no key is greater, and equal keys
// precede it.
FN pair no_pair()
{
  pair p;
  p.key = (KEY)(~0ull >> (64 - BITS));
  p.index = 0;
  return p;
}

FN void sink(const order_args &s, i64 line, i64 rank, const pair &p)
{
#if TO_OUT
  if (rank >= s.k) return;
  const i64 at = line_element(line, (i64)p.index, s.whole, s.inner);
  const i64 target = line_element(line, rank, s.k, s.inner);
  if (s.value) s.value[target] = s.x[at];
  if (s.index) set(s.index[target], (i64)p.index);
  if (s.mask) set(s.mask[at], (i64)1);
#else
  s.to[line * s.n + rank] = p;
#endif
}

// Sorts lines of up to 32 elements, one warp each.
extern "C" __global__ void sort_short(const struct order_args __grid_constant__ s)
{
  EACH_ROW(line, s.lines)
  {
    const i64 lane = threadIdx.x % 32;
    const pair own = lane < s.n ? source(s, line, lane) : no_pair();
    i64 rank = 0;
    for (i64 j = 0; j < s.n; j++) {
      const KEY key = __shfl_sync(~0u, own.key, (int)j);
      rank += key < own.key || (key == own.key && j < lane);
    }
    if (lane < s.n) sink(s, line, rank, own);
  }
}

// -- tiles: item r of a thread is element r * 32 + lane of its warp's part, so items are in order -

FN int item_at(int r) { return ((int)threadIdx.x / 32 * ITEMS + r) * 32 + (int)threadIdx.x % 32; }
FN u32 digit_of(KEY key, int shift) { return (u32)(key >> shift) % DIGITS; }

FN void load_tile(pair (&own)[ITEMS], const order_args &s, i64 line, i64 begin)
{
  for (int r = 0; r < ITEMS; r++) {
    const i64 i = begin + item_at(r);
    own[r] = i < s.n ? source(s, line, i) : no_pair();
  }
}

// Returns the sum of v over the threads of the block with lower indices.
FN COUNT sum_before(COUNT v)
{
  __shared__ COUNT part[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  COUNT sum = v;
  for (int n = 1; n < 32; n *= 2) {
    const COUNT other = __shfl_up_sync(~0u, sum, n);
    if (lane >= n) sum += other;
  }
  __syncthreads();
  if (lane == 31) part[warp] = sum;
  __syncthreads();
  sum -= v;
  for (int w = 0; w < warp; w++) sum += part[w];
  return sum;
}

// Writes to `slot` the position of each key in the order of a digit of the tile, and to start[d]
// how many keys have a digit below d. Returns how many keys have digit threadIdx.x.
FN u32 rank_tile(u32 (&slot)[ITEMS], const pair (&own)[ITEMS], int shift, u32 (&start)[DIGITS])
{
  __shared__ u32 count[WARPS][DIGITS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < WARPS; w++) count[w][threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < ITEMS; r++) {
    const u32 digit = digit_of(own[r].key, shift);
    u32 same = ~0u;
    for (int b = 0; b < DIGIT; b++) {
      const u32 have = __ballot_sync(~0u, digit >> b & 1);
      same &= digit >> b & 1 ? have : ~have;
    }
    const u32 earlier = same & ((1u << lane) - 1);
    u32 before = 0;
    if (!earlier) before = atomicAdd(&count[warp][digit], (u32)__popc(same));
    slot[r] = __shfl_sync(~0u, before, __ffs((int)same) - 1) + (u32)__popc(earlier);
  }
  __syncthreads();
  u32 total = 0;
  for (int w = 0; w < WARPS; w++) {
    const u32 own_count = count[w][threadIdx.x];
    count[w][threadIdx.x] = total;
    total += own_count;
  }
  start[threadIdx.x] = (u32)sum_before(total);
  __syncthreads();
  for (int r = 0; r < ITEMS; r++) {
    const u32 digit = digit_of(own[r].key, shift);
    slot[r] += start[digit] + count[warp][digit];
  }
  return total;
}

// Sorts lines of up to TILE elements, one block each, by the lowest `bits` bits of their keys.
extern "C" __global__ void sort_lines(const struct order_args __grid_constant__ s, i32 bits)
{
  __shared__ pair held[TILE];
  __shared__ u32 start[DIGITS];
  for (i64 line = blockIdx.x; line < s.lines; line += gridDim.x) {
    pair own[ITEMS];
    u32 slot[ITEMS];
    load_tile(own, s, line, 0);
    for (int shift = 0; shift < bits; shift += DIGIT) {
      rank_tile(slot, own, shift, start);
      for (int r = 0; r < ITEMS; r++) held[slot[r]] = own[r];
      __syncthreads();
      for (int r = 0; r < ITEMS; r++) own[r] = held[item_at(r)];
    }
    for (int r = 0; r < ITEMS; r++)
      if (item_at(r) < s.n) sink(s, line, item_at(r), own[r]);
  }
}

// -- lines of several tiles -----------------------------------------------------------------------

// Counts how many keys of a line have each digit. counts: (lines, passes, DIGITS), initially 0.
extern "C" __global__ void count_digits(
    COUNT *counts, const struct order_args __grid_constant__ s, i32 passes)
{
  __shared__ u32 count[sizeof(KEY)][DIGITS];
  const i64 each = (s.n + TILE - 1) / TILE;
  for (i64 t = blockIdx.x; t < s.lines * each; t += gridDim.x) {
    const i64 line = t / each, begin = t % each * TILE;
    for (int p = 0; p < passes; p++) count[p][threadIdx.x] = 0;
    __syncthreads();
    for (int r = 0; r < ITEMS; r++) {
      const i64 i = begin + item_at(r);
      if (i >= s.n) continue;
      const KEY key = source(s, line, i).key;
      for (int p = 0; p < passes; p++) atomicAdd(&count[p][digit_of(key, p * DIGIT)], 1u);
    }
    __syncthreads();
    for (int p = 0; p < passes; p++)
      if (count[p][threadIdx.x])
        atomicAdd(&counts[(line * passes + p) * DIGITS + threadIdx.x], count[p][threadIdx.x]);
    __syncthreads();
  }
}

// What the count of a tile and digit includes, in its two highest bits; 0: it is not set yet.
enum {
  TILE_COUNTED = 1,     // the keys of the tile
  PREFIX_COUNTED = 2    // the keys of the line up to the end of the tile
};
enum { FLAG = 8 * sizeof(COUNT) - 2 };  // index of the lower of these bits

// Returns how many keys of digit threadIdx.x are in the `first` tiles of the line before tile t,
// which has `own` of them.
FN COUNT keys_before(COUNT *state, i64 t, i64 first, COUNT own)
{
  COUNT *known = state + t * DIGITS + threadIdx.x, sum = 0;
  if (first) atomicExch(known, own | (COUNT)TILE_COUNTED << FLAG);
  for (i64 back = 1; back <= first;) {
    const COUNT word = atomicAdd(known - back * DIGITS, (COUNT)0);
    if (!(word >> FLAG)) continue;
    sum += word & (((COUNT)1 << FLAG) - 1);
    if (word >> FLAG == PREFIX_COUNTED) break;
    back++;
  }
  atomicExch(known, (sum + own) | (COUNT)PREFIX_COUNTED << FLAG);
  return sum;
}

// Writes the keys in the order of digit `pass`. Blocks take tiles in order, by `ticket`, so that a
// tile waits only for tiles that already have a block. ticket and state are initially 0; the kernel
// sets those of the next pass to 0.
extern "C" __global__ void sort_pass(const COUNT *counts, u64 *ticket, COUNT *state,
    u64 *later_ticket, COUNT *later_state, const struct order_args __grid_constant__ s, i32 pass,
    i32 passes)
{
  __shared__ pair held[TILE];
  __shared__ u32 start[DIGITS];
  __shared__ COUNT offset[DIGITS];
  __shared__ i64 taken;
  const i64 each = (s.n + TILE - 1) / TILE;
  const int shift = pass * DIGIT;
  for (;;) {
    if (threadIdx.x == 0) taken = (i64)atomicAdd(ticket, 1ull);
    __syncthreads();
    const i64 t = taken, line = t / each, first = t % each;
    if (t >= s.lines * each) break;
    if (t == 0 && threadIdx.x == 0) *later_ticket = 0;
    later_state[t * DIGITS + threadIdx.x] = 0;
    pair own[ITEMS];
    u32 slot[ITEMS];
    load_tile(own, s, line, first * TILE);
    const u32 count = rank_tile(slot, own, shift, start);
    const COUNT lower = sum_before(counts[(line * passes + pass) * DIGITS + threadIdx.x]);
    offset[threadIdx.x] = lower + keys_before(state, t, first, count) - start[threadIdx.x];
    for (int r = 0; r < ITEMS; r++) held[slot[r]] = own[r];
    __syncthreads();
    for (int r = 0; r < ITEMS; r++) {
      const u32 q = (u32)r * 256 + threadIdx.x;
      if (first * TILE + q >= s.n) break;
      const pair p = held[q];
      sink(s, line, (i64)(COUNT)(offset[digit_of(p.key, shift)] + q), p);
    }
    __syncthreads();
  }
}

// Writes the first k keys of each tile to (lines, tiles, k), in the order that they have in the
// tile.
extern "C" __global__ void select_keys(
    pair *to, const struct order_args __grid_constant__ s)
{
  __shared__ u32 count[DIGITS], chosen, left, part[WARPS];
  const i64 each = (s.n + TILE - 1) / TILE;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, earlier = (1u << lane) - 1;
  for (i64 t = blockIdx.x; t < s.lines * each; t += gridDim.x) {
    pair own[ITEMS];
    load_tile(own, s, t / each, t % each * TILE);
    // find the k-th key, digit by digit, and how many keys equal to it are selected
    KEY last = 0, known = 0;
    u32 wanted = (u32)s.k;
    for (int shift = BITS - DIGIT; shift >= 0; shift -= DIGIT) {
      count[threadIdx.x] = 0;
      __syncthreads();
      for (int r = 0; r < ITEMS; r++)
        if ((own[r].key & known) == last) atomicAdd(&count[digit_of(own[r].key, shift)], 1u);
      __syncthreads();
      const u32 mine = count[threadIdx.x], below = (u32)sum_before(mine);
      if (below < wanted && wanted <= below + mine) chosen = threadIdx.x, left = wanted - below;
      __syncthreads();
      last |= (KEY)chosen << shift;
      known |= (KEY)(DIGITS - 1) << shift;
      wanted = left;
      __syncthreads();
    }
    // count lower keys in the lower half of a word, equal ones in the upper half
    u32 sum = 0;
    for (int r = 0; r < ITEMS; r++) {
      const u32 lower = __ballot_sync(~0u, own[r].key < last);
      const u32 equal = __ballot_sync(~0u, own[r].key == last);
      sum += (u32)__popc(lower) + ((u32)__popc(equal) << 16);
    }
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    u32 before = 0;
    for (u32 w = 0; w < warp; w++) before += part[w];
    for (int r = 0; r < ITEMS; r++) {
      const u32 lower = __ballot_sync(~0u, own[r].key < last);
      const u32 equal = __ballot_sync(~0u, own[r].key == last);
      const u32 below = (before & 0xffff) + (u32)__popc(lower & earlier);
      const u32 equals = (before >> 16) + (u32)__popc(equal & earlier);
      const bool takes = own[r].key < last || (own[r].key == last && equals < wanted);
      if (takes) to[t * s.k + below + (equals < wanted ? equals : wanted)] = own[r];
      before += (u32)__popc(lower) + ((u32)__popc(equal) << 16);
    }
    __syncthreads();
  }
}

extern "C" __global__ void put_back(
    T *dx, const T *g, const POSITION *index, i64 count, i64 n, i64 k, i64 inner)
{
  EACH(e, count)
  {
    i64 line = e / (k * inner), in = e % inner, j = index_at(index[e], n);
    dx[(line * n + j) * inner + in] = g[e];
  }
}
