// rows.cu - elements and rows selected by indices: take, Embedding, pick, one_hot, gather_nd and
// others, with their gradients; where. Indices I are truncated, and clipped (or taken modulo the
// size); indices that must be in range are checked first, and errors are reported to the host.
// Copies move bits of type UNIT. Method: one thread per element that is written. Bound: bytes.
// Gradients of rows that occur several times: keys are sorted first (sort.cu), so that rows with
// the same target are neighbours. Teams add equal chunks of the sorted rows; if several chunks have
// rows of a target, each stores its sum, and one team adds these sums in order. So the order of all
// additions depends only on the indices. Bound: bytes, and the sort.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define I float
#define COORDINATES 2
#define TEAM 32
#include "team.cuh"
#include "keys.cuh"
#include "fault.cuh"
#endif
#ifndef T
#define T float       // elements that are added
#endif
#ifndef WRAP
#define WRAP 0
#endif
#ifndef ADD
#define ADD 0         // 1: adds to the elements of the result
#endif
#ifndef COORDINATES
#define COORDINATES 1
#endif
#ifndef PACK
#define PACK 1        // elements of a load
#endif

// Returns x truncated. Numbers out of the range of i64 become its nearest end, NaN the least
// number.
template <typename N> FN i64 whole(N x)
{
  typedef typename own_precision<N>::type S;
  const double limit = 4611686018427387904.0;
  S v = get<S>(x);
  if ((S)0.5 == 0) return (i64)v;
  return (double)v >= limit ? highest(i64()) : (double)v > -limit ? (i64)v : lowest(i64());
}

FN i64 clipped(i64 j, i64 n) { return j < 0 ? 0 : j >= n ? n - 1 : j; }

FN i64 index_within(I x, i64 n)
{
  i64 j = whole(x);
  if (!WRAP) return clipped(j, n);
  j %= n;
  return j < 0 ? j + n : j;
}

extern "C" __global__ void check_range(
    device_fault *fault, i64 op, const I *index, i64 n, i64 low, i64 high, i32 axis)
{
  EACH(i, n)
  {
    i64 j = whole(index[i]);
    if (j < low || j >= high) report_index(fault, op, j, i, low, high, axis);
  }
}

// -- rows of an axis: arrays (outer, k, row) and (outer, count, row) ------------------------------

extern "C" __global__ void take_rows(
    UNIT *y, const UNIT *a, const I *index, i64 n, i64 count, i64 k, i64 row)
{
  EACH(i, n)
  {
    INDEX u = (INDEX)i / (INDEX)row, at = (INDEX)i % (INDEX)row;
    INDEX o = u / (INDEX)count, j = u % (INDEX)count;
    y[i] = a[((i64)o * k + index_within(index[j], k)) * row + at];
  }
}

// Writes the keys of n rows, unsorted: key = the row's target, index = the row.
template <typename P> FN void list_targets(sort_key *keys, i64 n, const P &at)
{
  EACH(i, n) keys[i] = { (u64)at(i), i };
}

FN bool begins_target(const sort_key *keys, i64 p) { return !p || keys[p - 1].key != keys[p].key; }
FN bool ends_target(const sort_key *keys, i64 p, i64 n)
{
  return p == n - 1 || keys[p + 1].key != keys[p].key;
}

typedef own_precision<T>::type S;

struct chunk_args { i64 n, row, chunk, chunks; };    // n: keys; row: elements; chunk: keys of one

FN void add_to(T *a, u64 target, i64 row, i64 x, const S (&sum)[PACK])
{
  lanes<T, PACK> *at = (lanes<T, PACK> *)&a[(i64)target * row + x], to;
  if (ADD) to = *at;
  for (int i = 0; i < PACK; i++) set(to.at[i], ADD ? get<S>(to.at[i]) + sum[i] : sum[i]);
  *at = to;
}

// Adds the rows of chunk c to their targets. part (2, chunks, row): part[0][c] receives the sum of
// the chunk's first target if the previous chunk has rows of it; part[1][c] that of its last target
// if the next chunk has rows of it but the previous one has none.
FN void add_chunk(T *a, const T *y, S *part, const sort_key *keys, i64 c, const chunk_args &s)
{
  const i64 begin = c * s.chunk, end = begin + s.chunk < s.n ? begin + s.chunk : s.n;
  for (i64 p = begin; p < end;) {
    const u64 target = keys[p].key;
    i64 q = p;
    while (q < end && keys[q].key == target) q++;
    const bool later = q == end && q < s.n && keys[q].key == target;
    const bool earlier = p == begin && p > 0 && keys[p - 1].key == target;
    for (i64 x = threadIdx.x % TEAM * PACK; x < s.row; x += TEAM * PACK) {
      S sum[PACK] = {};
      for (i64 r = p; r < q; r++) {
        const lanes<T, PACK> v = *(const lanes<T, PACK> *)&y[keys[r].index * s.row + x];
        for (int i = 0; i < PACK; i++) sum[i] += get<S>(v.at[i]);
      }
      if (!earlier && !later) {
        add_to(a, target, s.row, x, sum);
        continue;
      }
      S *own = part + ((earlier ? 0 : s.chunks) + c) * s.row + x;
      for (int i = 0; i < PACK; i++) own[i] = sum[i];
    }
    p = q;
  }
}

