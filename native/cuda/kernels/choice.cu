// choice.cu - random choices by kernel/element/choice.h: classes with given probabilities, numbers
// without repetition, permutations. Element i depends only on the draw, the node and i. Method: one
// thread per row sums up the probabilities in order; then one thread per draw searches its class.
// For numbers without repetition, one thread per row uses a hash table. Bound: the latency of a
// row's steps; for permutations, the sort.
#ifndef T
#include "prelude.cuh"
#include "kernel/element/choice.h"
#define T float       // probabilities
#define Y i32         // classes that are drawn
#include "team.cuh"
#include "keys.cuh"
#include "draw.cuh"
#include "fault.cuh"
#endif

// -- classes --------------------------------------------------------------------------------------

// Writes the running sums of each row. Reports a row with a negative number, a NaN or the sum 0.
extern "C" __global__ void add_up(
    double *sums, const T *x, i64 rows, i64 classes, device_fault *fault, i64 op, i64 want)
{
  EACH(row, rows)
  {
    double sum = 0;
    bool good = true;
    for (i64 k = row * classes; k < (row + 1) * classes; k++) {
      double p = get<double>(x[k]);
      good &= p >= 0;
      sums[k] = sum += p;
    }
    if (!good || !(sum > 0)) report_fault(fault, op, want, row, BAD_ROW);
  }
}

// Draws `each` classes for each row. ln_p: the logarithms of their probabilities. y or ln_p may be
// NULL.
extern "C" __global__ void draw_classes(Y *y, T *ln_p, const double *sums, const T *x, i64 n,
    i64 each, i64 classes, const struct draw_key __grid_constant__ key)
{
  EACH(i, n)
  {
    i64 row = i / each * classes, k = choose_class(sums + row, classes, draw_unit(key, i, 0));
    if (y) set(y[i], k);
    if (ln_p) set(ln_p[i], log(get<double>(x[row + k])));
  }
}

// Writes to dx the sum of g / p over the draws of each class, in order.
extern "C" __global__ void draw_classes_back(
    T *dx, const T *g, const T *x, const Y *drawn, i64 n, i64 each, i64 classes)
{
  EACH(i, n)
  {
    i64 first = i / classes * each;
    T sum;
    set(sum, 0.0);
    for (i64 j = first; j < first + each; j++)
      if (index_at(drawn[j], classes) == i % classes)
        set(sum, get<double>(sum) + get<double>(g[j]) / get<double>(x[i]));
    dx[i] = sum;
  }
}

// -- numbers without repetition -------------------------------------------------------------------

struct zipfian_args { i64 rows, each, max, slots; double turns; };

// Draws `each` different numbers for each row. slot: hash tables, initially 0. y and tries may be
// NULL.
extern "C" __global__ void unique_zipfian(i64 *y, i64 *tries, i64 *slot,
    const struct zipfian_args __grid_constant__ s, const struct draw_key __grid_constant__ key)
{
  EACH(row, s.rows)
  {
    i64 round = 0;
    for (i64 found = 0; found < s.each;) {
      i64 v = zipfian_number(draw_unit(key, row, round++), s.turns, s.max);
      if (!insert_number((int64_t *)slot + row * s.slots, s.slots, v)) continue;
      if (y) y[row * s.each + found] = v;
      found++;
    }
    if (tries) tries[row] = round;
  }
}

// -- permutations: the position of an entry after all steps of a Fisher-Yates shuffle -------------
// Step i moves entry i to position j(i). It stays there until the next step k with j(k) = j(i)
// moves it to position k, and there until the first step after k with j = k. So sorting the steps
// by position suffices; on average an entry moves less than ln n times.

// Writes the steps of the shuffle, with the positions that they draw as keys.
extern "C" __global__ void list_steps(
    sort_key *step, i64 n, const struct draw_key __grid_constant__ key)
{
  EACH(i, n) step[i] = { (u64)position_of_step(i, draw_unit(key, i, 0)), i };
}

FN i64 next_here(const sort_key *step, i64 n, i64 q)
{
  return q + 1 < n && step[q + 1].key == step[q].key ? step[q + 1].index : 0;
}

// Writes to leaves[p], initially 0, the first step after p that moves the entry at position p; 0 if
// there is none.
extern "C" __global__ void first_steps(i64 *leaves, const sort_key *step, i64 n)
{
  EACH(q, n)
  {
    i64 position = (i64)step[q].key;
    if (q && (i64)step[q - 1].key == position) continue;
    leaves[position] = step[q].index > position ? step[q].index : next_here(step, n, q);
  }
}

extern "C" __global__ void order_entries(
    i64 *order, const i64 *leaves, const sort_key *step, i64 n)
{
  EACH(q, n)
  {
    i64 position = (i64)step[q].key;
    for (i64 k = next_here(step, n, q); k; k = leaves[k]) position = k;
    order[position] = step[q].index;
  }
}
