// flash_attention.cu - _contrib_attention and its gradients without an array (queries x keys).
// Method: a block holds a tile of rows (queries; for the gradients of keys and values, keys) in
// shared memory and loops over tiles of columns. Eight neighbouring threads share a row and hold
// packs of its result in registers. Forward keeps the greatest score and the sum of exponentials of
// each row; backward recomputes weights from the logarithm of that sum. If rows are few, SLICES
// teams share a row, each with its own columns, and their results are joined in order. Bound:
// operations, 4 Tq Tk d forward, on ordinary cores; bytes if queries are few. Kernels named
// *_tensor: half types on tensor cores, one warp per 16 rows; weights and slopes are rounded to the
// type, sums are float.
#ifndef T
#include "prelude.cuh"
#include "base/philox.h"
#include "draw.cuh"
#include "tensor.cuh"
#define T float
#define MASK float   // of the mask
#define LENGTH i32   // of valid_length
#define OFFSET i32   // of offset
#define D 64         // size of a query and a key, of a value
#define DV 64
#define PACK 4       // elements of a load of global memory
#define ROWS 32      // of a tile
#define COLUMNS 32
#define TEAM 8
#include "team.cuh"
#endif

typedef computes<T>::type C;
#define WIDTH (16 / (int)sizeof(C))                // numbers per load from shared memory
typedef lanes<C, WIDTH> W;
#define PADDED(n) (((n) + 7) / 8 * 8)
#define KEY PADDED(D)
#define VALUE PADDED(DV)
#define STRIDE(n) ((n) + WIDTH)                    // puts eight rows into different banks
#define SLICES (32 / ROWS)
#define SHARE (COLUMNS / SLICES)                   // columns of a team
#define EACH_SHARE (SHARE / 8)                     // of a thread
#define HELD_PACKS(n) (((n) / WIDTH + 7) / 8)      // packs of a row's result per thread

// The layout of matrices (positions x size of a head): distances between samples, heads and rows,
// in elements.
struct tile_side { i64 sample, head, row; };
struct tile_args {
  i64 batch, heads, group, tq, tk, window, causal;
  tile_side q, k, v, y, dy, dq, dk, dv;
  i64 mask[4], bias[4]; // distances along sample, head, query, key; 0: broadcast
  double scale, empty;
  struct draw_key key;
  double keep;          // factor of weights that dropout keeps
  u32 limit;
  i32 drops;
};
struct tile_extra {
  const MASK *mask;
  const T *bias;
  const LENGTH *valid_length;
  const OFFSET *offset;
};

FN i64 start_of(const tile_side &s, i64 sample, i64 head, i64 row)
{
  return sample * s.sample + head * s.head + row * s.row;
}

// Loads rows of global memory into a tile, with zeros after the last row and the last column.
template <int SIZE, int N> FN void load_tile(C *to, const T *from, i64 step, i64 rows)
{
  typedef lanes<T, PACK> L;
  const int packs = PADDED(SIZE) / PACK;
  for (int e = threadIdx.x; e < N * packs; e += 256) {
    const int r = e / packs, d = e % packs * PACK;
    L in = {};
    const bool inside = r < rows && d < SIZE;
    if (inside) in = *(const L *)(from + r * step + d);
    for (int l = 0; l < PACK; l++)
      to[r * STRIDE(PADDED(SIZE)) + d + l] = inside ? get<C>(in.at[l]) : 0;
  }
}

// Writes to sums the products of one row with EACH_SHARE others, which are eight rows apart.
template <int SIZE> FN void products(C (&sums)[EACH_SHARE], const C *one, const C *others)
{
  for (int i = 0; i < EACH_SHARE; i++) sums[i] = 0;
  for (int d = 0; d < SIZE; d += WIDTH) {
    const W a = *(const W *)(one + d);
    for (int i = 0; i < EACH_SHARE; i++) {
      const W b = *(const W *)(others + i * 8 * STRIDE(SIZE) + d);
      for (int l = 0; l < WIDTH; l++) sums[i] += a.at[l] * b.at[l];
    }
  }
}

// Adds factor times a row to `to`. Each of eight threads holds some packs of it.
template <int SIZE> FN void add_row(W (&to)[HELD_PACKS(SIZE)], C factor, const C *row, int lane)
{
  for (int h = 0; h < HELD_PACKS(SIZE); h++)
    if (const int d = (h * 8 + lane) * WIDTH; d < SIZE) {
      const W x = *(const W *)(row + d);
      for (int l = 0; l < WIDTH; l++) to[h].at[l] += factor * x.at[l];
    }
}

template <typename F> FN C join_eight(C v, F join)
{
  for (int n = 4; n; n /= 2) v = join(v, __shfl_xor_sync(~0u, v, n));
  return v;
}

// The keys lo .. hi - 1 that queries first .. last of a sample see.
struct tile_span { i64 lo, hi; };
FN tile_span span_of(const tile_args &s, const tile_extra &x, i64 sample, i64 first, i64 last)
{
  const i64 keys = x.valid_length ? index_at(x.valid_length[sample], s.tk + 1) : s.tk;
  const i64 most = s.tk + s.tq + s.window;
  i64 at = x.offset ? get<i64>(x.offset[sample]) : 0, lo = 0, hi = keys;
  at = at < -most ? -most : at > most ? most : at;
  if (s.window && at + first - s.window + 1 > lo) lo = at + first - s.window + 1;
  if (s.window && at + last < hi - s.window) hi = at + last + s.window;
  if (s.causal && at + last + 1 < hi) hi = at + last + 1;
  if (lo > keys) lo = keys;
  return { lo, hi > lo ? hi : lo };
}

