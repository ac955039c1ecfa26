/* cuda_source.c - prints a sealed pointwise program as CUDA C++ that NVRTC compiles without any
** include path.
**
** The source is self-contained: a prelude with the functions that formulas use (overloaded for
** float and double) and conversions of operands' dtypes, then one kernel. There are four forms,
** from the general to the fast: 64-bit indices, 32-bit indices, one dense dimension, and the same
** in packs of PW_PACK elements. Rank and dtypes are constants in the source; lengths and strides
** are arguments, so that other lengths need no compilation. The only argument is a struct
** (print_arguments): the count, then, except for the dense forms, dims and strides in elements,
** then a pointer per operand, or the number itself. Any grid of one-dimensional blocks works.
** Opcodes are pasted from ir.h, so the GPU computes what the CPU does, except for the last bits of
** library functions and of contracted products (which --fmad=false avoids).
*/
#include "pointwise/ir.h"

/* -- prelude ----------------------------------------------------------------------------------- */

#define FN "static __device__ __forceinline__ "
static const char conversions[] =
  "typedef long long i64; typedef unsigned long long u64; typedef unsigned short u16;\n"
  "typedef unsigned char u8; typedef signed char i8;\n"
  "#ifdef __CUDASIM__\n"
  FN "float from_half(u16 h) { return cudasim_from_half(h); }\n"
  FN "u16 to_half(float f) { return cudasim_to_half(f); }\n"
  "#else\n"
  FN "float from_half(u16 h) {"
  " float f; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h)); return f; }\n"
  FN "u16 to_half(float f) {"
  " u16 h; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f));"
  " return f != f ? (u16)0x7e00 : h; }\n"
  "#endif\n"
  FN "float from_bf16(u16 h) { return __uint_as_float((unsigned)h << 16); }\n"
  FN "u16 to_bf16(float f) { unsigned u = __float_as_uint(f);"
  " return f != f ? (u16)0x7fc0 : (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16); }\n"
  /* NaN becomes the quiet one without payload; the hardware's has one, and a varying sign */
  FN "float plain(float v) { return v != v ? __int_as_float(0x7fc00000) : v; }\n"
  FN "double plain(double v) { return v != v ? (double)__int_as_float(0x7fc00000) : v; }\n"
  FN "int to_i32(double v) {"
  " return v > -2147483649.0 && v < 2147483648.0 ? (int)v : (int)0x80000000; }\n"
  FN "int to_i32(float v) { return to_i32((double)v); }\n"
  FN "int to_i32(int v) { return v; }\n"
  FN "int to_i32(i64 v) { return (int)v; }\n"
  FN "i64 to_i64(double v) {"
  " return v >= -9223372036854775808.0 && v < 9223372036854775808.0"
  " ? (i64)v : (i64)0x8000000000000000ULL; }\n"
  FN "i64 to_i64(float v) { return to_i64((double)v); }\n"
  FN "i64 to_i64(int v) { return v; }\n"
  FN "i64 to_i64(i64 v) { return v; }\n";

/* Functions t_NAME, which call NAMEf or NAME of the CUDA library, or `library` if the names
** differ. */
static const struct { const char *name, *library; int args;
} direct[] = {
  { "abs", "fabs", 1 },
  { "floor", NULL, 1 },
  { "ceil", NULL, 1 },
  { "trunc", NULL, 1 },
  { "fmod", NULL, 2 },
  { "pow", NULL, 2 },
  { "hypot", NULL, 2 },
  { "sqrt", NULL, 1 },
  { "exp", NULL, 1 },
  { "log", NULL, 1 },
  { "tanh", NULL, 1 },
  { "expm1", NULL, 1 },
  { "log1p", NULL, 1 },
  { "log2", NULL, 1 },
  { "log10", NULL, 1 },
  { "sin", NULL, 1 },
  { "cos", NULL, 1 },
  { "erf", NULL, 1 },
  { "cbrt", NULL, 1 },
  { "tan", NULL, 1 },
  { "asin", NULL, 1 },
  { "acos", NULL, 1 },
  { "atan", NULL, 1 },
  { "sinh", NULL, 1 },
  { "cosh", NULL, 1 },
  { "asinh", NULL, 1 },
  { "acosh", NULL, 1 },
  { "atanh", NULL, 1 },
  { "erfinv", NULL, 1 },
  { "gamma", "tgamma", 1 },
  { "gammaln", "lgamma", 1 },
  { "normcdf", NULL, 1 },
};

