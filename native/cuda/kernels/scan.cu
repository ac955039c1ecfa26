// scan.cu - running sums along rows of k elements that are `inner` apart, in the result's own
// precision, from the front or, with BACK, from the end. Method: one thread per row if neighbours
// in memory belong to neighbouring rows; one warp per row if rows are short, PACK elements per lane
// at a time; else blocks take tiles of rows in turn and find a tile's prefix by decoupled
// look-back: a tile publishes its own sum at once, and later its prefix. A look-back adds from the
// nearest known prefix forwards, so that each prefix is the same left fold of the tiles' sums on
// each run, even of floats. Bound: bytes, one read and one write.
#ifndef T
#include "prelude.cuh"
#define T float
#define TO float
#define PACK 4
#define TEAM 32
#include "team.cuh"
#endif
#ifndef PACK
#define PACK 1
#endif
#ifndef BACK
#define BACK 0
#endif

typedef own_precision<TO>::type S;
typedef accumulates<T>::type A;

extern "C" __global__ void running_sums(TO *y, const T *x, i64 rows, i64 k, i64 inner)
{
  EACH_ROW(row, rows)
  {
    i64 at = row_start(row, k, inner), step = inner;
    S sum = 0;
    if (BACK) at += (k - 1) * inner, step = -inner;
    for (i64 j = 0; j < k; j++, at += step) {
      TO v;
      set(v, get<A>(x[at]));
      sum += get<S>(v);
      set(y[at], sum);
    }
  }
}

// -- packs of PACK elements of a row; element j counts in the direction of the sums ---------------

FN i64 pack_offset(i64 j, i64 k, i64 inner) { return BACK ? (k - PACK - j) * inner : j * inner; }
FN int pack_lane(int i) { return BACK ? PACK - 1 - i : i; }

// Loads a pack and replaces it by its running sums; zeros after the row's end.
FN void load_sums(S (&v)[PACK], const T *row, i64 j, i64 k, i64 inner)
{
  S sum = 0;
  if (j >= k) {
    for (int i = 0; i < PACK; i++) v[i] = 0;
    return;
  }
  const lanes<T, PACK> from = *(const lanes<T, PACK> *)&row[pack_offset(j, k, inner)];
  for (int i = 0; i < PACK; i++) {
    TO own;
    set(own, get<A>(from.at[pack_lane(i)]));
    v[i] = sum += get<S>(own);
  }
}

FN void store_sums(TO *row, const S (&v)[PACK], S before, i64 j, i64 k, i64 inner)
{
  lanes<TO, PACK> to;
  if (j >= k) return;
  for (int i = 0; i < PACK; i++) set(to.at[pack_lane(i)], before + v[i]);
  *(lanes<TO, PACK> *)&row[pack_offset(j, k, inner)] = to;
}

// Replaces v by the sum of the lanes up to this one. Returns the sum of the lanes before it.
FN S scan_warp(S &v)
{
  const int lane = threadIdx.x % 32;
  for (int n = 1; n < 32; n *= 2) {
    const S other = __shfl_up_sync(~0u, v, n);
    if (lane >= n) v = other + v;
  }
  const S before = __shfl_up_sync(~0u, v, 1);
  return lane ? before : 0;
}

extern "C" __global__ void running_rows(TO *y, const T *x, i64 rows, i64 k, i64 inner)
{
  EACH_ROW(row, rows)
  {
    const i64 at = row_start(row, k, inner);
    S carry = 0;
    for (i64 begin = 0; begin < k; begin += 32 * PACK) {
      const i64 j = begin + threadIdx.x % 32 * PACK;
      S v[PACK];
      load_sums(v, x + at, j, k, inner);
      S through = v[PACK - 1];
      const S before = scan_warp(through);
      store_sums(y + at, v, carry + before, j, k, inner);
      carry += __shfl_sync(~0u, through, 31);
    }
  }
}

// -- tiles of long rows ---------------------------------------------------------------------------

