// sequence.cu - sequences of unequal length in (steps, batch, row), or (batch, steps, row): masks
// the steps after their ends, copies their last steps, reverses them. Elements are copied as bits.
// Method: one thread per element that is written. Bound: bytes.
#ifndef UNIT
#include "prelude.cuh"
#define UNIT u32
#define L float      // lengths
#define BATCH_FIRST 0
#include "team.cuh"
#endif

struct sequence_args { i64 n, steps, batch, row; };
struct sequence_position { i64 t, n, x; };

FN i64 offset_of(const sequence_args &s, i64 t, i64 n, i64 x)
{
  return (BATCH_FIRST ? n * s.steps + t : t * s.batch + n) * s.row + x;
}
FN sequence_position position_of(const sequence_args &s, i64 i)
{
  i64 rows = i / s.row, x = i % s.row, inner = BATCH_FIRST ? s.steps : s.batch;
  i64 first = rows / inner, second = rows % inner;
  return { BATCH_FIRST ? second : first, BATCH_FIRST ? first : second, x };
}
// Returns the length of sequence n, clipped to 0 .. steps; `steps` if length is NULL.
FN i64 length_of(const sequence_args &s, const L *length, i64 n)
{
  return length ? index_at(length[n], s.steps + 1) : s.steps;
}
FN i64 last_of(const sequence_args &s, const L *length, i64 n)
{
  i64 steps = length_of(s, length, n);
  return steps > 0 ? steps - 1 : 0;
}

extern "C" __global__ void mask(UNIT *y, const UNIT *x, const L *length, u64 value,
    const struct sequence_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    sequence_position p = position_of(s, i);
    y[i] = p.t < length_of(s, length, p.n) ? x[i] : (UNIT)value;
  }
}

extern "C" __global__ void turn(
    UNIT *y, const UNIT *x, const L *length, const struct sequence_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    sequence_position p = position_of(s, i);
    i64 steps = length_of(s, length, p.n), t = p.t < steps ? steps - 1 - p.t : p.t;
    y[i] = x[offset_of(s, t, p.n, p.x)];
  }
}

// Copies the last step of each sequence to y (batch, row), of s.n elements.
extern "C" __global__ void last(
    UNIT *y, const UNIT *x, const L *length, const struct sequence_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    i64 n = i / s.row;
    y[i] = x[offset_of(s, last_of(s, length, n), n, i % s.row)];
  }
}

extern "C" __global__ void last_back(
    UNIT *dx, const UNIT *dy, const L *length, const struct sequence_args __grid_constant__ s)
{
  EACH(i, s.n)
  {
    sequence_position p = position_of(s, i);
    dx[i] = p.t == last_of(s, length, p.n) ? dy[p.n * s.row + p.x] : (UNIT)0;
  }
}