// Returns the score of a query and a key; -infinity if the key is masked.
FN C score_of(const tile_args &s, const tile_extra &x, const tile_span &see, i64 sample,
    i64 head, i64 query, i64 key, C product)
{
  const i64 index[4] = { sample, head, query, key };
  i64 in_mask = 0, in_bias = 0;
  if (key < see.lo || key >= see.hi) return -infinity<C>();
  for (int a = 0; a < 4; a++) {
    in_mask += index[a] * s.mask[a];
    in_bias += index[a] * s.bias[a];
  }
  if (x.mask && get<double>(x.mask[in_mask]) == 0) return -infinity<C>();
  return product * (C)s.scale + (x.bias ? get<C>(x.bias[in_bias]) : 0);
}

// Returns the dropout factor of a weight.
FN C factor_of(const tile_args &s, i64 sample, i64 head, i64 query, i64 key)
{
  if (!s.drops) return 1;
  const u64 e = (u64)(((sample * s.heads + head) * s.tq + query) * s.tk + key);
  const struct philox bits = draw(s.key, e / 4);
  const u32 low = e & 1 ? bits.w[1] : bits.w[0], high = e & 1 ? bits.w[3] : bits.w[2];
  return (e & 2 ? high : low) < s.limit ? (C)s.keep : 0;
}

// The position of a thread: its row of the tile, its slice of the columns, its index among the
// eight threads of a row.
struct tile_thread { int row, slice, lane; };
FN tile_thread thread_of()
{
  const int team = threadIdx.x / 8;
  return { team % ROWS, team / ROWS, (int)threadIdx.x % 8 };
}

// Adds the results of all slices of a row, in order; slice 0 receives the sum.
template <int SIZE> FN void join_slices(W (&sums)[HELD_PACKS(SIZE)], C *space, tile_thread me)
{
  for (int from = 1; from < SLICES; from++) {
    __syncthreads();
    for (int h = 0; h < HELD_PACKS(SIZE); h++)
      if (const int d = (h * 8 + me.lane) * WIDTH; d < SIZE && me.slice == from)
        *(W *)(space + me.row * STRIDE(SIZE) + d) = sums[h];
    __syncthreads();
    if (!me.slice) add_row<SIZE>(sums, 1, space + me.row * STRIDE(SIZE), me.lane);
  }
}

template <int SIZE> FN void store_row(T *to, const W (&sums)[HELD_PACKS(SIZE)], C factor, int size,
    int lane)
{
  for (int h = 0; h < HELD_PACKS(SIZE); h++)
    for (int l = 0; l < WIDTH; l++)
      if (const int d = (h * 8 + lane) * WIDTH + l; d < size) set(to[d], sums[h].at[l] * factor);
}

// The tile of queries of a block, of one head.
struct tile_block { i64 sample, head, first; };
FN tile_block block_of(i64 tiles, i64 heads)
{
  const i64 b = blockIdx.x;
  return { b / tiles / heads, b / tiles % heads, b % tiles };
}

// Stores, for backward, the logarithm of the sum of a row's weights, and the error of rounding it
// to C, which for large scores can be all of log(sum).
FN void store_logsum(C *logsum, const tile_args &s, i64 row, C most, C sum)
{
  const C shift = most == -infinity<C>() ? 0 : most, log = sum != 0 ? log_of(sum) : 0;
  const C all = sum != 0 ? shift + log : s.empty == 0 ? infinity<C>() : (C)s.empty;
  const bool finite = all - all == 0;
  logsum[row] = all;
  logsum[s.batch * s.heads * s.tq + row] = finite ? shift - all + log : 0;
}

// Returns the rounding error that store_logsum stored for a row.
FN C rest_of(const C *logsum, const tile_args &s, i64 row)
{
  return logsum[s.batch * s.heads * s.tq + row];
}