enum { HELD = 4, WARPS = 8, TILE = HELD * 256 * PACK };
// Which sums of a tile other blocks may read.
enum {
  NOT_SUMMED,
  TILE_SUMMED,          // the sum of its elements
  PREFIX_SUMMED         // the sum of the row up to its end
};

// The sums of a tile, which several blocks access at once: use atomic operations only.
struct tile_sums {
  u64 tile;             // the bits of the sum of its elements
  u64 through;          // the bits of the sum of the row up to its end
};

FN u64 get_bits(S v)
{
  u64 bits = 0;
  memcpy(&bits, &v, sizeof v);
  return bits;
}

FN S read_sum(u64 *at)
{
  const u64 bits = atomicAdd(at, 0ull);
  S v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

FN void publish(u64 *at, S v, u32 *state, u32 known)
{
  atomicExch(at, get_bits(v));
  __threadfence();
  atomicExch(state, known);
}

// Returns the sum of the `first` tiles of the row before tile t. All threads of a warp must call
// it.
FN S sum_before(tile_sums *sums, u32 *state, i64 t, i64 first)
{
  const int lane = threadIdx.x % 32;
  const bool has_tile = lane < first;
  u32 known, through, missing;
  do {
    known = has_tile ? atomicAdd(&state[t - 1 - lane], 0u) : PREFIX_SUMMED;
    through = __ballot_sync(~0u, known == PREFIX_SUMMED);
    missing = __ballot_sync(~0u, known == NOT_SUMMED);
  } while (!through || (missing & ((through & -through) - 1)));
  __threadfence();
  const int nearest = __ffs((int)through) - 1;
  S sum = 0;
  if (has_tile && lane <= nearest)
    sum = read_sum(lane == nearest ? &sums[t - 1 - lane].through : &sums[t - 1 - lane].tile);
  S total = __shfl_sync(~0u, sum, nearest);
  for (int i = nearest - 1; i >= 0; i--) total += __shfl_sync(~0u, sum, i);
  return total;
}

// Writes running sums of rows of several tiles. sums, state and ticket are initially 0. Blocks take
// tiles in order, so that a tile waits only for tiles that already have a block.
extern "C" __global__ void running_tiles(TO *y, const T *x, tile_sums *sums, u32 *state,
    u64 *ticket, i64 rows, i64 k, i64 inner)
{
  __shared__ S part[HELD * WARPS], prefix;
  __shared__ i64 taken;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 each = (k + TILE - 1) / TILE;
  for (;;) {
    if (threadIdx.x == 0) taken = (i64)atomicAdd(ticket, 1ull);
    __syncthreads();
    const i64 t = taken, first = t % each, at = row_start(t / each, k, inner);
    if (t >= rows * each) break;
    S v[HELD][PACK], before[HELD];
    for (int h = 0; h < HELD; h++) {
      load_sums(v[h], x + at, first * TILE + (h * 256 + threadIdx.x) * PACK, k, inner);
      S through = v[h][PACK - 1];
      before[h] = scan_warp(through);
      if (lane == 31) part[h * WARPS + warp] = through;
    }
    __syncthreads();
    if (warp == 0) {
      S through = part[lane];
      part[lane] = scan_warp(through);
      const S own = __shfl_sync(~0u, through, 31);
      if (lane == 0 && first) publish(&sums[t].tile, own, &state[t], TILE_SUMMED);
      const S earlier = first ? sum_before(sums, state, t, first) : 0;
      if (lane == 0) publish(&sums[t].through, earlier + own, &state[t], PREFIX_SUMMED);
      if (lane == 0) prefix = earlier;
    }
    __syncthreads();
    for (int h = 0; h < HELD; h++)
      store_sums(y + at, v[h], prefix + (part[h * WARPS + warp] + before[h]),
          first * TILE + (h * 256 + threadIdx.x) * PACK, k, inner);
    __syncthreads();
  }
}
