// prelude.cuh - shared by all families: element types as the engine stores them, and their
// conversion to numbers. Half types are read as float, and stored rounded to nearest even; floats
// become integers as in C casts on the CPU (base/convert.h). It precedes the source of each family;
// nvcc reads it, too.
#pragma once
typedef long long i64;
typedef unsigned long long u64;
typedef int i32;
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef signed char i8;
struct alignas(16) u128 { u64 at[2]; };
#define FN static __device__ __forceinline__
#define FN_IN_STRUCT __device__ __forceinline__
#if defined(__CUDACC_RTC__) && !defined(__CUDASIM__)
typedef unsigned uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#endif
#ifndef NAN
#define NAN __uint_as_float(0x7fc00000u)
#endif
#ifndef INFINITY
#define INFINITY __uint_as_float(0x7f800000u)
#endif
#define TY_DEVICE_FN FN
#define TY_LN_GAMMA lgamma

#ifdef __CUDASIM__
FN float half_bits_to_float(u16 h) { return cudasim_from_half(h); }
FN u16 float_to_half_bits(float f) { return cudasim_to_half(f); }
#else
FN float half_bits_to_float(u16 h)
{
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
FN u16 float_to_half_bits(float f)
{
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return f != f ? (u16)0x7e00 : h;
}
#endif
// Returns v, with any NaN replaced by the quiet NaN without payload, since the NaN of the hardware
// has a payload and may change its sign.
template <typename N> FN N plain(N v) { return v; }
template <> __device__ __forceinline__ float plain<float>(float v) { return v != v ? NAN : v; }
template <> __device__ __forceinline__ double plain<double>(double v)
{
  return v != v ? (double)NAN : v;
}

FN float bf16_bits_to_float(u16 h) { return __uint_as_float((unsigned)h << 16); }
FN u16 float_to_bf16_bits(float f)
{
  unsigned u = __float_as_uint(f);
  return f != f ? (u16)0x7fc0 : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
FN i32 to_i32(double v) { return v > -2147483649.0 && v < 2147483648.0 ? (i32)v : (i32)0x80000000; }
FN i64 to_i64(double v)
{
  return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (i64)v
                                                                  : (i64)0x8000000000000000ULL;
}

// Distinct types for 16-bit floats and booleans, so that loads and stores convert by type.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct bool8 { u8 byte; };

// N neighbours, moved by one load or store.
template <typename T, int N> struct alignas(N * sizeof(T)) lanes { T at[N]; };

// The type of sums of T: float for half types, double for other floats, else 64-bit integers.
template <typename T> struct accumulates { typedef i64 type; };
template <> struct accumulates<float> { typedef double type; };
template <> struct accumulates<double> { typedef double type; };
template <> struct accumulates<f16> { typedef float type; };
template <> struct accumulates<bf16> { typedef float type; };

// The type of arithmetic on elements: double for double, else float.
template <typename T> struct computes { typedef float type; };
template <> struct computes<double> { typedef double type; };

// The type of sums in the precision of N itself: float for half types, 64-bit integers for
// integers.
template <typename N> struct own_precision { typedef i64 type; };
template <> struct own_precision<float> { typedef float type; };
template <> struct own_precision<double> { typedef double type; };
template <> struct own_precision<f16> { typedef float type; };
template <> struct own_precision<bf16> { typedef float type; };

// get<A>(x) returns the number x as an A (float, double, i32, i64).
template <typename A> FN A whole_or_real(double v) { return (A)v; }
template <> __device__ __forceinline__ i32 whole_or_real<i32>(double v) { return to_i32(v); }
template <> __device__ __forceinline__ i64 whole_or_real<i64>(double v) { return to_i64(v); }
template <typename A> FN A get(float x) { return whole_or_real<A>((double)x); }
template <> __device__ __forceinline__ float get<float>(float x) { return x; }
template <typename A> FN A get(double x) { return whole_or_real<A>(x); }
template <typename A> FN A get(f16 x) { return get<A>(half_bits_to_float(x.bits)); }
template <typename A> FN A get(bf16 x) { return get<A>(bf16_bits_to_float(x.bits)); }
template <typename A> FN A get(bool8 x) { return (A)(x.byte != 0); }
template <typename A> FN A get(u8 x) { return (A)x; }
template <typename A> FN A get(i8 x) { return (A)x; }
template <typename A> FN A get(i32 x) { return (A)x; }
template <typename A> FN A get(i64 x) { return (A)x; }

// set(to, v) stores the number v, rounded to the type of `to` as on the CPU.
template <typename A> FN void set(float &to, A v) { to = plain((float)v); }
template <typename A> FN void set(double &to, A v) { to = plain((double)v); }
template <typename A> FN void set(f16 &to, A v) { to.bits = float_to_half_bits((float)v); }
template <typename A> FN void set(bf16 &to, A v) { to.bits = float_to_bf16_bits((float)v); }
template <typename A> FN void set(bool8 &to, A v) { to.byte = v != 0; }
FN i32 as_i32(float v) { return to_i32((double)v); }
FN i32 as_i32(double v) { return to_i32(v); }
FN i32 as_i32(i32 v) { return v; }
FN i32 as_i32(i64 v) { return (i32)v; }
FN i64 as_i64(float v) { return to_i64((double)v); }
FN i64 as_i64(double v) { return to_i64(v); }
FN i64 as_i64(i32 v) { return v; }
FN i64 as_i64(i64 v) { return v; }
template <typename A> FN void set(u8 &to, A v) { to = (u8)as_i32(v); }
template <typename A> FN void set(i8 &to, A v) { to = (i8)as_i32(v); }
template <typename A> FN void set(i32 &to, A v) { to = as_i32(v); }
template <typename A> FN void set(i64 &to, A v) { to = as_i64(v); }

FN float exp_of(float x) { return expf(x); }
FN double exp_of(double x) { return exp(x); }
FN float log_of(float x) { return logf(x); }
FN double log_of(double x) { return log(x); }
FN float sqrt_of(float x) { return sqrtf(x); }
FN double sqrt_of(double x) { return sqrt(x); }
FN float tanh_of(float x) { return tanhf(x); }
FN double tanh_of(double x) { return tanh(x); }
template <typename A> FN A infinity() { return (A)__uint_as_float(0x7f800000u); }

FN bool is_nan(float v) { return v != v; }
FN bool is_nan(double v) { return v != v; }
FN bool is_nan(i64) { return false; }
// plus() and times(): integers wrap around.
FN i64 plus(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
FN i64 times(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
FN float plus(float a, float b) { return a + b; }
FN float times(float a, float b) { return a * b; }
FN double plus(double a, double b) { return a + b; }
FN double times(double a, double b) { return a * b; }
FN i64 over(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? times(a, -1) : a / b; }
FN float over(float a, float b) { return a / b; }
FN double over(double a, double b) { return a / b; }
FN float lowest(float) { return -infinity<float>(); }
FN double lowest(double) { return -infinity<double>(); }
FN i64 lowest(i64) { return (i64)0x8000000000000000ULL; }
FN float highest(float) { return infinity<float>(); }
FN double highest(double) { return infinity<double>(); }
FN i64 highest(i64) { return 0x7fffffffffffffffLL; }

// Loops over elements 0 .. n - 1, distributed over all threads of a grid of any size.
#define EACH(i, n) \
 for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
