/* loops.c - the block loops of pointwise programs for one instruction set: compiled once per set
** with -DISA=name.
**
** Every loop is one line of a table: opcodes from pointwise/ir.h in four compute dtypes, loads
** and stores for each pair of compute and file dtype, sums. Loops are written so that the
** compiler vectorises them (-fopt-info-vec shows it).
*/
#include "pointwise/ir.h"
#include "base/vmath.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
/* d may equal a, b or c, but not overlap them otherwise */
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* -- integers ---------------------------------------------------------------------------------- */

/* Integers wrap around; division by zero gives 0; conversions out of range give the smallest
** integer. */
static inline int32_t imul_i32(int32_t a, int32_t b)
{
  return (int32_t)((uint32_t)a * (uint32_t)b);
}
static inline int64_t imul_i64(int64_t a, int64_t b)
{
  return (int64_t)((uint64_t)a * (uint64_t)b);
}
#define INTEGER(T, U, S) \
  static inline T idiv_##S(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b; } \
  static inline T ifmod_##S(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; } \
  static inline T imod_##S(T a, T b) \
  { \
    T r = ifmod_##S(a, b); \
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r; \
  } \
  static inline T ipow_##S(T a, T b) \
  { \
    U r = 1, x = (U)a; \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0; \
    for (; b; b >>= 1, x *= x) if (b & 1) r *= x; \
    return (T)r; \
  }
  INTEGER(int32_t, uint32_t, i32)
  INTEGER(int64_t, uint64_t, i64)
#define BY_INT(f, a, b) _Generic((a), int32_t: f##_i32, default: f##_i64)(a, b)
#define t_imul(a, b) BY_INT(imul, a, b)
#define t_idiv(a, b) BY_INT(idiv, a, b)
#define t_imod(a, b) BY_INT(imod, a, b)
#define t_ifmod(a, b) BY_INT(ifmod, a, b)
#define t_ipow(a, b) BY_INT(ipow, a, b)

  static inline int32_t i32_of_f32(float v)
  {
    return v >= -0x1p31f && v < 0x1p31f ? (int32_t)v : INT32_MIN;
  }
  static inline int32_t i32_of_f64(double v)
  {
    return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN;
  }
  static inline int64_t i64_of_f32(float v)
  {
    return v >= -0x1p63f && v < 0x1p63f ? (int64_t)v : INT64_MIN;
  }
  static inline int64_t i64_of_f64(double v)
  {
    return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN;
  }
static inline int32_t i32_of_int(int64_t v) { return (int32_t)(uint32_t)(uint64_t)v; }
static inline int64_t i64_of_int(int64_t v) { return v; }
#define to_i32(v) _Generic((v), float: i32_of_f32, double: i32_of_f64, default: i32_of_int)(v)
#define to_i64(v) _Generic((v), float: i64_of_f32, double: i64_of_f64, default: i64_of_int)(v)
#define to_f32(v) ((float)(v))
#define to_f64(v) ((double)(v))

/* -- half types, without branches -------------------------------------------------------------- */