// Adds up the sums of a target whose rows begin in chunk c and continue in later ones.
FN void join_chunks(T *a, const S *part, const sort_key *keys, i64 c, const chunk_args &s)
{
  const i64 end = (c + 1) * s.chunk, begin = c * s.chunk;
  if (end >= s.n || keys[end - 1].key != keys[end].key) return;
  const u64 target = keys[end].key;
  if (begin > 0 && keys[begin - 1].key == target) return;
  i64 last = c + 1;
  while ((last + 1) * s.chunk < s.n && keys[(last + 1) * s.chunk].key == target) last++;
  for (i64 x = threadIdx.x % TEAM * PACK; x < s.row; x += TEAM * PACK) {
    S sum[PACK];
    for (int i = 0; i < PACK; i++) sum[i] = part[(s.chunks + c) * s.row + x + i];
    for (i64 d = c + 1; d <= last; d++)
      for (int i = 0; i < PACK; i++) sum[i] += part[d * s.row + x + i];
    add_to(a, target, s.row, x, sum);
  }
}

struct index_on_axis {
  const I *index;
  i64 k;
  FN_IN_STRUCT i64 operator()(i64 p) const { return index_within(index[p], k); }
};

extern "C" __global__ void list_rows(sort_key *keys, const I *index, i64 n, i64 k)
{
  list_targets(keys, n, index_on_axis{ index, k });
}

// Adds the rows of `outer` arrays. part: as in add_chunk, one per array.
extern "C" __global__ void add_rows(T *a, const T *y, S *part, const sort_key *keys, i64 outer,
    i64 k, const struct chunk_args __grid_constant__ s)
{
  EACH_ROW(u, outer * s.chunks)
  {
    const i64 o = u / s.chunks;
    add_chunk(a + o * k * s.row, y + o * s.n * s.row, part + o * 2 * s.chunks * s.row, keys,
        u % s.chunks, s);
  }
}

extern "C" __global__ void join_rows(T *a, const S *part, const sort_key *keys, i64 outer, i64 k,
    const struct chunk_args __grid_constant__ s)
{
  EACH_ROW(u, outer * s.chunks)
  {
    const i64 o = u / s.chunks;
    join_chunks(
        a + o * k * s.row, part + o * 2 * s.chunks * s.row, keys, u % s.chunks, s);
  }
}

// -- one element of each line of k elements, `inner` apart ----------------------------------------

FN i64 picked(const I *index, i64 u, i64 k, i64 inner)
{
  return (u / inner * k + index_within(index[u], k)) * inner + u % inner;
}
extern "C" __global__ void pick(
    UNIT *y, const UNIT *x, const I *index, i64 n, i64 k, i64 inner)
{
  EACH(u, n) y[u] = x[picked(index, u, k, inner)];
}
extern "C" __global__ void pick_back(
    UNIT *dx, const UNIT *dy, const I *index, i64 n, i64 k, i64 inner)
{
  EACH(u, n) dx[picked(index, u, k, inner)] = dy[u];
}

// Sets element index[u] of each row of k elements, if it exists, to from[u], or to `on` if `from`
// is NULL.
extern "C" __global__ void put_in_rows(
    UNIT *y, const I *index, i64 n, i64 k, const UNIT *from, u64 on)
{
  EACH(u, n)
  {
    i64 j = whole(index[u]);
    if (j >= 0 && j < k) y[u * k + j] = from ? from[u] : (UNIT)on;
  }
}

// -- rows at coordinates: index (COORDINATES, n) --------------------------------------------------

struct coordinates { i64 n, row, size[COORDINATES]; };

struct row_in_array {
  const I *index;
  const struct coordinates &s;
  FN_IN_STRUCT i64 operator()(i64 i) const
  {
    i64 at = 0;
    for (int k = 0; k < COORDINATES; k++) {
      i64 j = whole(index[k * s.n + i]);
      at = at * s.size[k] + clipped(j < 0 ? j + s.size[k] : j, s.size[k]);
    }
    return at;
  }
};

extern "C" __global__ void gather_at(UNIT *rows, const UNIT *array, const I *index,
    const struct coordinates __grid_constant__ s)
{
  const row_in_array at = { index, s };
  EACH(i, s.n * s.row) rows[i] = array[at(i / s.row) * s.row + i % s.row];
}