/* The other functions, for T = float and double. */
static const char made[] =
  "FN T t_sigmoid(T x) { T e = t_exp(x < 0 ? x : -x); return (x < 0 ? e : (T)1) / ((T)1 + e); }\n"
  "FN T t_softrelu(T x) { return (x > 0 ? x : (T)0) + t_log1p(t_exp(x > 0 ? -x : x)); }\n"
  "FN T t_round(T x) { T r = t_trunc(x), d = x - r;"
  " return d >= (T)0.5 ? r + 1 : d <= (T)-0.5 ? r - 1 : r; }\n"
  "FN T t_rint(T x) { T f = t_floor(x); return x - f > (T)0.5 ? f + 1 : f; }\n"
  "FN T t_mod(T a, T b) { T r = t_fmod(a, b);"
  " return b == 0 ? (T)0 : r != 0 && (r < 0) != (b < 0) ? r + b : r; }\n";

static const char digamma[] =
  "static __device__ double t_digamma(double x)\n"
  "{\n"
  "  double sum = 0;\n"
  "  if (x != x || (x <= 0 && x == floor(x))) return nan(\"\");\n"
  "  if (x < 0) { sum = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - rint(x)));"
  " x = 1 - x; }\n"
  "  while (x < 12) { sum -= 1 / x; x += 1; }\n"
  "  double z = 1 / (x * x);\n"
  "  return sum + log(x) - 0.5 / x - z * (1 / 12.0 - z * (1 / 120.0 - z * (1 / 252.0"
  " - z * (1 / 240.0 - z * (1 / 132.0 - z * (691 / 32760.0"
  " - z / 12))))));\n"
  "}\n"
  "static __device__ float t_digamma(float x) { return (float)t_digamma((double)x); }\n";

static const char integers[] =
  "FN INT t_imul(INT a, INT b) { return (INT)((UINT)a * (UINT)b); }\n"
  "FN INT t_idiv(INT a, INT b) { return b == 0 ? 0 : b == -1 ? (INT)(0 - (UINT)a) : a / b; }\n"
  "FN INT t_ifmod(INT a, INT b) { return b == 0 || b == -1 ? 0 : a % b; }\n"
  "FN INT t_imod(INT a, INT b) { INT r = t_ifmod(a, b);"
  " return r != 0 && (r < 0) != (b < 0) ? r + b : r; }\n"
  "FN INT t_ipow(INT a, INT b)\n"
  "{\n"
  "  UINT r = 1, x = (UINT)a;\n"
  "  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
  "  for (; b; b >>= 1, x *= x) if (b & 1) r *= x;\n"
  "  return (INT)r;\n"
  "}\n";

void pw_cuda_begin(const struct pw_program *t, struct text *out)
{
  text_add(out, "%s", conversions);
  for (int i = 0; i < COUNT(direct); i++)
    for (int wide = 0; wide < 2; wide++) {
      const char *type = wide ? "double" : "float",
                 *f = direct[i].library ? direct[i].library : direct[i].name;
      if (direct[i].args == 1)
        text_add(out, FN "%s t_%s(%s x) { return %s%s(x); }\n", type, direct[i].name, type, f,
            wide ? "" : "f");
      else
        text_add(out, FN "%s t_%s(%s x, %s y) { return %s%s(x, y); }\n", type, direct[i].name, type,
            type, f, wide ? "" : "f");
    }
  text_add(out, "#define FN " FN "\n#define T float\n%s#undef T\n#define T double\n%s#undef T\n%s",
      made, made, digamma);
  text_add(out, "typedef %s REAL;\n", t->kind == KIND_F32 ? "float" : "double");
  const char *whole = t->kind == KIND_I32 ? "int" : t->kind == KIND_I64 ? "i64" : NULL;
  if (whole)
    text_add(out, "typedef %s INT; typedef %s UINT;\n%s", whole,
        t->kind == KIND_I32 ? "unsigned" : "u64", integers);
}

/* -- the kernel -------------------------------------------------------------------------------- */

