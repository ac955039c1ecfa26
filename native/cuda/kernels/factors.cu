// factors.cu - steps around cuSOLVER's factorisations of matrices (n x n): determinants, checks,
// signs, triangles, and the steps between the products of gradients. A NaN is first spread over its
// whole matrix, as on the CPU, since pivoting would skip it. Method: one thread per element, row or
// matrix; one team per matrix where all of it is read; one block to find the first bad matrix.
// Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define TEAM 256
#include "team.cuh"
#include "fault.cuh"
#endif

// Fills a matrix of y with NaN if the same matrix of a contains one. y may be a.
extern "C" __global__ void fill_nan(T *y, const T *a, i64 count, i64 size)
{
  EACH_ROW(matrix, count)
  {
    double found = 0;
    EACH_OF_TEAM(i, 0, size) found += a[matrix * size + i] != a[matrix * size + i];
    found = team_sum(found);
    if (found > 0)
      EACH_OF_TEAM(i, 0, size) y[matrix * size + i] = (T)NAN;
  }
}

// Marks matrices that contain a NaN or an infinity and sets them to 0, since the search for their
// eigenvalues might not end.
extern "C" __global__ void finite_only(T *a, i32 *marks, i64 count, i64 size)
{
  EACH_ROW(matrix, count)
  {
    double bad = 0;
    EACH_OF_TEAM(i, 0, size) bad += !(a[matrix * size + i] - a[matrix * size + i] == 0);
    bad = team_sum(bad);
    if (LEADS) marks[matrix] = bad > 0;
    if (bad > 0)
      EACH_OF_TEAM(i, 0, size) a[matrix * size + i] = 0;
  }
}

// Reports the first of `count` matrices that is marked. Launched as one block.
extern "C" __global__ void report_marked(
    const i32 *marks, i64 count, device_fault *fault, i64 op, i64 what)
{
  EACH_ROW(only, 1)
  {
    i64 first = count;
    EACH_OF_TEAM(i, 0, count)
      if (marks[i] && i < first) first = i;
    first = team_least(first);
    if (first < count && LEADS) report_fault(fault, op, what, first, BAD_MATRIX);
  }
}

// Marks matrices that have a zero on their diagonal.
extern "C" __global__ void mark_zeros(i32 *marks, const T *lu, i64 count, i64 n)
{
  EACH(matrix, count)
  {
    i32 found = 0;
    for (i64 i = 0; i < n; i++) found |= lu[(matrix * n + i) * n + i] == 0;
    marks[matrix] = found;
  }
}

extern "C" __global__ void identities(T *y, i64 count, i64 n)
{
  EACH(i, count) y[i] = i / n % n == i % n;
}

// Writes determinants to `first`, or with `logs` signs to `first` and logarithms to `second`.
// Either may be NULL.
extern "C" __global__ void determinants(
    T *first, T *second, const T *lu, const i32 *pivot, i64 count, i64 n, i32 logs)
{
  EACH(matrix, count)
  {
    double det = 1, sign = 1, sum = 0;
    for (i64 i = 0; i < n; i++) {
      double v = lu[(matrix * n + i) * n + i] * (pivot[matrix * n + i] == i + 1 ? 1.0 : -1.0);
      det *= v;
      sign *= v == 0 ? 0 : v < 0 ? -1 : 1;
      sum += log(fabs(v));
    }
    if (first) set(first[matrix], logs ? sign : det);
    if (second) set(second[matrix], sum);
  }
}

// Computes da = g det x^T, or with `logs` g x^T, from the inverses x; 0 if `of`, the determinant or
// its sign, is 0.
extern "C" __global__ void determinant_gradient(
    T *da, const T *x, const T *g, const T *of, i64 count, i64 n, i32 logs)
{
  EACH(e, count)
  {
    i64 matrix = e / (n * n), i = e / n % n, j = e % n;
    double d = of[matrix];
    double v = x[(matrix * n + j) * n + i];
    set(da[e], d == 0 ? (T)0 : (T)((double)g[matrix] * (logs ? 1 : d) * v));
  }
}

// Copies the lower triangle of q (m x n) to l (m x m), with zeros above it.
extern "C" __global__ void lower_part(T *l, const T *q, i64 count, i64 m, i64 n)
{
  EACH(e, count)
  {
    i64 row = e / m, i = row % m, j = e % m;
    l[e] = j <= i ? q[row * n + j] : (T)0;
  }
}

// Copies the lower triangle of each matrix onto its upper one.
extern "C" __global__ void mirrored(T *x, i64 count, i64 n)
{
  EACH(e, count)
  {
    i64 i = e / n % n, j = e % n;
    if (j > i) x[e] = x[e - i * n - j + j * n + i];
  }
}

// Negates rows whose element of greatest magnitude is negative.
extern "C" __global__ void positive_rows(T *u, i64 rows, i64 n)
{
  EACH(row, rows)
  {
    T *own = u + row * n, most = 0;
    for (i64 j = 0; j < n; j++)
      if (fabs((double)own[j]) > fabs((double)most)) most = own[j];
    for (i64 j = 0; most < 0 && j < n; j++) own[j] = -own[j];
  }
}

// Writes m = N + diag(dl), the middle factor of the gradient; dl may be NULL.
extern "C" __global__ void eigen_gradient(T *m, const T *l, const T *dl, i64 count, i64 n)
{
  const double least = sizeof(T) == 8 ? 1e-100 : 1e-30;
  EACH(e, count)
  {
    i64 row = e / n, i = row % n, j = e % n, matrix = row / n;
    T *own = m + matrix * n * n;
    if (i == j) own[i * n + i] = dl ? dl[row] : (T)0;
    if (j >= i) continue;
    double gap = (double)l[row] - (double)l[matrix * n + j];
    if (gap < least) gap = least;
    T v = (T)(((double)own[i * n + j] - (double)own[j * n + i]) / (2 * gap));
    own[i * n + j] = own[j * n + i] = v;
  }
}

extern "C" __global__ void with_transpose(T *y, const T *x, i64 count, i64 n)
{
  EACH(e, count)
  {
    i64 i = e / n % n, j = e % n;
    y[e] = (T)((double)x[e] + (double)x[e - i * n - j + j * n + i]);
  }
}

extern "C" __global__ void triangle_only(T *x, i64 count, i64 n, i32 lower)
{
  EACH(e, count)
  {
    i64 i = e / n % n, j = e % n;
    if (lower ? j > i : j < i) x[e] = 0;
  }
}
