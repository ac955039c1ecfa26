// team.cuh - teams: TEAM (1, 32 or 256) neighbouring threads of a block of 256 that share a row.
// With 1, each thread walks a row alone, which suits short rows, and rows whose elements are
// strided while neighbouring rows are adjacent. Every thread of a team gets the result of the
// team's reduction. Its tree order is the same for any grid, so results repeat bit for bit.
#pragma once
#ifndef TEAM
#define TEAM 1
#endif
// The type of indices. u32, where all indices fit, avoids 64-bit divisions.
#ifndef INDEX
#define INDEX i64
#endif

// Returns the offset of element i in groups of axes, each a size and a stride, outermost first.
template <int N> FN INDEX offset_in(INDEX i, const i64 (&group)[N][2])
{
  INDEX at = 0;
  for (int d = N - 1; d > 0; d--) {
    at += i % (INDEX)group[d][0] * (INDEX)group[d][1];
    i /= (INDEX)group[d][0];
  }
  return at + i * (INDEX)group[0][1];
}

#define EACH_ROW(row, rows) \
  for (i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / TEAM; row < (rows); \
       row += (i64)gridDim.x * blockDim.x / TEAM)
#define EACH_OF_TEAM(j, from, to) for (i64 j = (from) + threadIdx.x % TEAM; j < (to); j += TEAM)
#define LEADS (threadIdx.x % TEAM == 0)

#if TEAM > 32
// Returns the shared array of the warps' partial results. Not a template, so that all types share
// one array.
FN u64 *team_parts()
{
  __shared__ u64 part[TEAM / 32];
  return part;
}

template <typename A> FN A part_of(u64 bits)
{
  A v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
#endif

template <typename F, typename A> FN A team_reduce(A v, F join)
{
  for (int n = TEAM < 32 ? TEAM / 2 : 16; n; n /= 2) v = join(v, __shfl_xor_sync(~0u, v, n));
#if TEAM > 32
  u64 bits = 0, *part = team_parts();
  memcpy(&bits, &v, sizeof v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = bits;
  __syncthreads();
  v = part_of<A>(part[0]);
  for (int i = 1; i < TEAM / 32; i++) v = join(v, part_of<A>(part[i]));
#endif
  return v;
}

struct join_sum {
  template <typename A> FN_IN_STRUCT A operator()(A a, A b) const { return a + b; }
};
// A NaN in b is ignored, as in join_least.
struct join_max {
  template <typename A> FN_IN_STRUCT A operator()(A a, A b) const { return b > a ? b : a; }
};
struct join_least {
  template <typename A> FN_IN_STRUCT A operator()(A a, A b) const { return b < a ? b : a; }
};
template <typename A> FN A team_sum(A v) { return team_reduce(v, join_sum()); }
template <typename A> FN A team_max(A v) { return team_reduce(v, join_max()); }
template <typename A> FN A team_least(A v) { return team_reduce(v, join_least()); }

// A compensated (Kahan) sum: the sum and the rounding error to subtract from it.
template <typename C> struct exact_sum {
  C sum, lost;
  FN_IN_STRUCT void add(C v)
  {
    C y = v - lost, t = sum + y;
    lost = (t - sum) - y;
    sum = t;
  }
  FN_IN_STRUCT double value() const { return (double)sum - (double)lost; }
};

// Returns the sum of v over those threads of a block of 256 whose indices differ by multiples of
// `stride`, a power of two.
FN double join_block(double v, int stride)
{
  __shared__ double all[256];
  for (int n = 16; n >= stride; n /= 2) v += __shfl_xor_sync(~0u, v, n);
  const int apart = stride < 32 ? 32 : stride;
  __syncthreads();
  all[threadIdx.x] = v;
  __syncthreads();
  v = all[threadIdx.x % apart];
  for (int i = threadIdx.x % apart + apart; i < 256; i += apart) v += all[i];
  return v;
}

// -- rows that a team holds in registers: each thread HELD packs of PACK elements -----------------

#ifdef HELD
#define EACH_HELD(h, j, k) \
  for (int h = 0; h < HELD; h++) \
    if (const i64 j = (i64)(h * TEAM + (int)threadIdx.x % TEAM) * PACK; j < (k))
#endif

// -- rows of k elements, `inner` apart, in an array (outer, k, inner) -----------------------------

FN i64 row_start(i64 row, i64 k, i64 inner)
{
  return inner == 1 ? row * k : row / inner * k * inner + row % inner;
}

// Returns x truncated and clipped to 0 .. n - 1; NaN becomes 0.
template <typename N> FN i64 index_at(N x, i64 n)
{
  double v = get<double>(x);
  return v > 0 ? v >= (double)n ? n - 1 : (i64)v : 0;
}

template <typename C> struct soft_row { C greatest, total; };

// Returns the greatest element of a row (the least one if `scale` is negative), and the sum of
// exponentials relative to it, computed in A.
template <typename A, typename N, typename C> FN soft_row<C> soft_sums(
    const N *x, i64 n, i64 inner, C scale)
{
  C sign = scale < 0 ? -1 : 1, most = -infinity<C>();
  A total = 0;
  EACH_OF_TEAM(j, 0, n)
  {
    C v = get<C>(x[j * inner]) * sign;
    most = v > most ? v : most;
  }
  most = team_max(most) * sign;
  EACH_OF_TEAM(j, 0, n) total += exp_of((get<C>(x[j * inner]) - most) * scale);
  return { most, (C)team_sum(total) };
}