static const char *const type_name[KINDS] = { "float", "double", "int", "i64" };
static const char *file_type(int dtype)
{
  switch (dtype) {
  case TY_F32: return "float";
  case TY_F64: return "double";
  case TY_I32: return "int";
  case TY_I64: return "i64";
  case TY_I8: return "i8";
  case TY_F16:
  case TY_BF16: return "u16";
  default: return "u8";
  }
}

/* Prints the text around a value that converts an element of a file dtype to the program's dtype,
** or back. */
static void print_from(const struct pw_program *t, int dtype, const char *value, struct text *out)
{
  const char *real = dtype == TY_F16 ? "from_half" : dtype == TY_BF16 ? "from_bf16" : "";
  const char *to = t->kind == KIND_I32 ? "to_i32" : t->kind == KIND_I64 ? "to_i64" : "";
  bool real_file = dtype_float(dtype);
  if (t->kind >= KIND_I32 && real_file)
    text_add(out, "%s(%s(%s))", to, real, value);
  else
    text_add(out, "(%s)%s(%s)", type_name[t->kind], real, value);
}

static void print_to(int dtype, const char *value, struct text *out)
{
  switch (dtype) {
  case TY_F16: text_add(out, "to_half((float)%s)", value); break;
  case TY_F32: text_add(out, "plain((float)%s)", value); break;
  case TY_F64: text_add(out, "plain((double)%s)", value); break;
  case TY_BF16: text_add(out, "to_bf16((float)%s)", value); break;
  case TY_U8: text_add(out, "(u8)to_i32(%s)", value); break;
  case TY_I8: text_add(out, "(i8)to_i32(%s)", value); break;
  case TY_I32: text_add(out, "to_i32(%s)", value); break;
  case TY_I64: text_add(out, "to_i64(%s)", value); break;
  case TY_BOOL: text_add(out, "(u8)(%s != 0)", value); break;
  default: text_add(out, "(%s)%s", file_type(dtype), value);
  }
}

static void print_number(const struct pw_program *t, double v, struct text *out)
{
  if (t->kind == KIND_I32)
    text_add(out, "(int)%lldLL", (long long)v);
  else if (t->kind == KIND_I64)
    text_add(out, "(i64)%lluULL", (unsigned long long)(int64_t)v);
  else if (v != v)
    text_add(out, "(REAL)__int_as_float(0x7fc00000)");
  else if (isinf(v))
    text_add(out, "(REAL)%s__int_as_float(0x7f800000)", v < 0 ? "-" : "");
  else if (t->kind == KIND_F32 && isinf((float)v))
    text_add(out, "%s__int_as_float(0x7f800000)", v < 0 ? "-" : "");
  else if (t->kind == KIND_F32)
    text_add(out, "%af", (double)(float)v);
  else
    text_add(out, "%a", v);
}

static void print_op(const struct pw_program *t, int i, struct text *out)
{
  const struct pw_term *x = &t->term[i];
  const struct pw_opcode *op = &pw_opcode[x->op];
  bool whole = t->kind >= KIND_I32;
  const char *type = whole && op->real ? "double" : type_name[t->kind];
  text_add(out, "    %s r%d; { ", type_name[t->kind], i);
  for (int k = 0; k < op->args; k++)
    text_add(out, "%s %c = (%s)r%d; ", type, "abc"[k], type, x -> arg[k]);
  const char *convert = !whole || !op->real ? "" : t->kind == KIND_I32 ? "to_i32" : "to_i64";
  text_add(out, "r%d = %s(%s); }\n", i, convert, whole ? op->ints : op->floats);
}

static bool is_packed(const struct pw_cuda *how, int k)
{
  return how->form == PW_PACKED && !(how->single >> k & 1) && !pw_cuda_number(how, k);
}

/* Prints the expression for element i of operand k. */
static void print_address(const struct pw_cuda *how, int k, char *value, size_t size)
{
  const char *type = file_type(how->dtypes[k]);
  if (pw_cuda_number(how, k))
    snprintf(value, size, "*(const %s *)&x.p[%d]", type, k);
  else if (is_packed(how, k))
    snprintf(value, size, "v%d.at[j]", k);
  else if (how->form >= PW_DENSE)
    snprintf(value, size, "((const %s *)x.p[%d])[%s]", type, k, how->single >> k & 1 ? "0" : "i");
  else
    snprintf(value, size, "((const %s *)x.p[%d])[o%d]", type, k, k);
}

