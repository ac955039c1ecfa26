/* numbers.h - the numbers that libraries' tensors hold, as doubles and floats. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
float cudasim_from_half(uint16_t);
uint16_t cudasim_to_half(float);
float cudasim_from_bfloat(uint16_t);
uint16_t cudasim_to_bfloat(float);
}

namespace cudasim {

enum Number { F32, F64, F16, BF16, I8, U8, I32, I64, NUMBERS };

inline size_t size_of(Number t)
{
  static const size_t bytes[] = { 4, 8, 2, 2, 1, 1, 4, 8 };
  return bytes[t];
}

inline double load_number(const void *p, Number t, int64_t i)
{
  switch (t) {
  case F32: return ((const float *)p)[i];
  case F64: return ((const double *)p)[i];
  case F16: return cudasim_from_half(((const uint16_t *)p)[i]);
  case BF16: return cudasim_from_bfloat(((const uint16_t *)p)[i]);
  case I8: return ((const int8_t *)p)[i];
  case U8: return ((const uint8_t *)p)[i];
  case I32: return ((const int32_t *)p)[i];
  default: return (double)((const int64_t *)p)[i];
  }
}

/* Rounds to the nearest integer of a type, to even at halves. */
inline double round_within(double v, double least, double most)
{
  v = nearbyint(v);
  return v < least ? least : v > most ? most : v;
}

inline void store_number(void *p, Number t, int64_t i, double v)
{
  switch (t) {
  case F32: ((float *)p)[i] = (float)v; break;
  case F64: ((double *)p)[i] = v; break;
  case F16: ((uint16_t *)p)[i] = cudasim_to_half((float)v); break;
  case BF16: ((uint16_t *)p)[i] = cudasim_to_bfloat((float)v); break;
  case I8: ((int8_t *)p)[i] = (int8_t)round_within(v, -128, 127); break;
  case U8: ((uint8_t *)p)[i] = (uint8_t)round_within(v, 0, 255); break;
  case I32: ((int32_t *)p)[i] = (int32_t)round_within(v, INT32_MIN, INT32_MAX); break;
  default: ((int64_t *)p)[i] = (int64_t)v;
  }
}

}
