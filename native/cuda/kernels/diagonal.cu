// diagonal.cu - diagonals and triangles of matrices (n, n), packed and unpacked among zeros; the
// sum of a diagonal's logarithms; Kronecker products of columns. Method: one thread per element
// that is written. Bound: bytes.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define TEAM 32
#include "team.cuh"
#endif
#ifndef T
#define T float       // elements of sums and products
#endif

// Sizes. side: of the triangle or diagonal; k: packed elements of a matrix.
struct diagonal_args { i64 n, k, side, offset; i32 triangle, lower; };

// Returns the index at which element (row, column) of a matrix is packed; -1 if it is not.
FN i64 packed_at(const diagonal_args &s, i64 row, i64 column)
{
  if (s.offset < 0)
    row += s.offset;
  else
    column -= s.offset;
  if (row < 0 || column < 0 || row >= s.side || column >= s.side) return -1;
  if (!s.triangle) return row == column ? row : -1;
  i64 a = s.lower ? row : column, b = s.lower ? column : row;
  return b <= a ? a * (a + 1) / 2 + b : -1;
}

extern "C" __global__ void put_packed(
    UNIT *matrix, const UNIT *packed, i64 count, const struct diagonal_args __grid_constant__ s)
{
  EACH(i, count)
  {
    i64 p = packed_at(s, i / s.n % s.n, i % s.n);
    matrix[i] = p < 0 ? (UNIT)0 : packed[i / (s.n * s.n) * s.k + p];
  }
}

// Returns the row of element p of a triangle that is packed row by row.
FN i64 row_of_packed(i64 p)
{
  i64 row = (i64)((sqrt(8 * (double)p + 1) - 1) / 2);
  while (row * (row + 1) / 2 > p) row--;
  while ((row + 1) * (row + 2) / 2 <= p) row++;
  return row;
}

extern "C" __global__ void take_packed(
    UNIT *packed, const UNIT *matrix, i64 count, const struct diagonal_args __grid_constant__ s)
{
  EACH(i, count)
  {
    i64 p = i % s.k, a = s.triangle ? row_of_packed(p) : p;
    i64 b = s.triangle ? p - a * (a + 1) / 2 : p;
    i64 row = (s.lower ? a : b) - (s.offset < 0 ? s.offset : 0);
    i64 column = (s.lower ? b : a) + (s.offset > 0 ? s.offset : 0);
    packed[i] = matrix[(i / s.k * s.n + row) * s.n + column];
  }
}

extern "C" __global__ void sum_log(T *y, const T *matrix, i64 matrices, i64 n)
{
  EACH_ROW(i, matrices)
  {
    double sum = 0;
    EACH_OF_TEAM(k, 0, n) sum += log((double)matrix[(i * n + k) * n + k]);
    sum = team_sum(sum);
    if (LEADS) set(y[i], sum);
  }
}

extern "C" __global__ void sum_log_back(T *dx, const T *g, const T *matrix, i64 count, i64 n)
{
  EACH(i, count)
    set(dx[i], i % n == i / n % n ? (T)((double)g[i / (n * n)] / (double)matrix[i]) : 0);
}

enum { MOST_FACTORS = 16 };
struct column_args { i64 n, cols, count, rows[MOST_FACTORS]; const T *x[MOST_FACTORS]; };

// Writes products of columns to y (n / cols, cols); the rows of the last factor change fastest.
extern "C" __global__ void column_products(T *y, const struct column_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 row = i / s.cols, column = i % s.cols;
    double v = 1;
    for (i64 k = s.count - 1; k >= 0; k--) {
      v *= get<double>(s.x[k][row % s.rows[k] * s.cols + column]);
      row /= s.rows[k];
    }
    set(y[i], v);
  }
}
