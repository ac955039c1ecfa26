// sort.cu - the order of lines of n elements that are `inner` apart: sort, argsort, topk. Elements
// become 64-bit keys of the same order (NaN above all, -0 as 0), of which descending ones are the
// complements; equal ones keep their order. Method: runs of 32 by counting, then merges in which
// each element finds its index by a search in the other run; a thread an element. Bound: bytes of
// the keys, once per pass, of which there are log2(n / 32).
#ifndef T
#include "prelude.cuh"
#define T float
#define POSITION i32    // indices
#define DOWN 1
#include "team.cuh"
#include "keys.cuh"
#endif
#ifndef POSITION
#define POSITION i32
#endif
#ifndef DOWN
#define DOWN 0
#endif

enum { RUN = 32 };

template <typename S> FN u64 key_of(S v)
{
  const u64 sign = 0x8000000000000000ULL;
  if ((S)0.5 == 0) return (u64)v ^ sign;
  if (v != v) return ~0ULL;
  u64 bits = (u64)__double_as_longlong((double)v + 0.0); // -0 becomes 0
  return bits & sign ? ~bits : bits | sign;
}

// element i of line u of an array with `k` elements in a line
FN i64 line_element(i64 u, i64 i, i64 k, i64 inner)
{
  return (u / inner * k + i) * inner + u % inner;
}

extern "C" __global__ void read_keys(sort_key *keys, const T *x, i64 count, i64 n, i64 inner)
{
  EACH(e, count)
  {
    i64 u = e / n, i = e % n;
    u64 key = key_of(get<own_precision<T>::type>(x[line_element(u, i, n, inner)]));
    keys[e] = { DOWN ? ~key : key, i };
  }
}

extern "C" __global__ void sort_runs(sort_key *to, const sort_key *from, i64 count, i64 n)
{
  EACH(e, count)
  {
    i64 i = e % n, begin = e - i % RUN, left = e - i + n - begin;
    i64 end = begin + (left < RUN ? left : RUN), at = begin;
    u64 key = from[e].key;
    for (i64 j = begin; j < end; j++) at += from[j].key < key || (from[j].key == key && j < e);
    to[at] = from[e];
  }
}

// How many of the sorted keys are before one: those below it, and equal ones if `equal`.
FN i64 rank_of(const sort_key *keys, i64 n, u64 key, bool equal)
{
  i64 low = 0, high = n;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if (keys[middle].key < key || (equal && keys[middle].key == key))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Pairs of sorted runs of `width` become one.
extern "C" __global__ void merge_runs(
    sort_key *to, const sort_key *from, i64 count, i64 n, i64 width)
{
  EACH(e, count)
  {
    i64 i = e % n, line = e - i, pair = i - i % (2 * width), middle = pair + width;
    i64 end = middle + width < n ? middle + width : n;
    if (middle >= n) {
      to[e] = from[e];
      continue;
    }
    bool second = i >= middle;
    const sort_key *other = from + line + (second ? pair : middle);
    i64 size = second ? width : end - middle;
    i64 own = second ? i - middle : i - pair;
    to[line + pair + own + rank_of(other, size, from[e].key, second)] = from[e];
  }
}

// The first k keys of each line: elements, their places, ones at these places in an array of zeros;
// what is NULL is not asked for.
extern "C" __global__ void write_order(T *value, POSITION *index, T *mask, const T *x,
    const sort_key *keys, i64 count, i64 n, i64 k, i64 inner)
{
  EACH(e, count)
  {
    i64 u = e / k, i = e % k, from = keys[u * n + i].index;
    i64 source = line_element(u, from, n, inner), target = line_element(u, i, k, inner);
    if (value) value[target] = x[source];
    if (index) set(index[target], from);
    if (mask) set(mask[source], (i64)1);
  }
}

extern "C" __global__ void put_back(
    T *dx, const T *g, const POSITION *index, i64 count, i64 n, i64 k, i64 inner)
{
  EACH(e, count)
  {
    i64 line = e / (k * inner), in = e % inner, j = index_at(index[e], n);
    dx[(line * n + j) * inner + in] = g[e];
  }
}
