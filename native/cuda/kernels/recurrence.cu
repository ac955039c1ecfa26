// recurrence.cu - all steps of a recurrent layer in one direction, and their gradients, after the
// product of its inputs. Arrays are as in cells.cu. Method: a block handles SAMPLES samples and all
// units, so that no block waits for another. Shared memory holds the states, and as many rows of
// the weight as fit; the other rows come from the cache at each step. Half types are those of
// arrays and of the weight: states, their gradients and sums are float. Bound: rows from the cache,
// at the rate at which a multiprocessor reads it; for small layers, the latency of a step, which is
// why a thread handles one unit of a sample between the products, not as many as a load holds.
#ifndef T
#include "prelude.cuh"
#define T float
#define MODE 1       // 0 gru, 1 lstm, 2 relu, 3 tanh
#define SAMPLES 1    // of a block
#define THREADS 256
#define PACK 4       // elements of a load of the weight
#include "team.cuh"
#endif
#ifndef MODE
#define MODE 1
#define SAMPLES 1
#define THREADS 256
#define PACK 1
#endif

#define GRU (MODE == 0)
#define LSTM (MODE == 1)
#define GATES (GRU ? 3 : LSTM ? 4 : 1)
#define LANES 8                                    // neighbours that share a row of the weight
#define EACH_UNIT(e) for (int e = threadIdx.x; e < SAMPLES * units; e += THREADS)
#define STATES (PACK * (int)sizeof(A) > 16 ? 16 / (int)sizeof(A) : PACK) // states of a load
typedef own_precision<T>::type A;
typedef lanes<T, PACK> W;
typedef lanes<A, STATES> H;

// Sizes. y_row: distance of the rows of the output and of its gradient. kept: distance of the steps
// of the arrays for backward, gates and then cells (gru: inner products). held: rows of the weight
// in shared memory. begin, end: the steps of a launch. All distances are in elements.
struct recurrence { i64 time, batch, units, y_row, kept, held, reversed, begin, end; };

FN A sigmoid_of(A x) { return 1 / (1 + exp_of(-x)); }
FN A times_plus(A a, A b, A c) { return fma(a, b, c); }

FN i64 time_of(const recurrence &s, i64 step)
{
  return s.reversed ? s.time - 1 - step : step;
}

FN void copy_rows(T *to, const T *from, int count)
{
  for (int i = threadIdx.x * PACK; i < count; i += THREADS * PACK)
    *(W *)(to + i) = *(const W *)(from + i);
}

// Returns the first address that is a multiple of 16 bytes and after `count` elements of the weight
// in shared memory.
FN A *after_rows(char *memory, int count)
{
  return (A *)(memory + (count * (int)sizeof(T) + 15) / 16 * 16);
}

// -- forward --------------------------------------------------------------------------------------

// Writes z[sample][row] for rows first .. end - 1 of the weight: the row times the sample's states.
// w: row `first`.
FN void multiply_rows(A *z, const T *w, int first, int end, int rows, const A *h, int units)
{
  const int lane = threadIdx.x % LANES, own = threadIdx.x % 32 / LANES;
  for (int begin = first + (int)threadIdx.x / 32 * (32 / LANES); begin < end;
       begin += THREADS / LANES) {
    const int row = begin + own;
    A sum[SAMPLES] = {};
    if (row < end)
#pragma unroll 4
      for (int k = lane * PACK; k < units; k += LANES * PACK) {
        const W a = *(const W *)(w + (row - first) * units + k);
        for (int s = 0; s < SAMPLES; s++)
          for (int at = 0; at < PACK; at += STATES) {
            const H b = *(const H *)(h + s * units + k + at);
            for (int p = 0; p < STATES; p++)
              sum[s] = times_plus(get<A>(a.at[at + p]), b.at[p], sum[s]);
          }
      }
    for (int s = 0; s < SAMPLES; s++) {
      for (int n = LANES / 2; n; n /= 2) sum[s] += __shfl_xor_sync(~0u, sum[s], n);
      if (lane == 0 && row < end) z[s * rows + row] = sum[s];
    }
  }
}

