// reduce_back.cu - gradients of reductions over axes: the gradient of each element from its value
// x, its result y, the head gradient g, a second one h, and a scale. Method: one thread per
// element. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define BACK 0       // which formula
#define GROUPS 3     // of axes, alternately kept and reduced
#include "team.cuh"
#endif

typedef accumulates<T>::type A;

struct back_args {
  i64 n;
  double scale;
  i64 group[GROUPS][2];  // size, stride among the results
};

FN A back_of(A x, A y, A g, A h, double s)
{
  switch (BACK) {
  case 0: return s == 1 ? g : (A)((double)g * s);
  case 1: return is_nan(x) ? 0 : g;
  case 2: return x > 0 ? g : x < 0 ? times(g, -1) : 0;
  case 3: return over(times(g, x), y);
  case 4: return over(times(g, y), x);
  case 5: return is_nan(x) ? 0 : over(times(g, y), x);
  case 6: return x == y ? g : 0;
  case 7: return (A)(((double)g + 2 * (double)h * ((double)x - (double)y)) * s);
  default: return times(times(g, x), 2);
  }
}

extern "C" __global__ void reduce_back(T *dx, const T *x, const T *y, const T *g, const T *h,
    const struct back_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    INDEX to = offset_in<GROUPS>((INDEX)i, s.group);
    A v = x ? get<A>(x[i]) : 0, r = y ? get<A>(y[to]) : 0;
    set(dx[i], back_of(v, r, get<A>(g[to]), h ? get<A>(h[to]) : 0, s.scale));
  }
}
