// reduce.cu - sums and other reductions over axes. The shape is given as groups of axes,
// alternately kept and reduced. Method: one team per result; its threads walk the reduced groups in
// strides, and their results are joined in a fixed tree. If neighbours in memory belong to
// neighbouring results, one thread per result. If results are few, the reduced elements are cut
// into parts, which depend only on the shape, and merge_parts joins these. A thread loads PACK
// neighbours of one result, or LANES neighbours of neighbouring results, up to 16 bytes at once,
// where alignment allows it. Floats are reduced in double, half types in float, integers and bools
// in 64 bits. Elements are in an array, or a pointwise program (cuda/pointwise.c), whose text then
// precedes this one, computes them. Bound: bytes, one read.
#ifndef T
#include "prelude.cuh"
#define T float
#define TO float
#define REDUCTION reduce_sum
#define FINISH 0     // 1: divides by the count; 2: takes the square root
#define ADD 0        // 1: adds to the elements of the result
#define KEPT 2       // groups of kept axes; REDUCED: of reduced ones
#define REDUCED 1
#define TEAM 256
#include "team.cuh"
#endif
#ifndef PACK
#define PACK 1
#endif
#ifndef LANES
#define LANES 1
#endif

typedef accumulates<T>::type A;
enum { WIDTH = PACK * LANES };

// -- reductions of a: start() is its first value, step() adds v (c: centre, w: second array) ------

struct reduce_adds {
  static FN_IN_STRUCT A start() { return 0; }
  FN_IN_STRUCT A operator()(A a, A b) const { return plus(a, b); }
};
struct reduce_multiplies {
  static FN_IN_STRUCT A start() { return 1; }
  FN_IN_STRUCT A operator()(A a, A b) const { return times(a, b); }
};
// A NaN is the extreme of all elements.
struct reduce_max {
  static FN_IN_STRUCT A start() { return lowest(A()); }
  static FN_IN_STRUCT A step(A a, A v, A, A) { return v > a || is_nan(v) ? v : a; }
  FN_IN_STRUCT A operator()(A a, A b) const { return step(a, b, 0, 0); }
};
struct reduce_min {
  static FN_IN_STRUCT A start() { return highest(A()); }
  static FN_IN_STRUCT A step(A a, A v, A, A) { return v < a || is_nan(v) ? v : a; }
  FN_IN_STRUCT A operator()(A a, A b) const { return step(a, b, 0, 0); }
};

#define REDUCES(name, base, expression) \
  struct name : base { \
    static FN_IN_STRUCT A step(A a, A v, A c, A w) { return base()(a, expression); } \
  };
REDUCES(reduce_sum,     reduce_adds,       v)
REDUCES(reduce_nansum,  reduce_adds,       is_nan(v) ? 0 : v)
REDUCES(reduce_abs,     reduce_adds,       v < 0 ? times(v, -1) : v)
REDUCES(reduce_square,  reduce_adds,       times(v, v))
REDUCES(reduce_prod,    reduce_multiplies, v)
REDUCES(reduce_nanprod, reduce_multiplies, is_nan(v) ? 1 : v)
REDUCES(reduce_deviation,  reduce_adds,       times(v - c, v - c))
REDUCES(reduce_dot,     reduce_adds,       times(v, w - c))

// -- the kernels ----------------------------------------------------------------------------------

#ifdef POINTWISE
typedef pw::pointwise_args elements;
#define ELEMENTS const elements __grid_constant__
FN lanes<T, WIDTH> elements_of(const elements &x, i64 i)
{
  auto bits = pw::element(x, i);
  lanes<T, WIDTH> y;
  memcpy(&y, &bits, sizeof y);
  return y;
}
#else
#define ELEMENTS const T *
FN lanes<T, WIDTH> elements_of(const T *x, i64 i) { return *(const lanes<T, WIDTH> *)&x[i]; }
#endif

struct reduce_args {
  i64 results, count, parts;
  i64 kept[KEPT][2];     // size, stride; outermost first
  i64 reduced[REDUCED][2];
};

// The type in which results are finished: double if whole numbers become floats.
template <bool WIDER> struct finishes { typedef A type; };
template <> struct finishes<true> { typedef double type; };
typedef finishes<(A)0.5 == 0 && (accumulates<TO>::type)0.5 != 0>::type F;

// Returns a sum in the type in which results are finished. A sum of integers is first stored in
// their own type and may wrap around, since their mean is that of such a sum.
FN F narrowed(A a)
{
  bool whole = (F)0.5 == 0;
  TO y;
  set(y, a);
  return whole ? get<F>(y) : (F)a;
}

FN F finished(A a, i64 count)
{
  if (FINISH == 1) return over(narrowed(a), (F)count);
  return FINISH == 2 ? (F)sqrt_of((double)a) : (F)a;
}

FN void store(TO &y, A a, i64 count)
{
  F v = finished(a, count);
  set(y, ADD ? plus(v, get<F>(y)) : v);
}

// Reduces. part: receives the result of each part; NULL: there is one part, and y is written.
extern "C" __global__ void reduce(TO *y, A *part, ELEMENTS x, const T *w, const TO *centre,
    const struct reduce_args __grid_constant__ s)
{
  const i64 groups = s.results / LANES, packs = s.count / PACK;
  EACH_ROW(u, groups * s.parts)
  {
    const i64 to = u % groups * LANES, p = u / groups;
    const i64 begin = p * packs / s.parts, end = (p + 1) * packs / s.parts;
    INDEX from = offset_in<KEPT>((INDEX)to, s.kept);
    A c[LANES], a[WIDTH];
    for (int l = 0; l < LANES; l++) c[l] = centre ? get<A>(centre[to + l]) : 0;
    for (int l = 0; l < WIDTH; l++) a[l] = REDUCTION::start();
    EACH_OF_TEAM(i, begin, end)
    {
      const INDEX at = from + offset_in<REDUCED>((INDEX)(i * PACK), s.reduced);
      const lanes<T, WIDTH> v = elements_of(x, at);
      lanes<T, WIDTH> v2;
      if (w) v2 = *(const lanes<T, WIDTH> *)&w[at];
      for (int l = 0; l < WIDTH; l++)
        a[l] = REDUCTION::step(a[l], get<A>(v.at[l]), c[l % LANES], w ? get<A>(v2.at[l]) : 0);
    }
    for (int l = 1; l < PACK; l++) a[0] = REDUCTION()(a[0], a[l]);
    for (int l = 0; l < LANES; l++) {
      a[l] = team_reduce(a[l], REDUCTION());
      if (!LEADS) continue;
      if (part)
        part[p * s.results + to + l] = a[l];
      else
        store(y[to + l], a[l], s.count);
    }
  }
}

extern "C" __global__ void merge_parts(TO *y, const A *part, i64 results, i64 parts, i64 count)
{
  EACH_ROW(to, results)
  {
    A a = REDUCTION::start();
    EACH_OF_TEAM(p, 0, parts) a = REDUCTION()(a, part[p * results + to]);
    a = team_reduce(a, REDUCTION());
    if (LEADS) store(y[to], a, count);
  }
}
