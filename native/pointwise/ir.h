/* ir.h - internals of pointwise programs: opcodes, terms, instructions, the table of block loops.
**
** Each opcode is one line: its expression is compiled as C for the CPU (pointwise/isa/loops.c) and
** pasted as text into CUDA source (cuda_source.c), so that the two cannot disagree. A program being
** built is a list of terms, each an operand, a number or an opcode over earlier terms; equal terms
** are merged, and terms over numbers are folded. pw_seal turns the terms that stores need into
** instructions over slots: slot k is a block of elements of the compute dtype. Included by files of
** pointwise/ and by op/formula.c only.
*/
#pragma once
#include "pointwise/pointwise.h"

/* Plain opcodes: an expression over a, b, c for floats and one for integers (INT: the type,
** UINT: its unsigned counterpart). cost: in 1/16 ns per float32 element.
** id   name        n  cost  floats                            integers */
#define PW_BOTH(_) \
  _(ADD,   "+",      2,  1, a + b,                            (INT)((UINT)a + (UINT)b)) \
  _(SUB,   "-",      2,  1, a - b,                            (INT)((UINT)a - (UINT)b)) \
  _(MUL,   "*",      2,  1, a * b,                            t_imul(a, b)) \
  _(DIV,   "/",      2,  3, a / b,                            t_idiv(a, b)) \
  _(MADD,  "madd",   3,  1, a * b + c,                        (INT)((UINT)t_imul(a, b) + (UINT)c)) \
  _(MSUB,  "msub",   3,  1, a * b - c,                        (INT)((UINT)t_imul(a, b) - (UINT)c)) \
  _(NMADD, "nmadd",  3,  1, c - a * b,                        (INT)((UINT)c - (UINT)t_imul(a, b))) \
  _(NEG,   "neg",    1,  1, -a,                               (INT)(0 - (UINT)a)) \
  _(ABS,   "abs",    1,  1, t_abs(a),                         a < 0 ? (INT)(0 - (UINT)a) : a) \
  _(SIGN,  "sign",   1,  1, (REAL)((a > 0) - (a < 0)),        (INT)((a > 0) - (a < 0))) \
  _(MAX,   "max",    2,  1, ((a > b) | (a != a)) ? a : b,     a > b ? a : b) \
  _(MIN,   "min",    2,  1, ((a < b) | (a != a)) ? a : b,     a < b ? a : b) \
  _(CLAMP, "clamp",  3,  1, a <= b ? b : a >= c ? c : a,      a <= b ? b : a >= c ? c : a) \
  _(GATE,  "gate",   3,  2, \
    a * (a * b + c <= 0 ? (REAL)0 : a * b + c >= 1 ? (REAL)1 : a * b + c), \
    (INT)((UINT)t_imul(a, b) + (UINT)c) > 0 ? a : (INT)0) \
  _(GT,    ">",      2,  1, a > b ? (REAL)1 : (REAL)0,        (INT)(a > b)) \
  _(GE,    ">=",     2,  1, a >= b ? (REAL)1 : (REAL)0,       (INT)(a >= b)) \
  _(EQ,    "==",     2,  1, a == b ? (REAL)1 : (REAL)0,       (INT)(a == b)) \
  _(NE,    "!=",     2,  1, a != b ? (REAL)1 : (REAL)0,       (INT)(a != b)) \
  _(AND,   "&&",     2,  1, ((a != 0) & (b != 0)) ? (REAL)1 : (REAL)0, (INT)((a != 0) & (b != 0))) \
  _(OR,    "||",     2,  1, ((a != 0) | (b != 0)) ? (REAL)1 : (REAL)0, (INT)((a != 0) | (b != 0))) \
  _(NOT,   "!",      1,  1, a == 0 ? (REAL)1 : (REAL)0,       (INT)(a == 0)) \
  _(WHERE, "where",  3,  1, a != 0 ? b : c,                   a != 0 ? b : c) \
  _(RELU,  "relu",   1,  1, a <= 0 ? (REAL)0 : a,             a <= 0 ? (INT)0 : a) \
  _(STEP,  "step",   1,  1, a > 0 ? (REAL)1 : a == a ? (REAL)0 : a,  (INT)(a > 0)) \
  _(ISNAN, "isnan",  1,  1, a != a ? (REAL)1 : (REAL)0,       (INT)0) \
  _(FLOOR, "floor",  1,  2, t_floor(a),                       a) \
  _(CEIL,  "ceil",   1,  2, t_ceil(a),                        a) \
  _(TRUNC, "trunc",  1,  2, t_trunc(a),                       a) \
  _(ROUND, "round",  1,  2, t_round(a),                       a) \
  _(RINT,  "rint",   1,  3, t_rint(a),                        a) \
  _(MOD,   "mod",    2, 99, t_mod(a, b),                      t_imod(a, b)) \
  _(FMOD,  "fmod",   2, 99, t_fmod(a, b),                     t_ifmod(a, b)) \
  _(POW,   "pow",    2, 99, t_pow(a, b),                      t_ipow(a, b))