// Computes attention forward. logsum: for backward; may be NULL.
extern "C" __global__ void attend(T *y, C *logsum, const T *q, const T *k, const T *v,
    const struct tile_extra __grid_constant__ x, const struct tile_args __grid_constant__ s)
{
  __shared__ C queries[ROWS * STRIDE(KEY)], keys[COLUMNS * STRIDE(KEY)];
  __shared__ C values[COLUMNS * STRIDE(VALUE)], weights[32 * (SHARE + 1)], stats[2][32];
  const tile_block b = block_of((s.tq + ROWS - 1) / ROWS, s.heads);
  const i64 q0 = b.first * ROWS, kv = b.head / s.group;
  const tile_thread me = thread_of();
  const i64 query = q0 + me.row, left = s.tq - q0, last = (left < ROWS ? left : ROWS) - 1;
  const tile_span all = span_of(s, x, b.sample, q0, q0 + last);
  const tile_span see = span_of(s, x, b.sample, query, query);
  C *own = weights + threadIdx.x / 8 * (SHARE + 1), most = -infinity<C>(), sum = 0;
  W out[HELD_PACKS(VALUE)] = {};
  load_tile<D, ROWS>(queries, q + start_of(s.q, b.sample, b.head, q0), s.q.row, left);
  for (i64 k0 = all.lo; k0 < all.hi; k0 += COLUMNS) {
    __syncthreads();
    load_tile<D, COLUMNS>(keys, k + start_of(s.k, b.sample, kv, k0), s.k.row, all.hi - k0);
    load_tile<DV, COLUMNS>(values, v + start_of(s.v, b.sample, kv, k0), s.v.row, all.hi - k0);
    __syncthreads();
    const int first = me.slice * SHARE;
    C score[EACH_SHARE], greatest = most;
    products<KEY>(score, queries + me.row * STRIDE(KEY), keys + (first + me.lane) * STRIDE(KEY));
    for (int i = 0; i < EACH_SHARE; i++) {
      const i64 key = k0 + first + i * 8 + me.lane;
      score[i] = query < s.tq ? score_of(s, x, see, b.sample, b.head, query, key, score[i])
                              : -infinity<C>();
      greatest = score[i] > greatest ? score[i] : greatest;
    }
    greatest = join_eight(greatest, join_max());
    const C shift = greatest == -infinity<C>() ? 0 : greatest;
    const C shrink = most == greatest ? 1 : exp_of(most - greatest);
    most = greatest;
    sum *= shrink;
    for (int i = 0; i < EACH_SHARE; i++) {
      const i64 key = k0 + first + i * 8 + me.lane;
      const C weight = exp_of(score[i] - shift);
      sum += weight;
      own[i * 8 + me.lane] = weight == 0 ? 0 : weight * factor_of(s, b.sample, b.head, query, key);
    }
    for (int h = 0; h < HELD_PACKS(VALUE); h++)
      for (int l = 0; l < WIDTH; l++) out[h].at[l] *= shrink;
    __syncwarp();
    for (int j = 0; j < SHARE; j++)
      if (own[j] != 0) add_row<VALUE>(out, own[j], values + (first + j) * STRIDE(VALUE), me.lane);
    __syncwarp();
  }
  sum = join_eight(sum, join_sum());
  if (SLICES > 1) {
    if (!me.lane) stats[0][threadIdx.x / 8] = most, stats[1][threadIdx.x / 8] = sum;
    __syncthreads();
    C all_most = -infinity<C>(), all_sum = 0;
    for (int i = 0; i < SLICES; i++) {
      const C other = stats[0][i * ROWS + me.row];
      all_most = other > all_most ? other : all_most;
    }
    for (int i = 0; i < SLICES; i++) {
      const C other = stats[0][i * ROWS + me.row];
      const C shrink = other == all_most ? 1 : exp_of(other - all_most);
      all_sum += shrink * stats[1][i * ROWS + me.row];
    }
    const C shrink = most == all_most ? 1 : exp_of(most - all_most);
    for (int h = 0; h < HELD_PACKS(VALUE); h++)
      for (int l = 0; l < WIDTH; l++) out[h].at[l] *= shrink;
    most = all_most;
    sum = all_sum;
    join_slices<VALUE>(out, values, me);
  }
  if (query >= s.tq || me.slice) return;
  T *to = y + start_of(s.y, b.sample, b.head, query);
  if (sum == 0)
    for (int d = me.lane; d < DV; d += 8) set(to[d], s.empty);
  else
    store_row<VALUE>(to, out, 1 / sum, DV, me.lane);
  if (me.lane || !logsum) return;
  store_logsum(logsum, s, (b.sample * s.heads + b.head) * s.tq + query, most, sum);
}

// -- forward on tensor cores ----------------------------------------------------------------------

#define TENSOR_WARPS 4                             // of a block
#define TENSOR_THREADS (32 * TENSOR_WARPS)
#define TENSOR_ROWS (16 * TENSOR_WARPS)            // queries of a block
#define TENSOR_COLUMNS 64                          // keys of a tile
#define UP_TO_16(n) (((n) + 15) / 16 * 16)
#define HALF_STRIDE(n) ((n) + 8)                   // puts eight rows into different banks

// Loads rows of half types into a tile, with zeros after the last row and the last column. Returns
// whether this thread has seen an infinity or a NaN.
template <int SIZE, int WIDE, int N> FN bool load_halves(
    u16 *to, const T *from, i64 step, i64 rows)
{
  typedef lanes<u16, PACK> L;
  const u16 exponent = is_brain<T>::value ? 0x7f80 : 0x7c00;
  const int packs = (WIDE + PACK - 1) / PACK;
  bool wild = false;
  for (int e = threadIdx.x; e < N * packs; e += TENSOR_THREADS) {
    const int r = e / packs, d = e % packs * PACK;
    L in = {};
    if (r < rows && d < SIZE) in = *(const L *)(const u16 *)(from + r * step + d);
    for (int l = 0; l < PACK; l++) wild |= (in.at[l] & exponent) == exponent;
    *(L *)(to + r * HALF_STRIDE(WIDE) + d) = in;
  }
  return wild;
}

FN u32 word_at(const u16 *x) { return *(const u32 *)x; }

// Adds weights (16 x N) times values to out, on ordinary cores. A weight of 0 skips its value, even
// an infinity. Weights are shifted down after every eight columns, so that their indices are
// constants and they stay in registers; they are lost.
template <int WIDE, int N> FN void add_values(float (&out)[WIDE / 8][4], float (&weight)[N / 8][4],
    const u16 *values, int lane)
{
  for (int j = 0; j < N; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float own = j % 2 ? weight[0][i | 1] : weight[0][i & ~1];
      const float from = __shfl_sync(~0u, own, lane / 4 * 4 + j % 8 / 2);
#pragma unroll
      for (int n = 0; n < WIDE / 8; n++) {
        const u16 bits = values[j * HALF_STRIDE(WIDE) + n * 8 + lane % 4 * 2 + i % 2];
        const float v = is_brain<T>::value ? bf16_bits_to_float(bits) : half_bits_to_float(bits);
        if (from != 0) out[n][i] += from * v;
      }
    }
#pragma unroll
    for (int n = 0; n + 1 < N / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (j % 8 == 7) weight[n][i] = weight[n + 1][i];
  }
}

// Does the same on tensor cores unless `wild`, that is, unless values have an infinity or a NaN.
template <int WIDE, int N> FN void add_products(float (&out)[WIDE / 8][4],
    float (&weight)[N / 8][4], const u16 *values, int lane, bool wild)
{
  enum { BRAIN = is_brain<T>::value };
  if (wild) {
    add_values<WIDE, N>(out, weight, values, lane);
    return;
  }
#pragma unroll
  for (int j = 0; j < N / 8; j += 2) {
    u32 left[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      left[i] = word_of<BRAIN>(weight[j + i / 2][i % 2 * 2], weight[j + i / 2][i % 2 * 2 + 1]);
    const u16 *of = values + (j * 8 + lane % 4 * 2) * HALF_STRIDE(WIDE) + lane / 4;
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++, of += 8)
      multiply_tile<BRAIN>(out[n], left, of[0] | (u32)of[HALF_STRIDE(WIDE)] << 16,
          of[8 * HALF_STRIDE(WIDE)] | (u32)of[9 * HALF_STRIDE(WIDE)] << 16);
  }
}