extern "C" __global__ void list_coordinates(
    sort_key *keys, const I *index, const struct coordinates __grid_constant__ s)
{
  list_targets(keys, s.n, row_in_array{ index, s });
}

// Stores in each target the last row with that target; zeros if `rows` is NULL.
extern "C" __global__ void set_at(UNIT *array, const UNIT *rows, const sort_key *keys,
    const struct coordinates __grid_constant__ s)
{
  EACH_ROW(p, s.n)
  {
    if (!ends_target(keys, p, s.n)) continue;
    UNIT *to = array + (i64)keys[p].key * s.row;
    EACH_OF_TEAM(x, 0, s.row) to[x] = rows ? rows[keys[p].index * s.row + x] : UNIT();
  }
}

// -- rows of a matrix that are in a list ----------------------------------------------------------

// Copies the rows of x that are in the list to the same rows of y; the caller has set y to 0. Skips
// indices outside 0 .. rows - 1, which check_range has reported.
extern "C" __global__ void keep_rows(
    UNIT *y, const UNIT *x, const I *index, i64 n, i64 row, i64 rows)
{
  EACH(i, n * row)
  {
    i64 j = whole(index[i / row]), at = j * row + i % row;
    if (j >= 0 && j < rows) y[at] = x[at];
  }
}

// -- positions as one number, or as one row of coordinates per axis -------------------------------

struct shape_args { i64 n, axes, size[32]; };

extern "C" __global__ void ravel(
    T *flat, const I *rows, const struct shape_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    u64 at = 0;
    for (i64 k = 0; k < s.axes; k++) at = at * (u64)s.size[k] + (u64)whole(rows[k * s.n + i]);
    set(flat[i], (i64)at);
  }
}

extern "C" __global__ void unravel(
    T *rows, const I *flat, const struct shape_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 left = whole(flat[i]);
    for (i64 k = s.axes - 1; k > 0; k--) {
      set(rows[k * s.n + i], left % s.size[k]);
      left /= s.size[k];
    }
    set(rows[i], left);
  }
}

// -- count sketches: element i of a row is added to element h[i] of `out`, with a sign ------------

extern "C" __global__ void sketch(
    T *y, const T *x, const sort_key *keys, const T *sign, i64 rows, i64 n, i64 out)
{
  EACH(e, rows * n)
  {
    i64 p = e % n, row = e / n;
    if (!begins_target(keys, p)) continue;
    double sum = 0;
    for (i64 q = p; q < n && keys[q].key == keys[p].key; q++)
      sum += get<double>(sign[keys[q].index]) * get<double>(x[row * n + keys[q].index]);
    set(y[row * out + (i64)keys[p].key], sum);
  }
}

extern "C" __global__ void sketch_back(
    T *dx, const T *g, const I *bucket, const T *sign, i64 rows, i64 n, i64 out)
{
  EACH(e, rows * n)
  {
    i64 at = clipped(whole(bucket[e % n]), out);
    set(dx[e], get<double>(sign[e % n]) * get<double>(g[e / n * out + at]));
  }
}

// -- where ----------------------------------------------------------------------------------------

// Writes z = a if the condition of its row holds, else b. A NULL a or b stands for zeros.
extern "C" __global__ void choose(
    UNIT *z, const I *when, const UNIT *a, const UNIT *b, i64 n, i64 row)
{
  EACH(i, n)
  {
    const UNIT *from = get<double>(when[i / row]) != 0 ? a : b;
    z[i] = from ? from[i] : (UNIT)0;
  }
}

// -- rows where a mask is not 0 -------------------------------------------------------------------

// Writes to order[i] how many rows before i are chosen, or -1 if row i is not. Launch it as one
// block.
extern "C" __global__ void number_chosen(i64 *order, const I *mask, i64 n)
{
  __shared__ i64 count[256];
  const i64 each = (n + 255) / 256, begin = threadIdx.x * each;
  const i64 end = begin + each < n ? begin + each : n;
  i64 own = 0, before = 0;
  for (i64 i = begin; i < end; i++) own += get<double>(mask[i]) != 0;
  count[threadIdx.x] = own;
  __syncthreads();
  for (u32 t = 0; t < threadIdx.x; t++) before += count[t];
  for (i64 i = begin; i < end; i++) order[i] = get<double>(mask[i]) != 0 ? before++ : -1;
}

// Copies gradients to the chosen rows and zeros to the others.
extern "C" __global__ void put_chosen(UNIT *dx, const UNIT *g, const i64 *order, i64 n, i64 row)
{
  EACH(i, n)
  {
    i64 from = order[i / row];
    dx[i] = from < 0 ? 0 : g[from * row + i % row];
  }
}
