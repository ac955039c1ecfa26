// fourier.cu - Fourier transforms of rows of n pairs (real, imaginary), in double. Method:
// Stockham's algorithm, one pass per prime factor p of n, one thread per output of a pass, which
// adds p products; the result is in order without a permutation. Bound: bytes of the passes.
#ifndef T
#include "prelude.cuh"
#define T float
#include "team.cuh"
#endif

struct pair { double re, im; };

// Writes the n roots of unity; root k is e^(-2 pi i k / n).
extern "C" __global__ void make_roots(pair *root, i64 n)
{
  EACH(k, n)
  {
    double angle = 2 * 3.14159265358979323846 * (double)k / (double)n;
    root[k] = { cos(angle), -sin(angle) };
  }
}

// Reads real numbers, or with `pairs` the conjugates of pairs.
extern "C" __global__ void read_rows(pair *to, const T *x, i64 count, i32 pairs)
{
  EACH(i, count)
  {
    if (pairs)
      to[i] = { (double)x[2 * i], -(double)x[2 * i + 1] };
    else
      to[i] = { (double)x[i], 0 };
  }
}

extern "C" __global__ void write_rows(T *y, const pair *from, i64 count, i32 pairs)
{
  EACH(i, count)
  {
    if (!pairs) {
      set(y[i], from[i].re);
      continue;
    }
    set(y[2 * i], from[i].re);
    set(y[2 * i + 1], from[i].im);
  }
}

// Makes one pass: splits each transform of n / step numbers, of which `step` are interleaved, into
// p transforms of a p-th of its length.
extern "C" __global__ void fourier_pass(
    pair *to, const pair *from, const pair *root, i64 count, i64 n, i64 step, i64 p)
{
  const i64 m = n / step / p;
  EACH(i, count)
  {
    i64 at = i % n, q = at % step, r = at / step % p, j = at / step / p;
    const pair *x = from + (i - at) + q + step * j;
    pair sum = { 0, 0 };
    for (i64 u = 0; u < p; u++) {
      pair w = root[u * r % p * (n / p)], v = x[u * m * step];
      sum.re += w.re * v.re - w.im * v.im;
      sum.im += w.re * v.im + w.im * v.re;
    }
    pair w = root[j * r * step % n];
    to[i] = { sum.re * w.re - sum.im * w.im, sum.re * w.im + sum.im * w.re };
  }
}