static inline float from_half(uint16_t h)
{
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13,
           top = (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  uint32_t u = of_f32(bits_f32(magnitude) * 0x1p112f) | top;
  return bits_f32(u | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t to_half(float v) /* to nearest, ties to even */
{
  uint32_t u = of_f32(v), a = u & 0x7fffffffu;
  uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1u)) >> 13;
  uint32_t tiny = of_f32(bits_f32(a) + 0.5f) - 0x3f000000u; /* the sum's last bit is 2^-24 */
  uint32_t r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x477ff000u ? (a > 0x7f800000u ? 0x7e00u : 0x7c00u) : r;
  return (uint16_t)(r | (u >> 16 & 0x8000u));
}

static inline float from_bf16(uint16_t h) { return bits_f32((uint32_t)h << 16); }
static inline uint16_t to_bf16(float v)
{
  uint32_t u = of_f32(v), r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (uint16_t)(v != v ? (u >> 16 | 0x40u) : r);
}

/* -- opcodes ----------------------------------------------------------------------------------- */

#define LOOP(T, name, result) \
  static void name(void *d_, const void *a_, const void *b_, const void *c_, int64_t n) \
  { \
    T *d = d_; \
    const T *pa = a_, *pb = b_, *pc = c_; \
    INDEPENDENT for (int64_t i = 0; i < n; i++) { \
      T a = pa[i], b = pb[i], c = pc[i]; \
      (void)a; (void)b; (void)c; \
      d[i] = result; \
    } \
  }

#define REAL float
#define BOTH(id, name, args, cost, floats, ints) LOOP(float, id##_f32, floats)
#define FULL(id, name, args, cost, expression) LOOP(float, id##_f32, expression)
  PW_BOTH(BOTH) PW_SMOOTH(FULL)
#undef REAL
#undef BOTH
#undef FULL

/* b: one element */
#define FIXED_LOOP(T, name, result) \
  static void name(void *d_, const void *a_, const void *b_, const void *c_, int64_t n) \
  { \
    T *d = d_; \
    const T *pa = a_, *pc = c_, b = *(const T *)b_; \
    INDEPENDENT for (int64_t i = 0; i < n; i++) { \
      T a = pa[i], c = pc[i]; \
      (void)c; \
      d[i] = result; \
    } \
  }
#define FIXED(id, expression) \
  FIXED_LOOP(float, id##_f32, expression) FIXED_LOOP(double, id##_f64, expression)
  PW_FIXED(FIXED)

/* PW_GATE with b and c of one element each, and the same bits. Values not above 0 are masked: for a
** choice between numbers the compiler would compute all products. */
#define GATE_LOOP(T, MASK, S) \
  static void GATE_FIXED_##S(void *d_, const void *a_, const void *b_, const void *c_, int64_t n) \
  { \
    T *d = d_; \
    const T *pa = a_, b = *(const T *)b_, c = *(const T *)c_; \
    INDEPENDENT for (int64_t i = 0; i < n; i++) { \
      T a = pa[i], x = a * b + c, within = bits_##S(of_##S(x) & (MASK)(x <= 0 ? 0 : -1)); \
      d[i] = a * (x >= 1 ? (T)1 : within); \
    } \
  }
  GATE_LOOP(float, uint32_t, f32) GATE_LOOP(double, uint64_t, f64)

#define REAL double
#define BOTH(id, name, args, cost, floats, ints) LOOP(double, id##_f64, floats)
#define FULL(id, name, args, cost, expression) LOOP(double, id##_f64, expression)
  PW_BOTH(BOTH) PW_REAL(FULL)
#undef BOTH
#undef FULL

#define INT int32_t
#define UINT uint32_t
#define BOTH(id, name, args, cost, floats, ints) LOOP(int32_t, id##_i32, ints)
  PW_BOTH(BOTH)
#undef BOTH
#undef INT
#undef UINT

#define INT int64_t
#define UINT uint64_t
#define BOTH(id, name, args, cost, floats, ints) LOOP(int64_t, id##_i64, ints)
  PW_BOTH(BOTH)
#undef BOTH
#undef INT
#undef UINT
#undef REAL

/* Sine and cosine of float32, by the C library if a block has an argument too large for the short
** reduction. */
#define TURNS(id, f) \
  static void id##_f32(void *d_, const void *a_, const void *b_, const void *c_, int64_t n) \
  { \
    float *d = d_; \
    const float *a = a_; \
    int large = 0; \
    (void)b_; (void)c_; \
    for (int64_t i = 0; i < n; i++) large |= !(abs_f32(a[i]) <= (float)TURN_LIMIT); \
    if (large) for (int64_t i = 0; i < n; i++) d[i] = f##_f32(a[i]); \
    else INDEPENDENT for (int64_t i = 0; i < n; i++) d[i] = f##_small(a[i]); \
  }
  TURNS(SIN, sin) TURNS(COS, cos)

/* -- loads and stores -------------------------------------------------------------------------- */

/* dtype  C type    as a number          from a number of kind K */
#define OWN_DTYPES(_, K) \
  _(F32,  float,    v,                   to_f32(v),            K) \
  _(F64,  double,   v,                   to_f64(v),            K) \
  _(U8,   uint8_t,  v,                   (uint8_t)to_i32(v),   K) \
  _(I8,   int8_t,   v,                   (int8_t)to_i32(v),    K) \
  _(I32,  int32_t,  v,                   to_i32(v),            K) \
  _(I64,  int64_t,  v,                   to_i64(v),            K) \
  _(BOOL, uint8_t,  v,                   (uint8_t)(v != 0),    K)
/* for float32 only: other kinds go through float32 */
#define HALF_DTYPES(_) \
  _(F16,  uint16_t, from_half(v),        to_half(v),           f32) \
  _(BF16, uint16_t, from_bf16(v),        to_bf16(v),           f32)

#define MOVE(name, D, S, expression, from, to) \
  static void name(void *d_, const void *s_, int64_t stride, int64_t n) \
  { \
    D *d = d_; \
    const S *s = s_; \
    if (stride == 1) \
      INDEPENDENT for (int64_t i = 0; i < n; i++) { S v = s[i]; d[i] = expression; } \
    else \
      INDEPENDENT for (int64_t i = 0; i < n; i++) { S v = s[from]; d[to] = expression; } \
  }
#define CONVERT(name, D, S, expression) \
  static void name(void *d_, const void *s_, int64_t stride, int64_t n) \
  { \
    D *d = d_; \
    const S *s = s_; \
    if (stride == 1) { \
      INDEPENDENT for (int64_t i = 0; i < n; i++) { S v = s[i]; d[i] = expression; } \
    } else if (stride == 0) { \
      S v = *s; \
      D one = expression; \
      for (int64_t i = 0; i < n; i++) d[i] = one; \
    } else { \
      for (int64_t i = 0; i < n; i++) { S v = s[i * stride]; d[i] = expression; } \
    } \
  }
#define LOAD(id, S, number, store, K) \
  CONVERT(JOIN(load_##id, K), JOIN(type, K), S, JOIN(to, K)(number))
#define STORE(id, D, number, store, K) \
  MOVE(JOIN(store_##id, K), D, JOIN(type, K), store, i, i * stride)
typedef float type_f32;
typedef double type_f64;
typedef int32_t type_i32;
typedef int64_t type_i64;
  OWN_DTYPES(LOAD, f32) OWN_DTYPES(LOAD, f64) OWN_DTYPES(LOAD, i32) OWN_DTYPES(LOAD, i64)
  OWN_DTYPES(STORE, f32) OWN_DTYPES(STORE, f64) OWN_DTYPES(STORE, i32) OWN_DTYPES(STORE, i64)
  HALF_DTYPES(LOAD) HALF_DTYPES(STORE)

/* -- sums: sixteen lanes, so that the order is the same under every instruction set ------------ */

enum { LANES = 16 };
#define SUM(id, S, number, WIDE) \
  static void row_##id(void *acc, const void *s_, int64_t stride, int64_t n) \
  { \
    const S *s = s_; \
    WIDE lane[LANES] = { 0 }, sum = 0; \
    int64_t i = 0; \
    for (; stride == 1 && i + LANES <= n; i += LANES) \
      for (int k = 0; k < LANES; k++) { S v = s[i + k]; lane[k] += (WIDE)(number); } \
    for (; i < n; i++) { S v = s[i * stride]; lane[i % LANES] += (WIDE)(number); } \
    for (int k = 0; k < LANES; k++) sum += lane[k]; \
    *(WIDE *)acc += sum; \
  } \
  static void add_##id(void *acc_, const void *s_, int64_t stride, int64_t n) \
  { \
    const S *s = s_; \
    WIDE *acc = acc_; \
    if (stride == 1) \
      INDEPENDENT for (int64_t i = 0; i < n; i++) { S v = s[i]; acc[i] += (WIDE)(number); } \
    else \
      for (int64_t i = 0; i < n; i++) { S v = s[i * stride]; acc[i] += (WIDE)(number); } \
  }
#define WHOLE_(_) \
  _(U8, uint8_t, v) _(I8, int8_t, v) _(I32, int32_t, v) _(I64, int64_t, v) _(BOOL, uint8_t, v)
#define PARTS_(_) \
  _(F32, float, v) _(F64, double, v) _(F16, uint16_t, from_half(v)) \
  _(BF16, uint16_t, from_bf16(v))
#define SUM_INT(id, S, number) SUM(id, S, number, uint64_t)
#define SUM_REAL(id, S, number) SUM(id, S, number, double)
  WHOLE_(SUM_INT) PARTS_(SUM_REAL)

/* -- the table --------------------------------------------------------------------------------- */

#define IN_F32(id, ...) [PW_##id] = id##_f32,
#define IN_F64(id, ...) [PW_##id] = id##_f64,
#define IN_I32(id, ...) [PW_##id] = id##_i32,
#define IN_I64(id, ...) [PW_##id] = id##_i64,
#define AT_LOAD(id, S, number, store, K)  [TY_##id] = JOIN(load_##id, K),
#define AT_STORE(id, S, number, store, K) [TY_##id] = JOIN(store_##id, K),
#define AT_ROW(id, S, number) [TY_##id] = row_##id,
#define AT_ADD(id, S, number) [TY_##id] = add_##id,
#define TABLE JOIN(pw_table, ISA)
extern const struct pw_table TABLE;
const struct pw_table TABLE = {
  .op = {
    [KIND_F32] = { PW_BOTH(IN_F32) PW_REAL(IN_F32) PW_FIXED(IN_F32) PW_BOTH_FIXED(IN_F32) },
    [KIND_F64] = { PW_BOTH(IN_F64) PW_REAL(IN_F64) PW_FIXED(IN_F64) PW_BOTH_FIXED(IN_F64) },
    [KIND_I32] = { PW_BOTH(IN_I32) },
    [KIND_I64] = { PW_BOTH(IN_I64) },
  },
  .load = {
    { OWN_DTYPES(AT_LOAD, f32) HALF_DTYPES(AT_LOAD) }, { OWN_DTYPES(AT_LOAD, f64) },
    { OWN_DTYPES(AT_LOAD, i32) }, { OWN_DTYPES(AT_LOAD, i64) },
  },
  .store = {
    { OWN_DTYPES(AT_STORE, f32) HALF_DTYPES(AT_STORE) }, { OWN_DTYPES(AT_STORE, f64) },
    { OWN_DTYPES(AT_STORE, i32) }, { OWN_DTYPES(AT_STORE, i64) },
  },
  .sum_row = { WHOLE_(AT_ROW) PARTS_(AT_ROW) },
  .sum_add = { WHOLE_(AT_ADD) PARTS_(AT_ADD) },
};