static void print_term(
    const struct pw_program *t, const struct pw_cuda *how, int i, struct text *out)
{
  const struct pw_term *x = &t->term[i];
  char value[96];
  if (x->op < PW_OPCODES) {
    print_op(t, i, out);
    return;
  }
  text_add(out, "    %s r%d = ", type_name[t->kind], i);
  if (x->op == PW_NUMBER)
    print_number(t, x->number, out);
  else if (x->op == PW_LOAD) {
    print_address(how, x->operand, value, sizeof value);
    print_from(t, how->dtypes[x->operand], value, out);
  }
  else {
    struct text inner = { 0 };
    snprintf(value, sizeof value, "r%d", x->arg[0]);
    print_to(x->dtype, value, &inner);
    print_from(t, x->dtype, inner.s ? inner.s : "", out);
    out->lost |= inner.lost;
    text_done(&inner);
  }
  text_add(out, ";\n");
}

static bool is_stored(const struct pw_program *t, int operand)
{
  for (int i = 0; i < t->nput; i++)
    if (t->put[i].operand == operand) return true;
  return false;
}

static bool is_loaded(const struct pw_program *t, int operand)
{
  for (int i = 0; i < t->nget; i++)
    if (t->get[i].operand == operand) return true;
  return false;
}

/* Prints the offset of each operand under element i. */
static void print_offsets(const struct pw_program *t, const struct pw_cuda *how, struct text *out)
{
  text_add(out, "    idx left = i, at;\n");
  for (int k = 0; k < how->n; k++)
    if (!pw_cuda_number(how, k) && (is_loaded(t, k) || is_stored(t, k)))
      text_add(out, "    idx o%d = 0;\n", k);
  for (int d = how->ndim - 1; d >= 0; d--) {
    if (d)
      text_add(out, "    at = left %% x.dim[%d]; left /= x.dim[%d];", d, d);
    else
      text_add(out, "    at = left;");
    for (int k = 0; k < how->n; k++)
      if (!pw_cuda_number(how, k) && (is_loaded(t, k) || is_stored(t, k)))
        text_add(out, " o%d += at * x.stride[%d][%d];", k, k, d);
    text_add(out, "\n");
  }
}

static void print_arguments(const struct pw_cuda *how, const char *name, struct text *out)
{
  bool dense = how->form >= PW_DENSE;
  text_add(out, "struct %s_args { i64 count; ", name);
  if (!dense)
    text_add(out, "%s dim[%d]; %s stride[%d][%d]; ", how->form == PW_GENERAL ? "i64" : "int",
        how->ndim, how->form == PW_GENERAL ? "i64" : "int", how->n, how->ndim);
  text_add(out, "void *p[%d]; };\n", how->n);
  if (how->together)
    text_add(out, "struct %s_all { i64 n; struct { %s_args x; i64 first, blocks; } loop[%d]; };\n",
        name, name, how->together);
}

/* Prints the head of the kernel: x is the loop of this block, whose elements begin at `first`. */
static void print_head(const struct pw_cuda *how, const char *name, struct text *out)
{
  const char *index = how->form == PW_NARROW ? "int" : "i64";
  text_add(out, "extern \"C\" __global__ void %s(const struct %s_%s __grid_constant__ %s)\n{\n",
      name, name, how->together ? "all" : "args", how->together ? "all" : "x");
  text_add(out, "  typedef %s idx;\n  i64 block = blockIdx.x, blocks = gridDim.x;\n", index);
  if (how->together) {
    text_add(out, "  i64 k = all.n - 1;\n  while (all.loop[k].first > block) k--;\n");
    text_add(out, "  const %s_args &x = all.loop[k].x;\n", name);
    text_add(out, "  block -= all.loop[k].first;\n  blocks = all.loop[k].blocks;\n");
  }
  text_add(out, "  i64 step = blocks * blockDim.x, first = block * blockDim.x + threadIdx.x;\n");
}