// Loads a warp's part of the left factor of a product: 16 rows from `row` on, 16 columns from c on.
template <int WIDE> FN void load_left(u32 (&to)[4], const u16 *tile, int row, int c, int lane)
{
#pragma unroll
  for (int i = 0; i < 4; i++)
    to[i] = word_at(tile + (row + lane / 4 + i % 2 * 8) * HALF_STRIDE(WIDE) + c + i / 2 * 8 +
        lane % 4 * 2);
}

// Adds 16 columns, from c on, of the left factor times those of N rows of `others` to sums.
template <int WIDE, int N> FN void add_dots(float (&sums)[N / 8][4], const u32 (&left)[4],
    const u16 *others, int c, int lane)
{
#pragma unroll
  for (int j = 0; j < N / 8; j++) {
    const u16 *of = others + (j * 8 + lane / 4) * HALF_STRIDE(WIDE) + c + lane % 4 * 2;
    multiply_tile<is_brain<T>::value>(sums[j], left, word_at(of), word_at(of + 8));
  }
}

// Writes row r (0 or 1) of a lane's two rows in `out`; a lane holds pairs of columns.
template <int SIZE, int N> FN void store_pairs(
    T *to, const float (&out)[N][4], int r, float factor, int lane)
{
#pragma unroll
  for (int n = 0; n < N; n++) {
    const int d = n * 8 + lane % 4 * 2;
    lanes<T, 2> two;
#pragma unroll
    for (int i = 0; i < 2; i++) set(two.at[i], out[n][2 * r + i] * factor);
    if (SIZE % 2 == 0) {
      if (d < SIZE) *(lanes<T, 2> *)(to + d) = two;
      continue;
    }
    if (d < SIZE) to[d] = two.at[0];
    if (d + 1 < SIZE) to[d + 1] = two.at[1];
  }
}

// Computes the same as attend, on tensor cores. logsum may be NULL.
extern "C" __global__ void __launch_bounds__(TENSOR_THREADS) attend_tensor(T *y, C *logsum,
    const T *q, const T *k, const T *v, const struct tile_extra __grid_constant__ x,
    const struct tile_args __grid_constant__ s)
{
  enum { BRAIN = is_brain<T>::value, WIDE = UP_TO_16(D), OUT = PADDED(DV) };
  __shared__ __align__(16) u16 keys[TENSOR_COLUMNS * HALF_STRIDE(WIDE)];
  __shared__ __align__(16) u16 values[TENSOR_COLUMNS * HALF_STRIDE(OUT)];
  const tile_block b = block_of((s.tq + TENSOR_ROWS - 1) / TENSOR_ROWS, s.heads);
  const i64 q0 = b.first * TENSOR_ROWS, kv = b.head / s.group, left = s.tq - q0;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, own = threadIdx.x / 32 * 16 + g;
  const tile_span all = span_of(
      s, x, b.sample, q0, q0 + (left < TENSOR_ROWS ? left : TENSOR_ROWS) - 1);
  const bool grids = x.mask || x.bias;
  tile_span see[2];
  float most[2] = { -infinity<float>(), -infinity<float>() }, sum[2] = { 0, 0 };
  float out[OUT / 8][4] = {};
  u32 query[WIDE / 16][4];
  load_halves<D, WIDE, TENSOR_ROWS>(keys, q + start_of(s.q, b.sample, b.head, q0), s.q.row, left);
  __syncthreads();
#pragma unroll
  for (int c = 0; c < WIDE / 16; c++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      query[c][i] = word_at(
          keys + (own + i % 2 * 8) * HALF_STRIDE(WIDE) + c * 16 + i / 2 * 8 + 2 * t);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const i64 row = q0 + own + r * 8;
    see[r] = span_of(s, x, b.sample, row, row);
    if (row >= s.tq) see[r].hi = see[r].lo;
  }
  for (i64 k0 = all.lo; k0 < all.hi; k0 += TENSOR_COLUMNS) {
    __syncthreads();
    load_halves<D, WIDE, TENSOR_COLUMNS>(
        keys, k + start_of(s.k, b.sample, kv, k0), s.k.row, all.hi - k0);
    const bool seen_wild = load_halves<DV, OUT, TENSOR_COLUMNS>(
        values, v + start_of(s.v, b.sample, kv, k0), s.v.row, all.hi - k0);
    const bool wild = __syncthreads_or(seen_wild);
    float score[TENSOR_COLUMNS / 8][4] = {};
#pragma unroll
    for (int j = 0; j < TENSOR_COLUMNS / 8; j++)
#pragma unroll
      for (int c = 0; c < WIDE / 16; c++) {
        const u16 *of = keys + (j * 8 + g) * HALF_STRIDE(WIDE) + c * 16 + 2 * t;
        multiply_tile<BRAIN>(score[j], query[c], word_at(of), word_at(of + 8));
      }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float greatest = most[r];
#pragma unroll
      for (int j = 0; j < TENSOR_COLUMNS / 8; j++)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; i++) {
          const i64 row = q0 + own + r * 8, key = k0 + j * 8 + 2 * t + i % 2;
          const bool seen = key >= see[r].lo && key < see[r].hi;
          score[j][i] = !seen ? -infinity<float>()
              : grids ? (float)score_of(s, x, see[r], b.sample, b.head, row, key, score[j][i])
                      : score[j][i] * (float)s.scale;
          greatest = score[j][i] > greatest ? score[j][i] : greatest;
        }
#pragma unroll
      for (int n = 1; n < 4; n *= 2)
        greatest = join_max()(greatest, __shfl_xor_sync(~0u, greatest, n));
      const float shift = greatest == -infinity<float>() ? 0 : greatest;
      const float shrink = most[r] == greatest ? 1 : exp_of(most[r] - greatest);
      most[r] = greatest;
      sum[r] *= shrink;
#pragma unroll
      for (int j = 0; j < TENSOR_COLUMNS / 8; j++)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; i++) {
          const i64 row = q0 + own + r * 8, key = k0 + j * 8 + 2 * t + i % 2;
          const float weight = exp_of(score[j][i] - shift);
          sum[r] += weight;
          score[j][i] = weight == 0 ? 0
              : weight * (float)factor_of(s, b.sample, b.head, row, key);
        }