/* Real functions. For integers the loops of float64 are used, and results are truncated. */
#define PW_REAL(_) PW_SMOOTH(_) PW_TURN(_)
#define PW_TURN(_) \
  _(SIN,      "sin",      1,  20, t_sin(a)) \
  _(COS,      "cos",      1,  20, t_cos(a))
#define PW_SMOOTH(_) \
  _(SQRT,     "sqrt",     1,   3, t_sqrt(a)) \
  _(RSQRT,    "rsqrt",    1,   5, (REAL)1 / t_sqrt(a)) \
  _(EXP,      "exp",      1,   6, t_exp(a)) \
  _(LOG,      "log",      1,   8, t_log(a)) \
  _(SIGMOID,  "sigmoid",  1,   8, t_sigmoid(a)) \
  _(TANH,     "tanh",     1,  10, t_tanh(a)) \
  _(SOFTRELU, "softrelu", 1,  40, t_softrelu(a)) \
  _(EXPM1,    "expm1",    1,  20, t_expm1(a)) \
  _(LOG1P,    "log1p",    1,  20, t_log1p(a)) \
  _(LOG2,     "log2",     1,  20, t_log2(a)) \
  _(LOG10,    "log10",    1,  20, t_log10(a)) \
  _(ERF,      "erf",      1,  10, t_erf(a)) \
  _(NORMCDF,  "normcdf",  1,  20, t_normcdf(a)) \
  _(CBRT,     "cbrt",     1, 200, t_cbrt(a)) \
  _(RCBRT,    "rcbrt",    1, 200, (REAL)1 / t_cbrt(a)) \
  _(DEGREES,  "degrees",  1,   1, a * (REAL)57.295779513082323) \
  _(RADIANS,  "radians",  1,   1, a * (REAL)0.017453292519943296) \
  _(TAN,      "tan",      1, 200, t_tan(a)) \
  _(ASIN,     "asin",     1, 200, t_asin(a)) \
  _(ACOS,     "acos",     1, 200, t_acos(a)) \
  _(ATAN,     "atan",     1, 200, t_atan(a)) \
  _(SINH,     "sinh",     1, 300, t_sinh(a)) \
  _(COSH,     "cosh",     1, 300, t_cosh(a)) \
  _(ASINH,    "asinh",    1, 300, t_asinh(a)) \
  _(ACOSH,    "acosh",    1, 300, t_acosh(a)) \
  _(ATANH,    "atanh",    1, 300, t_atanh(a)) \
  _(ERFINV,   "erfinv",   1, 900, t_erfinv(a)) \
  _(GAMMA,    "gamma",    1, 900, t_gamma(a)) \
  _(GAMMALN,  "gammaln",  1, 900, t_gammaln(a)) \
  _(DIGAMMA,  "digamma",  1, 900, t_digamma(a)) \
  _(HYPOT,    "hypot",    2, 200, t_hypot(a, b))

