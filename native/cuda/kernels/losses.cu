// losses.cu - gradients of losses whose value is never computed: regression, support vector
// machines, MakeLoss. Method: one thread per element; one team per row, or one team that counts.
// Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define LABEL i32
#define TEAM 32
#include "team.cuh"
#endif

typedef computes<T>::type C;

extern "C" __global__ void logistic(T *y, const T *x, i64 n)
{
  EACH(i, n) set(y[i], 1 / (1 + exp_of(-get<C>(x[i]))));
}

// Writes scale (y - label), or with `absolute` scale times the sign of y - label (-1 for 0).
extern "C" __global__ void regression(
    T *dx, const T *y, const LABEL *label, i64 n, C scale, i32 absolute)
{
  EACH(i, n)
  {
    T l;
    set(l, get<C>(label[i]));
    C a = get<C>(y[i]), b = get<C>(l);
    set(dx[i], absolute ? a > b ? scale : -scale : scale * (a - b));
  }
}

// Computes gradients of one-against-all classification. linear: of the hinge loss, else of its
// square.
extern "C" __global__ void margins(T *dx, const T *y, const LABEL *label, i64 rows, i64 k,
    C margin, C scale, i32 linear)
{
  EACH_ROW(row, rows)
  {
    double l = get<double>(label[row]);
    i64 target = l >= 0 && l < (double)k ? (i64)l : -1;
    EACH_OF_TEAM(j, 0, k)
    {
      C v = get<C>(y[row * k + j]), sign = j == target ? -1 : 1, gap = margin + sign * v;
      set(dx[row * k + j], gap > 0 ? sign * scale * (linear ? 1 : 2 * gap) : 0);
    }
  }
}

// Writes scale, divided by *count if count is not NULL and *count is above 1.
extern "C" __global__ void constant(T *dx, const i64 *count, i64 n, double scale)
{
  double by = count && *count > 1 ? (double)*count : 1;
  EACH(i, n) set(dx[i], scale / by);
}

extern "C" __global__ void count_above(i64 *count, const T *x, C limit, i64 n)
{
  i64 above = 0;
  EACH_OF_TEAM(i, 0, n) above += get<C>(x[i]) > limit;
  above = team_sum(above);
  if (LEADS) *count = above;
}