#pragma unroll
      for (int n = 0; n < OUT / 8; n++)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; i++) out[n][i] *= shrink;
    }
    add_products<OUT, TENSOR_COLUMNS>(out, score, values, lane, wild);
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const i64 row = q0 + own + r * 8;
#pragma unroll
    for (int n = 1; n < 4; n *= 2) sum[r] += __shfl_xor_sync(~0u, sum[r], n);
    if (row >= s.tq) continue;
    T *to = y + start_of(s.y, b.sample, b.head, row);
#pragma unroll
    for (int n = 0; n < OUT / 8; n++) {
      const int d = n * 8 + 2 * t;
      lanes<T, 2> two;
#pragma unroll
      for (int i = 0; i < 2; i++)
        set(two.at[i], sum[r] == 0 ? (float)s.empty : out[n][2 * r + i] / sum[r]);
      if (DV % 2 == 0) {
        if (d < DV) *(lanes<T, 2> *)(to + d) = two;
        continue;
      }
      if (d < DV) to[d] = two.at[0];
      if (d + 1 < DV) to[d + 1] = two.at[1];
    }
    if (!t && logsum)
      store_logsum(logsum, s, (b.sample * s.heads + b.head) * s.tq + row, most[r], sum[r]);
  }
}

// -- gradients ------------------------------------------------------------------------------------

// Returns the gradient of a score, weight (factor dy v - gap); 0 if the weight is 0.
FN C score_gradient(C weight, C product, C factor, C gap)
{
  return weight == 0 ? 0 : weight * (product * factor - gap);
}

// Computes dq, which may be NULL, and `gaps`, the sum of dy y of each query.
extern "C" __global__ void attend_back_queries(T *dq, C *gaps, const T *dy, const T *y,
    const C *logsum, const T *q, const T *k, const T *v,
    const struct tile_extra __grid_constant__ x, const struct tile_args __grid_constant__ s)
{
  __shared__ C queries[ROWS * STRIDE(KEY)], keys[COLUMNS * STRIDE(KEY)];
  __shared__ C heads[ROWS * STRIDE(VALUE)], values[COLUMNS * STRIDE(VALUE)];
  __shared__ C slopes[32 * (SHARE + 1)];
  const tile_block b = block_of((s.tq + ROWS - 1) / ROWS, s.heads);
  const i64 q0 = b.first * ROWS, kv = b.head / s.group;
  const tile_thread me = thread_of();
  const i64 query = q0 + me.row, left = s.tq - q0, last = (left < ROWS ? left : ROWS) - 1;
  const i64 number = (b.sample * s.heads + b.head) * s.tq + query;
  const tile_span all = span_of(s, x, b.sample, q0, q0 + last);
  const tile_span see = span_of(s, x, b.sample, query, query);
  C *own = slopes + threadIdx.x / 8 * (SHARE + 1), gap = 0;
  const C total = query < s.tq ? logsum[number] : infinity<C>();
  const C rest = query < s.tq ? rest_of(logsum, s, number) : 0;
  W out[HELD_PACKS(KEY)] = {};
  load_tile<D, ROWS>(queries, q + start_of(s.q, b.sample, b.head, q0), s.q.row, left);
  load_tile<DV, ROWS>(heads, dy + start_of(s.dy, b.sample, b.head, q0), s.dy.row, left);
  __syncthreads();
  if (query < s.tq) {
    const T *of = y + start_of(s.y, b.sample, b.head, query);
    for (int d = me.lane; d < DV; d += 8)
      gap += heads[me.row * STRIDE(VALUE) + d] * get<C>(of[d]);
  }
  gap = join_eight(gap, join_sum());
  if (query < s.tq && !me.lane && !me.slice) gaps[number] = gap;
  if (!dq) return;
  for (i64 k0 = all.lo; k0 < all.hi; k0 += COLUMNS) {
    __syncthreads();
    load_tile<D, COLUMNS>(keys, k + start_of(s.k, b.sample, kv, k0), s.k.row, all.hi - k0);
    load_tile<DV, COLUMNS>(values, v + start_of(s.v, b.sample, kv, k0), s.v.row, all.hi - k0);
    __syncthreads();
    const int first = me.slice * SHARE;
    C score[EACH_SHARE], product[EACH_SHARE];
    products<KEY>(score, queries + me.row * STRIDE(KEY), keys + (first + me.lane) * STRIDE(KEY));
    products<VALUE>(
        product, heads + me.row * STRIDE(VALUE), values + (first + me.lane) * STRIDE(VALUE));
    for (int i = 0; i < EACH_SHARE; i++) {
      const i64 key = k0 + first + i * 8 + me.lane;
      const C scored = query < s.tq
          ? score_of(s, x, see, b.sample, b.head, query, key, score[i]) : -infinity<C>();
      const C factor = factor_of(s, b.sample, b.head, query, key);
      own[i * 8 + me.lane] =
          score_gradient(exp_of(scored - total - rest), product[i], factor, gap);
    }
    __syncwarp();
    for (int j = 0; j < SHARE; j++)
      if (own[j] != 0) add_row<KEY>(out, own[j], keys + (first + j) * STRIDE(KEY), me.lane);
    __syncwarp();
  }
  join_slices<KEY>(out, keys, me);
  if (query < s.tq && !me.slice)
    store_row<KEY>(dq + start_of(s.dq, b.sample, b.head, query), out, (C)s.scale, D, me.lane);
}