struct cell { A h, c, gate[GATES]; };              // c: of gru, the inner product

// Computes a cell from products of the input (x) and of the states (z), both GATES rows of `units`.
FN cell cell_of(const T *x, const A *z, const T *bx, const T *bh, int units, A h0, A c0)
{
  cell v;
#if GRU
  const int k1 = units, k2 = 2 * units;
  const A r = sigmoid_of(get<A>(x[0]) + get<A>(bx[0]) + z[0] + get<A>(bh[0]));
  const A update = sigmoid_of(get<A>(x[k1]) + get<A>(bx[k1]) + z[k1] + get<A>(bh[k1]));
  v.c = z[k2] + get<A>(bh[k2]);
  const A next = tanh_of(get<A>(x[k2]) + get<A>(bx[k2]) + r * v.c);
  v.gate[0] = r, v.gate[1] = update, v.gate[2] = next;
  v.h = (1 - update) * next + update * h0;
#else
  for (int k = 0; k < GATES; k++)
    v.gate[k] = get<A>(x[k * units]) + z[k * units] +
        (get<A>(bx[k * units]) + get<A>(bh[k * units]));
#if LSTM
  for (int k = 0; k < GATES; k++) v.gate[k] = k == 2 ? tanh_of(v.gate[k]) : sigmoid_of(v.gate[k]);
  v.c = v.gate[1] * c0 + v.gate[0] * v.gate[2];
  v.h = v.gate[3] * tanh_of(v.c);
#else
  v.h = MODE == 2 ? (v.gate[0] > 0 ? v.gate[0] : 0) : tanh_of(v.gate[0]);
  v.c = 0;
#endif
#endif
  return v;
}

// Computes steps begin to end - 1 forward. kept, hy and cy may be NULL. carry: passes states and
// cells (2, batch, units) from one launch to the next, in the precision of sums; NULL if there is
// only one launch.
extern "C" __global__ void __launch_bounds__(THREADS) recurrence_forward(T *y, T *hy, T *cy,
    T *kept, const T *pre, const T *w, const T *bx, const T *bh, const T *h0, const T *c0,
    A *carry, const struct recurrence __grid_constant__ s)
{
  extern __shared__ __align__(16) char memory[];
  const int units = (int)s.units, rows = GATES * units, held = (int)s.held;
  const i64 first = (i64)blockIdx.x * SAMPLES;
  T *near = (T *)memory;
  A *h = after_rows(memory, held * units), *c = h + SAMPLES * units;
  A *z = c + (LSTM ? SAMPLES * units : 0);
  copy_rows(near, w, held * units);
  EACH_UNIT(e)
  {
    const i64 at = first * units + e;
    const bool in_batch = first + e / units < s.batch;
    h[e] = !in_batch ? 0 : s.begin ? carry[at] : get<A>(h0[at]);
    if (LSTM) c[e] = !in_batch ? 0 : s.begin ? carry[s.batch * units + at] : get<A>(c0[at]);
  }
  for (i64 step = s.begin; step < s.end; step++) {
    const i64 t = time_of(s, step);
    __syncthreads();
    multiply_rows(z, near, 0, held, rows, h, units);
    multiply_rows(z, w + held * units, held, rows, rows, h, units);
    __syncthreads();
    EACH_UNIT(e)
    {
      const int j = e % units;
      const i64 b = first + e / units, row = t * s.batch + b;
      if (b >= s.batch) break;
      const cell v = cell_of(pre + row * rows + j, z + e / units * rows + j, bx + j, bh + j, units,
          h[e], LSTM ? c[e] : 0);
      h[e] = plain(v.h);
      if (LSTM) c[e] = plain(v.c);
      set(y[row * s.y_row + j], v.h);
      if (!kept) continue;
      T *gate = kept + t * s.kept + b * rows + j;
      for (int k = 0; k < GATES; k++) set(gate[k * units], v.gate[k]);
      if (GRU || LSTM) set(kept[t * s.kept + s.batch * rows + b * units + j], v.c);
    }
  }
  EACH_UNIT(e)
  {
    const i64 at = first * units + e;
    if (first + e / units >= s.batch) break;
    if (s.end < s.time) {
      carry[at] = h[e];
      if (LSTM) carry[s.batch * units + at] = c[e];
      continue;
    }
    if (hy) set(hy[at], h[e]);
    if (LSTM && cy) set(cy[at], c[e]);
  }
}