/* As `but`: every operand is stored. */
enum { ALL = -1 };
/* Prints the terms and stores of an element; the value of operand `but` is returned, not stored. */
static void print_element(
    const struct pw_program *t, const struct pw_cuda *how, int but, struct text *out)
{
  char value[32];
  for (int i = 0; i < t->n; i++)
    if (t->term[i].live) print_term(t, how, i, out);
  for (int i = 0; i < t->nput; i++) {
    int k = t->put[i].operand;
    const char *type = file_type(how->dtypes[k]);
    if (k == but)
      text_add(out, "    const %s result = ", type);
    else if (is_packed(how, k))
      text_add(out, "    v%d.at[j] = ", k);
    else if (how->form >= PW_DENSE)
      text_add(out, "    ((%s *)x.p[%d])[%s] = ", type, k, how->single >> k & 1 ? "0" : "i");
    else
      text_add(out, "    ((%s *)x.p[%d])[o%d] = ", type, k, k);
    snprintf(value, sizeof value, "r%d", t->put[i].term);
    print_to(how->dtypes[k], value, out);
    text_add(out, ";\n");
  }
}

static void print_packs(const struct pw_program *t, const struct pw_cuda *how, struct text *out)
{
  for (int k = 0; k < how->n; k++) {
    const char *type = file_type(how->dtypes[k]);
    if (!is_packed(how, k) || !(is_loaded(t, k) || is_stored(t, k))) continue;
    text_add(out, "    pack<%s> v%d", type, k);
    if (is_loaded(t, k)) text_add(out, " = ((const pack<%s> *)x.p[%d])[q]", type, k);
    text_add(out, ";\n");
  }
  text_add(out, "    #pragma unroll\n    for (int j = 0; j < %d; j++) {\n", PW_PACK);
  print_element(t, how, ALL, out);
  text_add(out, "    }\n");
  for (int k = 0; k < how->n; k++)
    if (is_packed(how, k) && is_stored(t, k))
      text_add(out, "    ((pack<%s> *)x.p[%d])[q] = v%d;\n", file_type(how->dtypes[k]), k, k);
}

/* Prints the loop over the elements after the packs. */
static void print_rest(const struct pw_program *t, const struct pw_cuda *how, struct text *out)
{
  struct pw_cuda dense = *how;
  dense.form = PW_DENSE;
  text_add(out, "  for (i64 i = x.count / %d * %d + first; i < x.count; i += step) {\n", PW_PACK,
      PW_PACK);
  print_element(t, &dense, ALL, out);
  text_add(out, "  }\n");
}

void pw_cuda_kernel(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out)
{
  print_arguments(how, name, out);
  if (how->form == PW_PACKED)
    text_add(out, "template <typename S> struct alignas(%d * sizeof(S)) pack { S at[%d]; };\n",
        PW_PACK, PW_PACK);
  print_head(how, name, out);
  if (how->form == PW_PACKED) {
    text_add(out, "  for (i64 q = first; q < x.count / %d; q += step) {\n", PW_PACK);
    print_packs(t, how, out);
    text_add(out, "  }\n");
    print_rest(t, how, out);
  }
  else {
    text_add(out, "  for (i64 n = first; n < x.count; n += step) {\n    idx i = (idx)n;\n");
    if (how->form < PW_DENSE) print_offsets(t, how, out);
    print_element(t, how, ALL, out);
    text_add(out, "  }\n");
  }
  text_add(out, "}\n");
}

void pw_cuda_element(const struct pw_program *t, const struct pw_cuda *how, const char *name,
    int but, struct text *out)
{
  print_arguments(how, name, out);
  text_add(out, FN "%s element(const %s_args &x, i64 n)\n{\n", file_type(how->dtypes[but]), name);
  text_add(out, "    typedef %s idx;\n    idx i = (idx)n;\n",
      how->form == PW_NARROW ? "int" : "i64");
  if (how->form < PW_DENSE) print_offsets(t, how, out);
  print_element(t, how, but, out);
  text_add(out, "    return result;\n}\n");
}

int pw_cuda(
    const struct pw_program *t, const struct pw_cuda *how, const char *name, struct text *out)
{
  NEED(t->sealed && how->n > 0 && how->n <= PW_ARGS, TY_EVALUE,
      "pw_cuda: a sealed pointwise program of 1 to %d operands is needed", PW_ARGS);
  pw_cuda_begin(t, out);
  pw_cuda_kernel(t, how, name, out);
  return out->lost ? fail(TY_EMEMORY, "out of memory: CUDA source") : TY_OK;
}
