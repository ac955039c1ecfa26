// counts.cu - counts and comparisons: histograms, elements that are not zero, whether arrays are
// close; and count sketches. Method: one team per result, which reads all elements that may count,
// so that no atomic additions of floats are needed and results repeat bit for bit. A histogram
// needs no sort: each thread finds the bin of an element, and additions of integers may be in any
// order. Bound: bytes.
#ifndef T
#include "prelude.cuh"
#define T float
#define TEAM 256
#include "team.cuh"
#endif

// Writes the edges of the bins to `edges` (unless NULL) as T, and the same values to `edge` as
// double.
extern "C" __global__ void make_edges(
    T *edges, double *edge, const T *given, i64 bins, double low, double high)
{
  EACH(i, bins + 1)
  {
    T v;
    if (given)
      v = given[i];
    else
      set(v, low + (double)i * (high - low) / (double)bins);
    if (edges) edges[i] = v;
    edge[i] = get<double>(v);
  }
}

// Counts the elements of each bin. A bin includes its lower edge; the last one also its upper edge.
extern "C" __global__ void histogram(
    u64 *count, const T *x, const double *edge, i64 n, i64 bins)
{
  EACH(i, n)
  {
    double v = get<double>(x[i]);
    i64 low = 0, high = bins;
    if (!(v >= edge[0] && v <= edge[bins])) continue;
    while (high - low > 1) {
      i64 middle = (low + high) / 2;
      if (v >= edge[middle])
        low = middle;
      else
        high = middle;
    }
    atomicAdd(&count[low], 1ULL);
  }
}

// Counts the elements of each row that are not 0. Elements of a row are `step` apart, rows `row`.
extern "C" __global__ void count_stored(i64 *count, const T *x, i64 rows, i64 k, i64 row, i64 step)
{
  EACH_ROW(r, rows)
  {
    i64 n = 0;
    EACH_OF_TEAM(j, 0, k) n += get<double>(x[r * row + j * step]) != 0;
    n = team_sum(n);
    if (LEADS) count[r] = n;
  }
}

struct close_args { i64 n; double rtol, atol; i64 equal_nan; };

// Returns whether a is close to b; an infinity is close only to itself.
FN bool close_to(const close_args &s, double a, double b)
{
  if (is_nan(a) || is_nan(b)) return s.equal_nan && is_nan(a) && is_nan(b);
  double limit = infinity<double>(), gap = a < b ? b - a : a - b, size = b < 0 ? -b : b;
  if (a == b) return true;
  return a != limit && a != -limit && size != limit && gap <= s.atol + s.rtol * size;
}

// Writes whether all elements are close. Launched as one team.
extern "C" __global__ void all_close(
    u8 *y, const T *a, const T *b, const struct close_args __grid_constant__ s)
{
  EACH_ROW(r, 1)
  {
    i64 differs = 0;
    EACH_OF_TEAM(i, 0, s.n) differs |= !close_to(s, get<double>(a[i]), get<double>(b[i]));
    differs = team_max(differs);
    if (LEADS) *y = !differs;
  }
}