/* Variants of opcodes over floats for a b that is the same for all elements, of which the loop
** reads one. */
#define PW_FIXED(_) \
  _(ADD_FIXED,   a + b) \
  _(SUB_FIXED,   a - b) \
  _(FROM_FIXED,  b - a) \
  _(MUL_FIXED,   a * b) \
  _(MADD_FIXED,  a * b + c) \
  _(MSUB_FIXED,  a * b - c) \
  _(NMADD_FIXED, c - a * b)

/* The same for b and c. */
#define PW_BOTH_FIXED(_) _(GATE_FIXED)

enum {
#define ID(id, ...) PW_##id,
  PW_BOTH(ID) PW_REAL(ID)
  PW_OPCODES,
  /* terms without a loop in the table */
  PW_LOAD = PW_OPCODES, PW_NUMBER, PW_CAST,
  PW_FIXED(ID)
  PW_BOTH_FIXED(ID)
#undef ID
  PW_INSTRUCTIONS
};
struct pw_opcode { const char *name; int args, cost; bool real; const char *floats, *ints; };
extern const struct pw_opcode pw_opcode[PW_OPCODES];
int pw_opcode_find(const char *name, size_t n);     /* -1 */

enum { KIND_F32, KIND_F64, KIND_I32, KIND_I64, KINDS };                     /* compute dtypes */
enum { BLOCK_ELEMENTS = 256, SLOTS = 200, DTYPES = 13 };

/* Loops over n elements. d may equal a, b or c, but must not overlap them otherwise. stride: of the
** operand, in elements. */
typedef void (*pw_loop_fn)(void *d, const void *a, const void *b, const void *c, int64_t n);
typedef void (*pw_move_fn)(void *d, const void *s, int64_t stride, int64_t n);
struct pw_table {
  /* NULL: a real function of integers, see above */
  pw_loop_fn op[KINDS][PW_INSTRUCTIONS];
  pw_move_fn load[KINDS][DTYPES];                     /* half types: KIND_F32 only */
  pw_move_fn store[KINDS][DTYPES];                    /* half types: KIND_F32 only */
  /* *acc += sum of n elements; acc: double for floats, int64_t for integers */
  void (*sum_row[DTYPES])(void *acc, const void *s, int64_t stride, int64_t n);
  /* acc[i] += s[i] */
  void (*sum_add[DTYPES])(void *acc, const void *s, int64_t stride, int64_t n);
};
const struct pw_table *pw_table(void);            /* returns that of this processor */
static inline bool is_half(int dtype) { return dtype == TY_F16 || dtype == TY_BF16; }
/* Stores n elements of a kind as a dtype, `stride` apart; half types become float32 first. */
void pw_store_elements(int kind, int dtype, void *to, const void *from, int64_t stride, int64_t n);

struct pw_term {
  uint8_t op, dtype;
  bool uniform, live;
  int arg[3], uses;
  double number;
  int operand;
};
struct pw_ins  { uint8_t op, dtype, d, a, b, c; };
struct pw_put  { int operand, term; uint8_t slot; bool direct; };
/* operand -1: a number; once: loaded once per chunk */
struct pw_get  { int operand; double number; uint8_t slot; bool once, copy; };
struct pw_program {
  int dtype, kind;
  bool sealed;
  /* code of the first failure while building, which pw_seal returns */
  int error;
  struct pw_term *term;
  int n, cap;
  struct pw_put put[PW_ARGS];
  int nput;
  /* after pw_seal; the first nuniform do not depend on the element, and run once per chunk */
  struct pw_ins *code;
  int ncode, nuniform;
  struct pw_get *get;
  int nget;
  int nslot;
  int64_t cost;                                       /* 1/16 ns per element */
  void *made;                                         /* see pw_made */
};
int sum_to_cpu(void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d);
/* Frees what a back end has compiled for a program. */
void pw_forget(struct pw_program *t);
/* Returns the term of an opcode over terms a, b, c; constants are folded. */
int  pw_term_op(struct pw_program *t, int op, int a, int b, int c);
/* Marks a term as a parameter, the same for all elements, whose sign is that of `known`. */
void pw_uniform(struct pw_program *t, int reg, double known);
