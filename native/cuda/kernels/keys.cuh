// keys.cuh - the pairs that sort.cu sorts: a key, and the index of the element that it belongs to.
// Keys are unsigned integers in the order of the numbers that they represent.
#pragma once
struct sort_key { u64 key; i64 index; };

// Returns a key that sorts the highest score first; NaN sorts like -infinity.
FN u64 best_first(double v)
{
  const u64 sign = 0x8000000000000000ULL;
  u64 bits = (u64)__double_as_longlong((v == v ? v : -INFINITY) + 0.0);
  return ~(bits & sign ? ~bits : bits | sign);
}

// Returns the key of an element, as wide as the element. NaN is above all numbers, -0 equals 0.
FN u64 order_of(u8 v) { return v; }
FN u64 order_of(i8 v) { return (u8)(v ^ 0x80); }
FN u64 order_of(bool8 v) { return v.byte != 0; }
FN u64 order_of(i32 v) { return (u32)v ^ 0x80000000u; }
FN u64 order_of(i64 v) { return (u64)v ^ 0x8000000000000000ull; }
FN u64 order_of(float v)
{
  if (v != v) return 0xffffffffu;
  const u32 bits = __float_as_uint(v + 0.0f);    // -0 becomes 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
FN u64 order_of(double v)
{
  const u64 sign = 0x8000000000000000ull;
  if (v != v) return ~0ull;
  const u64 bits = (u64)__double_as_longlong(v + 0.0);
  return bits & sign ? ~bits : bits | sign;
}
FN u64 order_of_half(u32 bits, bool nan)
{
  if (nan) return 0xffffu;
  if (bits == 0x8000u) bits = 0;
  return bits & 0x8000u ? ~bits & 0xffffu : bits | 0x8000u;
}
FN u64 order_of(f16 v) { return order_of_half(v.bits, is_nan(get<float>(v))); }
FN u64 order_of(bf16 v) { return order_of_half(v.bits, is_nan(get<float>(v))); }
