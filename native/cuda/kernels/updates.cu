// updates.cu - AdaGrad with one history per row of n elements: _contrib_group_adagrad_update.
// Method: one team per row. Bound: bytes; the second read comes from the cache.
#ifndef T
#include "prelude.cuh"
#define T float
#define TEAM 32
#include "team.cuh"
#endif

typedef computes<T>::type C;

FN C clipped(C g, C limit) { return limit < 0 ? g : g > limit ? limit : g < -limit ? -limit : g; }

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
