// random.cu - random numbers by base/laws.h. Element i depends only on the draw, the node and i.
// Method: one thread per element. Bound: operations of doubles; for uniform numbers, bytes.
#ifndef T
#include "prelude.cuh"
#include "base/laws.h"
#define T float
#include "team.cuh"
#include "fault.cuh"
#endif

#ifndef LAW
#define LAW law_unit24
#endif
#ifndef DRAW
#define DRAW(stream, a, b) law_unit(stream)
#endif
#ifndef P
#define P float       // parameters of elements
#define VALID law_uniform_valid
#endif
#ifndef AFFINE
#define AFFINE law_uniform_affine
#endif

// Writes y = offset + scale z, at most limit.
extern "C" __global__ void standard(T *y, i64 n, const struct rng_key __grid_constant__ key,
    double offset, double scale, double limit)
{
  EACH(i, n)
  {
    struct philox p = philox(key.seed, key.counter, key.node, i);
    T v = (T)(offset + scale * LAW(p.w[0], p.w[1], p.w[2], p.w[3])), most = (T)limit;
    y[i] = v > most ? most : v;
  }
}

extern "C" __global__ void draw(
    T *y, i64 n, const struct rng_key __grid_constant__ key, double a, double b)
{
  EACH(i, n)
  {
    struct element_stream s = stream_of_element(key, i);
    y[i] = (T)DRAW(&s, a, b);
  }
}

extern "C" __global__ void whole_numbers(
    T *y, i64 n, const struct rng_key __grid_constant__ key, i64 low, u64 span)
{
  EACH(i, n)
  {
    struct element_stream s = stream_of_element(key, i);
    y[i] = (T)((u64)low + law_below(&s, span));
  }
}

// -- one row of parameters per `each` elements; b is NULL for laws with one parameter ------------

FN double second_of(const P *b, i64 row) { return b ? get<double>(b[row]) : 0; }

extern "C" __global__ void look(
    const P *a, const P *b, i64 rows, struct device_fault *fault, i64 op, i64 want)
{
  EACH(i, rows)
    if (!VALID(get<double>(a[i]), second_of(b, i)))
      report_fault(fault, op, want, i, BAD_PARAMETERS);
}

extern "C" __global__ void standard_rows(T *y, i64 n, const struct rng_key __grid_constant__ key,
    const P *a, const P *b, i64 each)
{
  EACH(i, n)
  {
    struct philox p = philox(key.seed, key.counter, key.node, i);
    struct law_affine t = AFFINE(get<double>(a[i / each]), second_of(b, i / each), sizeof(T) == 8);
    T v = (T)(t.offset + t.scale * LAW(p.w[0], p.w[1], p.w[2], p.w[3])), most = (T)t.limit;
    y[i] = v > most ? most : v;
  }
}

// Draws `each` numbers for each row of parameters. Parameters outside the law's domain give NaN,
// since a loop of rejections might not end.
extern "C" __global__ void draw_rows(T *y, i64 n, const struct rng_key __grid_constant__ key,
    const P *a, const P *b, i64 each)
{
  EACH(i, n)
  {
    struct element_stream s = stream_of_element(key, i);
    double first = get<double>(a[i / each]), second = second_of(b, i / each);
    y[i] = VALID(first, second) ? (T)DRAW(&s, first, second) : (T)NAN;
  }
}