// Computes dk and dv, each of which may be NULL. Rows are keys, columns the queries of all heads
// that read them.
extern "C" __global__ void attend_back_keys(T *dk, T *dv, const C *gaps, const T *dy,
    const C *logsum, const T *q, const T *k, const T *v,
    const struct tile_extra __grid_constant__ x, const struct tile_args __grid_constant__ s)
{
  __shared__ C queries[COLUMNS * STRIDE(KEY)], keys[ROWS * STRIDE(KEY)];
  __shared__ C heads[COLUMNS * STRIDE(VALUE)], values[ROWS * STRIDE(VALUE)];
  __shared__ C slopes[32 * (SHARE + 1)], weights[32 * (SHARE + 1)];
  const tile_block b = block_of((s.tk + ROWS - 1) / ROWS, s.heads / s.group);
  const i64 k0 = b.first * ROWS;
  const tile_thread me = thread_of();
  const i64 key = k0 + me.row;
  C *slope = slopes + threadIdx.x / 8 * (SHARE + 1);
  C *kept = weights + threadIdx.x / 8 * (SHARE + 1);
  W of_key[HELD_PACKS(KEY)] = {}, of_value[HELD_PACKS(VALUE)] = {};
  load_tile<D, ROWS>(keys, k + start_of(s.k, b.sample, b.head, k0), s.k.row, s.tk - k0);
  load_tile<DV, ROWS>(values, v + start_of(s.v, b.sample, b.head, k0), s.v.row, s.tk - k0);
  for (i64 head = b.head * s.group; head < (b.head + 1) * s.group; head++)
    for (i64 q0 = 0; q0 < s.tq; q0 += COLUMNS) {
      const i64 left = s.tq - q0;
      const tile_span all =
          span_of(s, x, b.sample, q0, q0 + (left < COLUMNS ? left : COLUMNS) - 1);
      if (all.lo >= k0 + ROWS || all.hi <= k0) continue; // uniform in the block
      __syncthreads();
      load_tile<D, COLUMNS>(queries, q + start_of(s.q, b.sample, head, q0), s.q.row, left);
      load_tile<DV, COLUMNS>(heads, dy + start_of(s.dy, b.sample, head, q0), s.dy.row, left);
      __syncthreads();
      const int first = me.slice * SHARE;
      C score[EACH_SHARE], product[EACH_SHARE];
      products<KEY>(score, keys + me.row * STRIDE(KEY), queries + (first + me.lane) * STRIDE(KEY));
      products<VALUE>(
          product, values + me.row * STRIDE(VALUE), heads + (first + me.lane) * STRIDE(VALUE));
      for (int i = 0; i < EACH_SHARE; i++) {
        const i64 query = q0 + first + i * 8 + me.lane;
        const i64 number = (b.sample * s.heads + head) * s.tq + query;
        C weight = 0, factor = 1, gap = 0;
        if (query < s.tq && key < s.tk) {
          const tile_span see = span_of(s, x, b.sample, query, query);
          weight = exp_of(score_of(s, x, see, b.sample, head, query, key, score[i]) -
              logsum[number] - rest_of(logsum, s, number));
          factor = factor_of(s, b.sample, head, query, key);
          gap = gaps[number];
        }
        slope[i * 8 + me.lane] = score_gradient(weight, product[i], factor, gap);
        kept[i * 8 + me.lane] = weight * factor;
      }
      __syncwarp();
      for (int j = 0; j < SHARE; j++) {
        if (slope[j] != 0)
          add_row<KEY>(of_key, slope[j], queries + (first + j) * STRIDE(KEY), me.lane);
        if (kept[j] != 0)
          add_row<VALUE>(of_value, kept[j], heads + (first + j) * STRIDE(VALUE), me.lane);
      }
      __syncwarp();
    }
  join_slices<KEY>(of_key, queries, me);
  join_slices<VALUE>(of_value, heads, me);
  if (key >= s.tk || me.slice) return;
  if (dk)
    store_row<KEY>(dk + start_of(s.dk, b.sample, b.head, key), of_key, (C)s.scale, D, me.lane);
  if (dv) store_row<VALUE>(dv + start_of(s.dv, b.sample, b.head, key), of_value, 1, DV, me.lane);
}

// -- gradients on tensor cores --------------------------------------------------------------------

#define SLOPE_COLUMNS 32                           // keys of a tile of attend_back_queries_tensor
// queries of a tile of attend_back_keys_tensor, so that a block needs at most 48 KiB
#define QUERY_COLUMNS (UP_TO_16(D) + UP_TO_16(DV) > 192 ? 16 : 32)
#define WIDEST_UNIT 0x7e800000u                    // 2^126

