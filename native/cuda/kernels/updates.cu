// updates.cu - sgd steps, with momentum and float32 master copies where there are, of many weights
// in one launch. Method: a block has a piece of one weight, a thread elements of it; which weight
// follows from the blocks that the ones before it take. Bound: bytes.
// AdaGrad with one history a row: a team a row. Bound: bytes, the second read from the cache.
#ifndef T
#include "prelude.cuh"
#define T float
#define RATE float   // type of the arrays of rates and decays
#define MOMENTUM 1
#define MASTER 0
#define TEAM 32
#include "team.cuh"
#endif

enum { WEIGHTS = 40, PIECE = 4096 };
typedef computes<T>::type C;

template <bool master, typename N> struct state_type { typedef N type; };
template <typename N> struct state_type<true, N> { typedef float type; };
typedef state_type<MASTER, T>::type S;

struct weight_step {
  T *out;
  const T *weight, *grad;
  S *mom, *master;
  i64 n, block;        // elements; the first block
  double lr, wd;
};
struct step_args {
  i64 count, first;    // weights here, and those of earlier launches
  double momentum, rescale, clip;
  weight_step step[WEIGHTS];
};

FN C clipped(C g, C limit) { return limit < 0 ? g : g > limit ? limit : g < -limit ? -limit : g; }

// lrs, wds: an entry per weight, or NULL
extern "C" __global__ void sgd_steps(
    const RATE *lrs, const RATE *wds, const struct step_args __grid_constant__ s)
{
  i64 k = s.count - 1;
  while (s.step[k].block > blockIdx.x) k--;
  const weight_step &w = s.step[k];
  C lr = lrs ? get<C>(lrs[s.first + k]) : (C)w.lr, wd = wds ? get<C>(wds[s.first + k]) : (C)w.wd;
  i64 begin = (blockIdx.x - w.block) * PIECE, end = begin + PIECE < w.n ? begin + PIECE : w.n;
  for (i64 i = begin + threadIdx.x; i < end; i += blockDim.x) {
    C a = MASTER ? get<C>(w.master[i]) : get<C>(w.weight[i]);
    C g = clipped((C)s.rescale * get<C>(w.grad[i]), (C)s.clip);
    if (MOMENTUM) {
      C m = (C)s.momentum * get<C>(w.mom[i]) - lr * wd * a - lr * g;
      set(w.mom[i], m);
      a = a + m;
    }
    else
      a = (1 - lr * wd) * a - lr * g;
    if (MASTER) set(w.master[i], a);
    set(w.out[i], a);
  }
}

// -- a history for each row of n: _contrib_group_adagrad_update -----------------------------------

struct row_args { i64 rows, n; double lr, epsilon, rescale, clip; };

extern "C" __global__ void row_adagrad(T *out, const T *weight, const T *grad, T *history,
    const struct row_args __grid_constant__ s)
{
  EACH_ROW(r, s.rows)
  {
    double before = get<double>(history[r]), sum = 0;
    EACH_OF_TEAM(i, 0, s.n)
    {
      C g = clipped((C)s.rescale * get<C>(grad[r * s.n + i]), (C)s.clip);
      sum += (double)g * g;
    }
    T grown;
    set(grown, before + team_sum(sum) / (double)s.n);
    C step = (C)(s.lr / sqrt(get<double>(grown) + s.epsilon));
    EACH_OF_TEAM(i, 0, s.n)
    {
      C g = clipped((C)s.rescale * get<C>(grad[r * s.n + i]), (C)s.clip);
      set(out[r * s.n + i], get<C>(weight[r * s.n + i]) - step * g);
    }
    if (LEADS) history[r] = grown;
  }
}
