/* halves.h - __half and __nv_bfloat16. They are stored in 16 bits. Arithmetic is done in float and
** rounded to nearest even, which gives what a GPU's half instructions give for one operation. */
#pragma once

#define CUDASIM_HALF_TYPE(type, raw, kind) \
  struct raw { unsigned short x; }; \
  struct type { \
    unsigned short bits; \
    type() = default; \
    type(raw r) : bits(r.x) {} \
    type(float f) : bits(cudasim_to_##kind(f)) {} \
    type(double f) : bits(cudasim_to_##kind((float)f)) {} \
    type(int i) : bits(cudasim_to_##kind((float)i)) {} \
    type(unsigned i) : bits(cudasim_to_##kind((float)i)) {} \
    type(long long i) : bits(cudasim_to_##kind((float)i)) {} \
    operator raw() const { return { bits }; } \
    operator float() const { return cudasim_from_##kind(bits); } \
    type &operator+=(type o) { return *this = type((float)*this + (float)o); } \
    type &operator-=(type o) { return *this = type((float)*this - (float)o); } \
    type &operator*=(type o) { return *this = type((float)*this * (float)o); } \
    type &operator/=(type o) { return *this = type((float)*this / (float)o); } \
  }; \
  static inline type operator+(type a, type b) { return type((float)a + (float)b); } \
  static inline type operator-(type a, type b) { return type((float)a - (float)b); } \
  static inline type operator*(type a, type b) { return type((float)a * (float)b); } \
  static inline type operator/(type a, type b) { return type((float)a / (float)b); } \
  static inline type operator-(type a) { return type(raw{ (unsigned short)(a.bits ^ 0x8000) }); } \
  static inline bool operator==(type a, type b) { return (float)a == (float)b; } \
  static inline bool operator!=(type a, type b) { return (float)a != (float)b; } \
  static inline bool operator<(type a, type b) { return (float)a < (float)b; } \
  static inline bool operator>(type a, type b) { return (float)a > (float)b; } \
  static inline bool operator<=(type a, type b) { return (float)a <= (float)b; } \
  static inline bool operator>=(type a, type b) { return (float)a >= (float)b; } \
  static inline type __hadd(type a, type b) { return a + b; } \
  static inline type __hsub(type a, type b) { return a - b; } \
  static inline type __hmul(type a, type b) { return a * b; } \
  static inline type __hdiv(type a, type b) { return a / b; } \
  static inline type __hneg(type a) { return -a; } \
  static inline type __habs(type a) { return type(raw{ (unsigned short)(a.bits & 0x7fff) }); } \
  static inline type __hfma(type a, type b, type c) { return type(fmaf(a, b, c)); } \
  static inline type __hmin(type a, type b) { return type(fminf(a, b)); } \
  static inline type __hmax(type a, type b) { return type(fmaxf(a, b)); } \
  static inline bool __hlt(type a, type b) { return a < b; } \
  static inline bool __hgt(type a, type b) { return a > b; } \
  static inline bool __heq(type a, type b) { return a == b; } \
  static inline bool __hisnan(type a) { return a != a; } \
  static inline type hexp(type a) { return type(expf(a)); } \
  static inline type hlog(type a) { return type(logf(a)); } \
  static inline type hsqrt(type a) { return type(sqrtf(a)); } \
  static inline type hrsqrt(type a) { return type(rsqrtf(a)); } \
  static inline type hrcp(type a) { return type(1 / (float)a); } \
  static inline type htanh(type a) { return type(tanhf(a)); } \
  struct alignas(4) type##2 { type x, y; };

CUDASIM_HALF_TYPE(__half, __half_raw, half)
CUDASIM_HALF_TYPE(__nv_bfloat16, __nv_bfloat16_raw, bfloat)
#undef CUDASIM_HALF_TYPE
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __half2float(__half h) { return h; }
static inline __half __float2half(float f) { return __half(f); }
static inline __half __float2half_rn(float f) { return __half(f); }
static inline __half __double2half(double f) { return __half(f); }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline short __half_as_short(__half h) { return (short)h.bits; }
static inline __half __ushort_as_half(unsigned short u) { return __half_raw{ u }; }
static inline __half __short_as_half(short u) { return __half_raw{ (unsigned short)u }; }
static inline __half2 __halves2half2(__half a, __half b) { return { a, b }; }
static inline __half2 __half2half2(__half a) { return { a, a }; }
static inline __half2 __floats2half2_rn(float a, float b) { return { __half(a), __half(b) }; }
static inline __half2 __float22half2_rn(float2 v) { return { __half(v.x), __half(v.y) }; }
static inline float2 __half22float2(__half2 v) { return { (float)v.x, (float)v.y }; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline float __low2float(__half2 v) { return v.x; }
static inline float __high2float(__half2 v) { return v.y; }

static inline float __bfloat162float(__nv_bfloat16 h) { return h; }
static inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
static inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
static inline __nv_bfloat16 __double2bfloat16(double f) { return __nv_bfloat16(f); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u)
{
  return __nv_bfloat16_raw{ u };
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
  return { a, b };
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
  return { __nv_bfloat16(a), __nv_bfloat16(b) };
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return { (float)v.x, (float)v.y }; }
static inline float __low2float(__nv_bfloat162 v) { return v.x; }
static inline float __high2float(__nv_bfloat162 v) { return v.y; }

#define CUDASIM_HALF_PAIRS(type) \
  static inline type operator+(type a, type b) { return { a.x + b.x, a.y + b.y }; } \
  static inline type operator-(type a, type b) { return { a.x - b.x, a.y - b.y }; } \
  static inline type operator*(type a, type b) { return { a.x * b.x, a.y * b.y }; } \
  static inline type __hadd2(type a, type b) { return a + b; } \
  static inline type __hmul2(type a, type b) { return a * b; } \
  static inline type __hfma2(type a, type b, type c) \
  { \
    return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; \
  }
CUDASIM_HALF_PAIRS(__half2)
CUDASIM_HALF_PAIRS(__nv_bfloat162)
#undef CUDASIM_HALF_PAIRS
