// act_product.cu - a small product G W, a gradient of data; G is (rows x depth), W (depth x
// columns). If the data is the output Y (rows x columns) of an activation, the gradient of the
// activation follows: G W, rounded to T, times the slope at Y. Method: one block per tile of 32 x
// 32, four elements of a column per thread, from slabs of 32 products in shared memory. If a
// library has computed G W, act_back multiplies it in place, one load per thread. Bound: latency
// and shared memory of the slabs, one after the other; in place, bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define ACT 1  // ACT_* (kernel/epilogue.h): none, relu, sigmoid or tanh
#define ADD 0  // 1: adds the product to the elements of dy; ACT is none
#define PACK 4 // elements of a load
#include "team.cuh"
#endif
#ifndef PACK
#define PACK 1
#endif

#define TILE 32
#define LINES 8 // rows of a tile that the threads of a block cover at once
#define STEP 4  // elements of G that a thread reads at once
typedef own_precision<T>::type A;
typedef lanes<A, STEP> G;

enum { ACT_NONE = 0, ACT_RELU = 1, ACT_SIGMOID = 2 };

// Returns g, rounded to T, times the activation's slope where its output is y; NaN where y is NaN.
FN A act_gradient(A g, T y)
{
  const A v = get<A>(y), step = v > 0 ? 1 : v == v ? 0 : v;
  T rounded;
  set(rounded, g);
  return get<A>(rounded) *
      (ACT == ACT_RELU ? step : ACT == ACT_SIGMOID ? v * (1 - v) : 1 - v * v);
}

extern "C" __global__ void __launch_bounds__(TILE * LINES) act_product(
    T *dy, const T *g, const T *w, const T *y, i64 rows, i64 columns, i64 depth)
{
  __shared__ G left[TILE][TILE / STEP];
  __shared__ A right[TILE][TILE];
  const int lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
  const i64 across = (columns + TILE - 1) / TILE, tiles = (rows + TILE - 1) / TILE * across;
  for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const i64 first = tile / across * TILE, column = tile % across * TILE + lane;
    A sum[TILE / LINES] = {};
    for (i64 slab = 0; slab < depth; slab += TILE) {
      __syncthreads();
      for (int i = line; i < TILE; i += LINES) {
        const i64 row = first + i, k = slab + i;
        left[i][lane / STEP].at[lane % STEP] =
            row < rows && slab + lane < depth ? get<A>(g[row * depth + slab + lane]) : 0;
        right[i][lane] = k < depth && column < columns ? get<A>(w[k * columns + column]) : 0;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < TILE; k += STEP) {
        A by[STEP];
        for (int p = 0; p < STEP; p++) by[p] = right[k + p][lane];
        for (int q = 0; q < TILE / LINES; q++) {
          const G v = left[line + q * LINES][k / STEP];
          for (int p = 0; p < STEP; p++) sum[q] = fma(v.at[p], by[p], sum[q]);
        }
      }
    }
    for (int q = 0; q < TILE / LINES; q++) {
      const i64 row = first + line + q * LINES, at = row * columns + column;
      if (row >= rows || column >= columns) continue;
      if (ADD) sum[q] += get<A>(dy[at]);
      set(dy[at], ACT == ACT_NONE ? sum[q] : act_gradient(sum[q], y[at]));
    }
  }
}

extern "C" __global__ void act_back(T *dy, const T *y, i64 packs)
{
  EACH(i, packs)
  {
    lanes<T, PACK> v = ((const lanes<T, PACK> *)dy)[i];
    const lanes<T, PACK> by = ((const lanes<T, PACK> *)y)[i];
    for (int p = 0; p < PACK; p++) set(v.at[p], act_gradient(get<A>(v.at[p]), by.at[p]));
    ((lanes<T, PACK> *)dy)[i] = v;
  }
}