// Multiplies row r of a part of the left factor by `unit`, a power of two, so that even tiny
// numbers are representable in f16. unit is at first the greatest power (WIDEST_UNIT). When a
// product would reach 2^15, unit shrinks so that the greatest one is at least 2^14, and the sums so
// far are scaled by the same factor. bf16 needs none of this.
template <int N, int WIDE> FN void fit_row(float (&part)[N / 8][4], float (&sums)[WIDE / 8][4],
    float &unit, int r)
{
  if (is_brain<T>::value) return;
  const float LIMIT = 32768;                       // 2^15; the greatest f16 is below 2^16
  float most = 0;
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int i = 2 * r; i < 2 * r + 2; i++) most = join_max()(most, fabsf(part[j][i]));
#pragma unroll
  for (int n = 1; n < 4; n *= 2) most = join_max()(most, __shfl_xor_sync(~0u, most, n));
  if (most * unit >= LIMIT) {
    // numbers with biased exponents e and 268 - e (bias 127) have a product of at least 2^14
    const float now = __uint_as_float((268 - (__float_as_uint(most) >> 23)) << 23);
    const float shrink = now / unit;
#pragma unroll
    for (int n = 0; n < WIDE / 8; n++)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; i++) sums[n][i] *= shrink;
    unit = now;
  }
#pragma unroll
  for (int j = 0; j < N / 8; j++)
#pragma unroll
    for (int i = 2 * r; i < 2 * r + 2; i++) part[j][i] *= unit;
}

FN float first_unit() { return is_brain<T>::value ? 1 : __uint_as_float(WIDEST_UNIT); }

// Returns the same as score_of; faster if there is neither mask nor bias.
FN float tile_score(const tile_args &s, const tile_extra &x, const tile_span &see, i64 sample,
    i64 head, i64 query, i64 key, float product)
{
  if (x.mask || x.bias) return score_of(s, x, see, sample, head, query, key, product);
  return key >= see.lo && key < see.hi ? product * (float)s.scale : -infinity<float>();
}

// Computes the same as attend_back_queries, over tiles of TENSOR_ROWS queries.
extern "C" __global__ void __launch_bounds__(TENSOR_THREADS) attend_back_queries_tensor(T *dq,
    C *gaps, const T *dy, const T *y, const C *logsum, const T *q, const T *k, const T *v,
    const struct tile_extra __grid_constant__ x, const struct tile_args __grid_constant__ s)
{
  enum { WIDE = UP_TO_16(D), OUT = UP_TO_16(DV), N = SLOPE_COLUMNS };
  __shared__ __align__(16) u16 keys[TENSOR_ROWS * HALF_STRIDE(WIDE)];
  __shared__ __align__(16) u16 values[TENSOR_ROWS * HALF_STRIDE(OUT)];
  __shared__ float gap_of[TENSOR_ROWS];
  const tile_block b = block_of((s.tq + TENSOR_ROWS - 1) / TENSOR_ROWS, s.heads);
  const i64 q0 = b.first * TENSOR_ROWS, kv = b.head / s.group, left = s.tq - q0;
  const i64 number = (b.sample * s.heads + b.head) * s.tq + q0;
  const int lane = threadIdx.x % 32, t = lane % 4, warp = threadIdx.x / 32 * 16;
  const int own = warp + lane / 4;
  load_halves<D, WIDE, TENSOR_ROWS>(keys, q + start_of(s.q, b.sample, b.head, q0), s.q.row, left);
  load_halves<DV, OUT, TENSOR_ROWS>(
      values, dy + start_of(s.dy, b.sample, b.head, q0), s.dy.row, left);
  __syncthreads();
  { // two neighbouring threads per query
    typedef lanes<T, PACK> L;
    const int row = threadIdx.x / 2;
    const T *of = y + start_of(s.y, b.sample, b.head, q0 + row);
    const T *head = (const T *)(values + row * HALF_STRIDE(OUT));
    float gap = 0;
    for (int d = threadIdx.x % 2 * PACK; row < left && d < DV; d += 2 * PACK) {
      const L one = *(const L *)(of + d), other = *(const L *)(head + d);
      for (int l = 0; l < PACK; l++) gap += get<float>(one.at[l]) * get<float>(other.at[l]);
    }
    gap += __shfl_xor_sync(~0u, gap, 1);
    if (threadIdx.x % 2 == 0) gap_of[row] = gap;
    if (threadIdx.x % 2 == 0 && row < left) gaps[number + row] = gap;
  }
  if (!dq) return;
  u32 query[WIDE / 16][4], head[OUT / 16][4];
#pragma unroll
  for (int c = 0; c < WIDE / 16; c++) load_left<WIDE>(query[c], keys, warp, c * 16, lane);
#pragma unroll
  for (int c = 0; c < OUT / 16; c++) load_left<OUT>(head[c], values, warp, c * 16, lane);
  __syncthreads();
  tile_span see[2];
  float total[2], rest[2], gap[2], unit[2] = { first_unit(), first_unit() };
  float out[WIDE / 8][4] = {};
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = own + r * 8;
    see[r] = span_of(s, x, b.sample, q0 + row, q0 + row);
    if (row >= left) see[r].hi = see[r].lo;
    total[r] = row < left ? logsum[number + row] : infinity<float>();
    rest[r] = row < left ? rest_of(logsum, s, number + row) : 0;
    gap[r] = gap_of[row];
  }
  const tile_span all = span_of(
      s, x, b.sample, q0, q0 + (left < TENSOR_ROWS ? left : TENSOR_ROWS) - 1);
  for (i64 k0 = all.lo; k0 < all.hi; k0 += N) {
    __syncthreads();
    const bool seen_wild = load_halves<D, WIDE, N>(
        keys, k + start_of(s.k, b.sample, kv, k0), s.k.row, all.hi - k0);
    load_halves<DV, OUT, N>(values, v + start_of(s.v, b.sample, kv, k0), s.v.row, all.hi - k0);
    const bool wild = __syncthreads_or(seen_wild);
    float slope[N / 8][4] = {}, product[N / 8][4] = {};
#pragma unroll
    for (int c = 0; c < WIDE / 16; c++) add_dots<WIDE, N>(slope, query[c], keys, c * 16, lane);
#pragma unroll
    for (int c = 0; c < OUT / 16; c++) add_dots<OUT, N>(product, head[c], values, c * 16, lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const i64 row = q0 + own + r * 8;
#pragma unroll
      for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; i++) {
          const i64 key = k0 + j * 8 + 2 * t + i % 2;
          const float scored = tile_score(
              s, x, see[r], b.sample, b.head, row, key, slope[j][i]);
          const float factor = factor_of(s, b.sample, b.head, row, key);
          slope[j][i] =
              score_gradient(exp_of(scored - total[r] - rest[r]), product[j][i], factor, gap[r]);
        }
      fit_row<N, WIDE>(slope, out, unit[r], r);
    }
    add_products<WIDE, N>(out, slope, keys, lane, wild);
  }
