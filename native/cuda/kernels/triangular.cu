// triangular.cu - products with triangular matrices, solutions of equations with them, and their
// gradients: linalg's trmm, trsm; and Cholesky factors: potrf, potri. A (side x side) is a lower or
// upper triangle, its rest is not read; B is (m x n). Method: one thread per element of a product;
// for equations, one thread per column (row, if A is on the right), by substitution; for A's
// gradient, one team per element; a block computes a factor column by column. Sums are double.
// Bound: operations of doubles; for equations, side^2 of them, one after the other; for a factor,
// its barriers.
#ifndef T
#include "prelude.cuh"
#define T float
#define TEAM 32
#include "team.cuh"
#include "fault.cuh"
#endif

// Sizes. lower: whether op(A), which is A or its transpose, is a lower triangle.
struct triangle_args { i64 count, m, n, side; i32 right, lower, transpose, unused; double factor; };

FN double element_of(const T *a, const triangle_args &s, i64 i, i64 j)
{
  return s.transpose ? a[j * s.side + i] : a[i * s.side + j];
}

extern "C" __global__ void triangle_multiply(
    T *y, const T *a, const T *b, const struct triangle_args __grid_constant__ s)
{
  EACH(e, s.count * s.m * s.n)
  {
    i64 matrix = e / (s.m * s.n), i = e / s.n % s.m, j = e % s.n;
    const T *own = a + matrix * s.side * s.side, *from = b + matrix * s.m * s.n;
    i64 at = s.right ? j : i;
    bool before = (s.lower != 0) != (s.right != 0);
    double sum = 0;
    for (i64 k = before ? 0 : at; k < (before ? at + 1 : s.side); k++)
      sum += s.right ? (double)from[i * s.n + k] * element_of(own, s, k, j)
                     : element_of(own, s, i, k) * (double)from[k * s.n + j];
    set(y[e], s.factor * sum);
  }
}

extern "C" __global__ void triangle_solve(
    T *x, const T *a, const T *b, const struct triangle_args __grid_constant__ s)
{
  const i64 lines = s.right ? s.m : s.n, step = s.right ? 1 : s.n;
  const bool up = (s.lower != 0) != (s.right != 0);
  EACH(e, s.count * lines)
  {
    i64 matrix = e / lines, line = e % lines;
    const T *own = a + matrix * s.side * s.side;
    i64 first = matrix * s.m * s.n + (s.right ? line * s.n : line);
    for (i64 done = 0; done < s.side; done++) {
      i64 i = up ? done : s.side - 1 - done;
      double left = s.factor * (double)b[first + i * step];
      for (i64 k = up ? 0 : i + 1; k < (up ? i : s.side); k++)
        left -= (s.right ? element_of(own, s, k, i) : element_of(own, s, i, k)) *
            (double)x[first + k * step];
      set(x[first + i * step], left / element_of(own, s, i, i));
    }
  }
}

// Computes factor tri(u v^T), or factor tri(u^T v) if A is on the right. u and v have the shape of
// B; s.lower describes A itself, not op(A).
extern "C" __global__ void triangle_gradient(
    T *da, const T *u, const T *v, const struct triangle_args __grid_constant__ s)
{
  EACH_ROW(e, s.count * s.side * s.side)
  {
    i64 matrix = e / (s.side * s.side), i = e / s.side % s.side, j = e % s.side;
    bool kept = s.lower ? j <= i : j >= i;
    i64 row = s.right ? 1 : s.n, step = s.right ? s.n : 1, at = matrix * s.m * s.n;
    double sum = 0;
    EACH_OF_TEAM(k, 0, kept ? s.right ? s.m : s.n : 0)
      sum += (double)u[at + i * row + k * step] * (double)v[at + j * row + k * step];
    sum = team_sum(sum);
    if (LEADS) set(da[e], kept ? (T)(s.factor * sum) : 0);
  }
}

// -- Cholesky's factors of matrices (n x n) -------------------------------------------------------

// Returns element (i, j) of a lower factor, j <= i, in place; of an upper factor, element (j, i).
FN T &of_factor(T *a, i64 n, i32 lower, i64 i, i64 j)
{
  return lower ? a[i * n + j] : a[j * n + i];
}

extern "C" __global__ void cholesky(
    T *all, i64 count, i64 n, i32 lower, device_fault *fault, i64 op, i64 what)
{
  EACH_ROW(matrix, count)
  {
    T *a = all + matrix * n * n;
    for (i64 k = 0; k < n; k++) {
      __syncthreads();
      double d = of_factor(a, n, lower, k, k), root = sqrt(d);
      if (d <= 0) { // false for NaN, as on the CPU
        if (LEADS) report_fault(fault, op, what, matrix, BAD_MATRIX);
        break;
      }
      __syncthreads();
      EACH_OF_TEAM(i, k, n)
      {
        T &v = of_factor(a, n, lower, i, k);
        v = (T)(i == k ? root : (double)v / root);
      }
      __syncthreads();
      i64 left = n - k - 1;
      EACH_OF_TEAM(e, 0, left * left)
      {
        i64 i = k + 1 + e / left, j = k + 1 + e % left;
        if (j > i) continue;
        T &v = of_factor(a, n, lower, i, j);
        v = (T)((double)v -
            (double)of_factor(a, n, lower, i, k) * (double)of_factor(a, n, lower, j, k));
      }
    }
    __syncthreads();
    EACH_OF_TEAM(e, 0, n * n)
      if (lower ? e % n > e / n : e % n < e / n) a[e] = 0;
  }
}

// Writes half of the triangle and of its mirror image to the whole matrix.
extern "C" __global__ void half_mirrored(T *y, const T *x, i64 count, i64 n, i32 lower)
{
  EACH(i, count)
  {
    i64 row = i / n % n, column = i % n;
    bool own = lower ? column <= row : column >= row;
    set(y[i], 0.5 * (double)(own ? x[i] : x[i - row * n - column + column * n + row]));
  }
}

extern "C" __global__ void identities(T *y, i64 count, i64 n)
{
  EACH(i, count) y[i] = i / n % n == i % n;
}

extern "C" __global__ void look_for_zeros(
    const T *a, i64 count, i64 n, device_fault *fault, i64 op, i64 what)
{
  EACH(i, count)
    if (a[i / n * n * n + i % n * n + i % n] == 0) report_fault(fault, op, what, i / n, BAD_MATRIX);
}
