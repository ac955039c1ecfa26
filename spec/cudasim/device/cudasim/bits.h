/* bits.h - conversions between numbers and their bits, and operations on bits and bytes. */
#pragma once

static inline float __uint_as_float(unsigned u) { return cudasim_value<float>(u); }
static inline float __int_as_float(int u) { return cudasim_value<float>((unsigned)u); }
static inline unsigned __float_as_uint(float f) { return (unsigned)cudasim_bits(f); }
static inline int __float_as_int(float f) { return (int)cudasim_bits(f); }
static inline long long __double_as_longlong(double d) { return (long long)cudasim_bits(d); }
static inline double __longlong_as_double(long long d)
{
  return cudasim_value<double>((uint64_t)d);
}
static inline int __double2hiint(double d) { return (int)(cudasim_bits(d) >> 32); }
static inline int __double2loint(double d) { return (int)(unsigned)cudasim_bits(d); }
static inline double __hiloint2double(int hi, int lo)
{
  return cudasim_value<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo);
}

static inline int __popc(unsigned u) { return __builtin_popcount(u); }
static inline int __popcll(unsigned long long u) { return __builtin_popcountll(u); }
static inline int __clz(int u) { return u ? __builtin_clz((unsigned)u) : 32; }
static inline int __clzll(long long u) { return u ? __builtin_clzll((unsigned long long)u) : 64; }
static inline int __ffs(int u) { return __builtin_ffs(u); }
static inline int __ffsll(long long u) { return __builtin_ffsll(u); }

static inline unsigned long long __brevll(unsigned long long u)
{
  unsigned long long r = 0;
  for (int i = 0; i < 64; i++) r |= (u >> i & 1) << (63 - i);
  return r;
}
static inline unsigned __brev(unsigned u) { return (unsigned)(__brevll(u) >> 32); }

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by)
{
  return (unsigned)(((uint64_t)hi << 32 | lo) << (by & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by)
{
  return (unsigned)(((uint64_t)hi << 32 | lo) >> (by & 31));
}

/* Returns four bytes; byte i is the byte of y:x that nibble i of the selector names. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
  uint64_t all = (uint64_t)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(all >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return r;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
  return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline long long __mul64hi(long long a, long long b)
{
  return (long long)((__int128)a * b >> 64);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }

/* Returns c plus the dot product of four bytes. */
static inline int __dp4a(int a, int b, int c)
{
  for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}

/* loads and stores that say how they use caches */
#define CUDASIM_LOAD(name) template <class T> static inline T name(const T *p) { return *p; }
#define CUDASIM_STORE(name) template <class T> static inline void name(T *p, T v) { *p = v; }
CUDASIM_LOAD(__ldg)
CUDASIM_LOAD(__ldcg)
CUDASIM_LOAD(__ldca)
CUDASIM_LOAD(__ldcs)
CUDASIM_LOAD(__ldlu)
CUDASIM_LOAD(__ldcv)
CUDASIM_STORE(__stwb)
CUDASIM_STORE(__stcg)
CUDASIM_STORE(__stcs)
CUDASIM_STORE(__stwt)
#undef CUDASIM_LOAD
#undef CUDASIM_STORE

/* the 16 bits of half types as numbers; also for sources that would use PTX (see __CUDASIM__) */
extern "C" {
float cudasim_from_half(uint16_t bits);
uint16_t cudasim_to_half(float f);
float cudasim_from_bfloat(uint16_t bits);
uint16_t cudasim_to_bfloat(float f);
}
