/* maths.h - mathematical functions: those of the C library, those that it lacks, and the fast
** forms, which are the exact ones here (macros, since glibc has functions of some of these
** names). Forms with a rounding (_rn) are not contracted; sources are compiled without
** contraction anyway. */
#pragma once

extern "C" {
double cudasim_erfinv(double x);
double cudasim_normcdfinv(double x);
}
#define CUDASIM_BOTH(name, expression) \
  static inline double name(double x) { return expression; } \
  static inline float name##f(float a) { double x = (double)a; return (float)(expression); }
CUDASIM_BOTH(rsqrt, 1 / sqrt(x))
CUDASIM_BOTH(rcbrt, 1 / cbrt(x))
CUDASIM_BOTH(erfinv, cudasim_erfinv(x))
CUDASIM_BOTH(erfcinv, cudasim_erfinv(1 - x))
CUDASIM_BOTH(normcdf, 0.5 * erfc(-x * 0.70710678118654752440))
CUDASIM_BOTH(normcdfinv, cudasim_normcdfinv(x))
CUDASIM_BOTH(erfcx, exp(x * x) * erfc(x))
CUDASIM_BOTH(sinpi, sin(3.14159265358979323846 * fmod(x, 2)))
CUDASIM_BOTH(cospi, cos(3.14159265358979323846 * fmod(x, 2)))
#undef CUDASIM_BOTH

/* -- fast forms -------------------------------------------------------------------------------- */

#define __expf expf
#define __exp10f(x) powf(10, x)
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __tanhf tanhf
#define __sincosf sincosf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }

/* -- rounding ---------------------------------------------------------------------------------- */

#define CUDASIM_ROUNDED(prefix, T, suffix) \
  static inline T __##prefix##add_rn(T a, T b) { return a + b; } \
  static inline T __##prefix##sub_rn(T a, T b) { return a - b; } \
  static inline T __##prefix##mul_rn(T a, T b) { return a * b; } \
  static inline T __##prefix##div_rn(T a, T b) { return a / b; } \
  static inline T __##prefix##sqrt_rn(T a) { return sqrt(a); } \
  static inline T __##prefix##rcp_rn(T a) { return 1 / a; }
CUDASIM_ROUNDED(f, float, f)
CUDASIM_ROUNDED(d, double, )
#undef CUDASIM_ROUNDED
static inline float __frsqrt_rn(float x) { return (float)(1 / sqrt((double)x)); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

/* Converts to an integer as a GPU does where C leaves it undefined: the nearest one, and 0 for
** NaN. */
template <class I, class F> static inline I cudasim_whole(F x)
{
  constexpr F top = (F)((I)1 << (sizeof(I) * 8 - 2)) * (std::is_signed<I>::value ? 2 : 4);
  if (x != x) return 0;
  if (x >= top) return (I)~(std::is_signed<I>::value ? (I)1 << (sizeof(I) * 8 - 1) : (I)0);
  if (std::is_signed<I>::value && x < -top) return (I)((I)1 << (sizeof(I) * 8 - 1));
  return std::is_signed<I>::value || x > 0 ? (I)x : (I)0;
}
#define CUDASIM_CONVERT(from, to, F, I) \
  static inline I __##from##2##to##_rn(F x) { return cudasim_whole<I>(rint(x)); } \
  static inline I __##from##2##to##_rz(F x) { return cudasim_whole<I>(trunc(x)); } \
  static inline I __##from##2##to##_rd(F x) { return cudasim_whole<I>(floor(x)); } \
  static inline I __##from##2##to##_ru(F x) { return cudasim_whole<I>(ceil(x)); }
CUDASIM_CONVERT(float, int, float, int)
CUDASIM_CONVERT(float, uint, float, unsigned)
CUDASIM_CONVERT(float, ll, float, long long)
CUDASIM_CONVERT(float, ull, float, unsigned long long)
CUDASIM_CONVERT(double, int, double, int)
CUDASIM_CONVERT(double, uint, double, unsigned)
CUDASIM_CONVERT(double, ll, double, long long)
CUDASIM_CONVERT(double, ull, double, unsigned long long)
#undef CUDASIM_CONVERT
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __ll2float_rn(long long x) { return (float)x; }
static inline float __ull2float_rn(unsigned long long x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }
static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }
static inline double __ll2double_rn(long long x) { return (double)x; }
static inline double __ull2double_rn(unsigned long long x) { return (double)x; }

/* -- the smaller and the larger ---------------------------------------------------------------- */

/* Returns the smaller number (max: the larger one) in the common type; of a NaN and a number the
** number, as fmin does. */
template <class A, class B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
    std::common_type_t<A, B>>
min(A a, B b)
{
  typedef std::common_type_t<A, B> T;
  if constexpr (std::is_floating_point_v<T>) return (T)fmin((T)a, (T)b);
  else return (T)b < (T)a ? (T)b : (T)a;
}

template <class A, class B>
static inline std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>,
    std::common_type_t<A, B>>
max(A a, B b)
{
  typedef std::common_type_t<A, B> T;
  if constexpr (std::is_floating_point_v<T>) return (T)fmax((T)a, (T)b);
  else return (T)a < (T)b ? (T)b : (T)a;
}
static inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
static inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
static inline long long llmin(long long a, long long b) { return b < a ? b : a; }
static inline long long llmax(long long a, long long b) { return a < b ? b : a; }