#pragma unroll
  for (int r = 0; r < 2; r++)
    if (const int row = own + r * 8; row < left)
      store_pairs<D>(dq + start_of(s.dq, b.sample, b.head, q0 + row), out, r,
          (float)s.scale / unit[r], lane);
}

// Computes the same as attend_back_keys, over tiles of TENSOR_ROWS keys.
extern "C" __global__ void __launch_bounds__(TENSOR_THREADS) attend_back_keys_tensor(T *dk, T *dv,
    const C *gaps, const T *dy, const C *logsum, const T *q, const T *k, const T *v,
    const struct tile_extra __grid_constant__ x, const struct tile_args __grid_constant__ s)
{
  enum { WIDE = UP_TO_16(D), OUT = UP_TO_16(DV), N = QUERY_COLUMNS };
  __shared__ __align__(16) u16 keys[TENSOR_ROWS * HALF_STRIDE(WIDE)];
  __shared__ __align__(16) u16 values[TENSOR_ROWS * HALF_STRIDE(OUT)];
  __shared__ __align__(16) u16 queries[N * HALF_STRIDE(WIDE)], heads[N * HALF_STRIDE(OUT)];
  __shared__ tile_span see[N];
  __shared__ float totals[N], rests[N], gap_of[N];
  const tile_block b = block_of((s.tk + TENSOR_ROWS - 1) / TENSOR_ROWS, s.heads / s.group);
  const i64 k0 = b.first * TENSOR_ROWS, last = s.tk - k0;
  const int lane = threadIdx.x % 32, t = lane % 4, warp = threadIdx.x / 32 * 16;
  const int own = warp + lane / 4;
  float of_key[WIDE / 8][4] = {}, of_value[OUT / 8][4] = {};
  float key_unit[2] = { first_unit(), first_unit() };
  float value_unit[2] = { first_unit(), first_unit() };
  load_halves<D, WIDE, TENSOR_ROWS>(keys, k + start_of(s.k, b.sample, b.head, k0), s.k.row, last);
  load_halves<DV, OUT, TENSOR_ROWS>(
      values, v + start_of(s.v, b.sample, b.head, k0), s.v.row, last);
  for (i64 head = b.head * s.group; head < (b.head + 1) * s.group; head++)
    for (i64 q0 = 0; q0 < s.tq; q0 += N) {
      const i64 left = s.tq - q0, number = (b.sample * s.heads + head) * s.tq + q0;
      const tile_span all = span_of(s, x, b.sample, q0, q0 + (left < N ? left : N) - 1);
      if (all.lo >= k0 + TENSOR_ROWS || all.hi <= k0) continue; // uniform in the block
      __syncthreads();
      const bool wild_query = load_halves<D, WIDE, N>(
          queries, q + start_of(s.q, b.sample, head, q0), s.q.row, left);
      const bool wild_head = load_halves<DV, OUT, N>(
          heads, dy + start_of(s.dy, b.sample, head, q0), s.dy.row, left);
      if (const int n = threadIdx.x; n < N) {
        see[n] = span_of(s, x, b.sample, q0 + n, q0 + n);
        if (n >= left) see[n].hi = see[n].lo;
        totals[n] = n < left ? logsum[number + n] : infinity<float>();
        rests[n] = n < left ? rest_of(logsum, s, number + n) : 0;
        gap_of[n] = n < left ? gaps[number + n] : 0;
      }
      const bool wild = __syncthreads_or(wild_query || wild_head);
      float slope[N / 8][4] = {}, weight[N / 8][4] = {};
#pragma unroll
      for (int c = 0; c < WIDE; c += 16) {
        u32 key[4];
        load_left<WIDE>(key, keys, warp, c, lane);
        add_dots<WIDE, N>(weight, key, queries, c, lane);
      }
#pragma unroll
      for (int c = 0; c < OUT; c += 16) {
        u32 value[4];
        load_left<OUT>(value, values, warp, c, lane);
        add_dots<OUT, N>(slope, value, heads, c, lane);
      }
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const i64 key = k0 + own + r * 8;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; i++) {
            const int n = j * 8 + 2 * t + i % 2;
            const float scored = tile_score(
                s, x, see[n], b.sample, head, q0 + n, key, weight[j][i]);
            const float factor = factor_of(s, b.sample, head, q0 + n, key);
            const float all_of = exp_of(scored - totals[n] - rests[n]);
            slope[j][i] = score_gradient(all_of, slope[j][i], factor, gap_of[n]);
            weight[j][i] = all_of * factor;
          }
        fit_row<N, WIDE>(slope, of_key, key_unit[r], r);
        fit_row<N, OUT>(weight, of_value, value_unit[r], r);
      }
      add_products<WIDE, N>(of_key, slope, queries, lane, wild);
      add_products<OUT, N>(of_value, weight, heads, lane, wild);
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = own + r * 8;
    if (row >= last) continue;
    if (dk)
      store_pairs<D>(dk + start_of(s.dk, b.sample, b.head, k0 + row), of_key, r,
          (float)s.scale / key_unit[r], lane);
    if (dv)
      store_pairs<DV>(dv + start_of(s.dv, b.sample, b.head, k0 + row), of_value, r,
          1 / value_unit[r], lane);
  }
}
