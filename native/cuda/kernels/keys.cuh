// keys.cuh - what sort.cu sorts: a key, and whose it is.
#pragma once
struct sort_key { u64 key; i64 index; };

// The key that puts the highest score first; NaN like the lowest.
FN u64 best_first(double v)
{
  const u64 sign = 0x8000000000000000ULL;
  u64 bits = (u64)__double_as_longlong((v == v ? v : -INFINITY) + 0.0);
  return ~(bits & sign ? ~bits : bits | sign);
}
