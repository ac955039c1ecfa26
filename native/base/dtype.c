/* dtype.c - names, sizes and ranges of element types. */
#include <float.h>
#include "base/dtype.h"

static const struct { const char *name; size_t size; } dtypes[] = {
  /*          name        bytes */
  [TY_F32]  = { "float32",  4 },
  [TY_F64]  = { "float64",  8 },
  [TY_F16]  = { "float16",  2 },
  [TY_U8]   = { "uint8",    1 },
  [TY_I32]  = { "int32",    4 },
  [TY_I8]   = { "int8",     1 },
  [TY_I64]  = { "int64",    8 },
  [TY_BOOL] = { "bool",     1 },
  [TY_BF16] = { "bfloat16", 2 },
};

static bool known_dtype(int dtype)
{
  return dtype >= 0 && dtype < COUNT(dtypes) && dtypes[dtype].size;
}
size_t      dtype_size(int dtype) { return known_dtype(dtype) ? dtypes[dtype].size : 0; }
const char *dtype_name(int dtype) { return known_dtype(dtype) ? dtypes[dtype].name : "unknown"; }
bool dtype_float(int dtype)
{
  return dtype == TY_F32 || dtype == TY_F64 || dtype == TY_F16 || dtype == TY_BF16;
}

int64_t dtype_counts(int dtype)
{
  switch (dtype) {
  case TY_BOOL: return 2;
  case TY_I8: return 1 << 7;
  case TY_U8: return 1 << 8;
  case TY_BF16: return (1 << 8) + 1;
  case TY_F16: return (1 << 11) + 1;
  case TY_F32: return (1 << 24) + 1;
  case TY_I32: return 1LL << 31;
  case TY_F64: return (1LL << 53) + 1;
  default: return INT64_MAX;
  }
}

double dtype_lowest(int dtype)
{
  switch (dtype) {
  case TY_F64: return -DBL_MAX;
  case TY_F16: return -65504;
  case TY_BF16: return -0x1.fep127;
  default: return -(double)FLT_MAX;
  }
}

int dtype_parse(const char *name, int *dtype)
{
  for (int i = 0; name && i < COUNT(dtypes); i++) {
    if (!dtypes[i].size || strcmp(name, dtypes[i].name)) continue;
    *dtype = i;
    return TY_OK;
  }
  static const char *const expected =
      "float32, float64, float16, bfloat16, uint8, int8, int32, int64 or bool";
  fail(TY_EDTYPE, "unknown dtype '%s': expected %s", name ? name : "", expected);
  fail_argument("dtype", expected, name);
  return TY_EDTYPE;
}