// -- backward -------------------------------------------------------------------------------------

// Adds rows q, q + slices, ... below end, each times dg[sample][row], to a pack of columns.
FN void add_rows(A (&sum)[SAMPLES][PACK], const T *w, int first, int q, int end, int slices,
    const A *dg, int rows, int units, int column)
{
  // rows whose loads start together; fewer if sums take half of a thread's 64 registers
  enum { ROWS_AHEAD = SAMPLES * PACK > 16 ? 2 : 4 };
#pragma unroll ROWS_AHEAD
  for (int row = first + q; row < end; row += slices) {
    const W a = *(const W *)(w + (row - first) * units + column);
    for (int s = 0; s < SAMPLES; s++)
      for (int p = 0; p < PACK; p++)
        sum[s][p] = times_plus(get<A>(a.at[p]), dg[s * rows + row], sum[s][p]);
  }
}

// Returns the gradient of a sample's state: the sum of the slices' parts, in their order.
FN A join_slices(const A *part, int slices, int units, int e)
{
  A sum = part[e];
  for (int q = 1; q < slices; q++) sum += part[q * SAMPLES * units + e];
  return sum;
}

// Computes the gradients of steps end - 1 to begin. h: the layer's output; NULL (lstm only): it is
// recomputed from gates and cells. before: receives the states before each step (time, batch,
// units). dgh may be dgx; before, dy, dhy, dcy, dhx and dcx may be NULL. carry: as in
// recurrence_forward, for gradients.
extern "C" __global__ void __launch_bounds__(THREADS) recurrence_backward(T *dgx, T *dgh, T *before,
    T *dhx, T *dcx, const T *dy, const T *dhy, const T *dcy, const T *kept, const T *h, const T *w,
    const T *h0, const T *c0, A *carry, const struct recurrence __grid_constant__ s)
{
  extern __shared__ __align__(16) char memory[];
  const int units = (int)s.units, rows = GATES * units, held = (int)s.held, packs = units / PACK;
  const int slices = THREADS / packs, q = threadIdx.x / packs, column = threadIdx.x % packs * PACK;
  const i64 first = (i64)blockIdx.x * SAMPLES;
  T *near = (T *)memory;
  A *part = after_rows(memory, held * units), *dg = part + slices * SAMPLES * units;
  A *dc = dg + SAMPLES * rows, *rest = dc;         // rest: of gru, the part that bypasses the gates
  copy_rows(near, w, held * units);
  EACH_UNIT(e)
  {
    const i64 at = first * units + e;
    const bool in_batch = first + e / units < s.batch;
    const bool resumes = in_batch && s.end < s.time;
    part[e] = resumes ? carry[at] : in_batch && dhy ? get<A>(dhy[at]) : 0;
    for (int i = 1; i < slices; i++) part[i * SAMPLES * units + e] = 0;
    if (GRU || LSTM)
      dc[e] = resumes ? carry[s.batch * units + at]
          : LSTM && in_batch && dcy ? get<A>(dcy[at]) : 0;
    if (!in_batch)
      for (int k = 0; k < GATES; k++) dg[e / units * rows + k * units + e % units] = 0;
  }
  for (i64 step = s.end - 1; step >= s.begin; step--) {
    const i64 t = time_of(s, step), last = time_of(s, step - 1);
    __syncthreads();
    EACH_UNIT(e)
    {
      const int j = e % units;
      const i64 b = first + e / units, row = t * s.batch + b, prior = last * s.batch + b;
      if (b >= s.batch) break;
      A d = join_slices(part, slices, units, e) + (dy ? get<A>(dy[row * s.y_row + j]) : 0);
      A *own = dg + e / units * rows + j;
      T *to = dgx + row * rows + j;
      A state;
#if LSTM
      const T *v = kept + t * s.kept + b * rows + j, *cells = kept + s.batch * rows + b * units + j;
      const A i = get<A>(v[0]), f = get<A>(v[units]), g = get<A>(v[2 * units]),
              o = get<A>(v[3 * units]);
      const A tanh_c = tanh_of(get<A>(cells[t * s.kept]));
      const A c_before = get<A>(step ? cells[last * s.kept] : c0[b * units + j]);
      const A dcell = dc[e] + d * o * (1 - tanh_c * tanh_c);
      const A gate[] = { dcell * g * i * (1 - i), dcell * c_before * f * (1 - f),
        dcell * i * (1 - g * g), d * tanh_c * o * (1 - o) };
      for (int k = 0; k < GATES; k++) {
        own[k * units] = plain(gate[k]);
        set(to[k * units], gate[k]);
      }
      dc[e] = plain(dcell * f);
      state = !step ? get<A>(h0[b * units + j])
          : h       ? get<A>(h[prior * s.y_row + j])
                    : get<A>(kept[last * s.kept + b * rows + j + 3 * units]) * tanh_of(c_before);
#else
      state = get<A>(step ? h[prior * s.y_row + j] : h0[b * units + j]);
#endif
#if GRU
      const T *v = kept + t * s.kept + b * rows + j;
      const A r = get<A>(v[0]), z = get<A>(v[units]), next = get<A>(v[2 * units]);
      const A inner = get<A>(kept[t * s.kept + s.batch * rows + b * units + j]);
      d += rest[e];
      const A dn = d * (1 - z) * (1 - next * next), dr = dn * inner * r * (1 - r);
      const A dz = d * (state - next) * z * (1 - z);
      T *too = dgh + row * rows + j;
      own[0] = plain(dr);
      own[units] = plain(dz);
      own[2 * units] = plain(dn * r);
      set(to[0], dr);
      set(to[units], dz);
      set(to[2 * units], dn);
      for (int k = 0; k < GATES; k++) set(too[k * units], own[k * units]);
      rest[e] = plain(d * z);
#endif
#if !GRU && !LSTM
      const A v = get<A>(h[row * s.y_row + j]);
      own[0] = plain(MODE == 2 ? (v > 0 ? d : 0) : d * (1 - v * v));
      set(to[0], own[0]);
#endif
      if (before) set(before[row * units + j], state);
    }
    __syncthreads();
    A sum[SAMPLES][PACK] = {};
    if (q < slices) {
      add_rows(sum, near, 0, q, held, slices, dg, rows, units, column);
      add_rows(sum, w + held * units, held, q, rows, slices, dg, rows, units, column);
      for (int i = 0; i < SAMPLES; i++)
        for (int p = 0; p < PACK; p++) part[(q * SAMPLES + i) * units + column + p] = sum[i][p];
    }
  }
  __syncthreads();
  EACH_UNIT(e)
  {
    const i64 at = first * units + e;
    if (first + e / units >= s.batch) break;
    const A dh = join_slices(part, slices, units, e);
    if (s.begin) {
      carry[at] = dh;
      if (GRU || LSTM) carry[s.batch * units + at] = dc[e];
      continue;
    }
    if (dhx) set(dhx[at], GRU ? dh + rest[e] : dh);
    if (LSTM && dcx) set(dcx[at], dc[e]);
  }
}
