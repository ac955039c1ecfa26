/* unary.c - element-wise functions of one input.
**
** One line each: name, aliases, y, gradient of the input, doc. Output and gradient have
** the input's shape and dtype. A formula that names y instead of a keeps the output for backward
** and frees the input.
*/
#include "op/op.h"

#define OF(name_, alias_, y_, grad_, doc_) \
  { .name = name_, .alias = alias_, .doc = doc_, .in = "data", .inplace = "0=0", \
    .back_inplace = "0=0 0=1", .formula = &(const struct formula){ y_, { grad_ } } },
#define ACT(act_, name_, alias_, y_, grad_, doc_) \
  { .name = name_, .alias = alias_, .doc = doc_, .in = "data", .inplace = "0=0", \
    .back_inplace = "0=0 0=1", .formula = &(const struct formula){ y_, { grad_ } }, \
    .activation = act_ },
#define FLAT(name_, alias_, y_, doc_) \
  { .name = name_, .alias = alias_, .doc = doc_ " The gradient is zero.", .in = "data", \
    .inplace = "0=0", .formula = &(const struct formula){ y_, { NULL } }, \
    .flags = OP_ZERO_GRAD },

const struct op op_unary[] = {
  /* name              aliases                            y             gradient; doc */
  ACT(ACT_RELU,    "relu",    "_sparse_relu",                    "relu(a)",    "g * step(y)",
     "The larger of data and 0, element by element; gradient 1 above 0 and 0 from there down, NaN stays NaN.")
  ACT(ACT_SIGMOID, "sigmoid", "_sparse_sigmoid",                 "sigmoid(a)", "g * (y * (1 - y))",
     "1 / (1 + exp(-data)), element by element; gradient y (1 - y).")
  OF("softsign",       NULL,                              "a / (1 + abs(a))", "g / square(1 + abs(a))",
     "data / (1 + |data|), element by element; gradient 1 / (1 + |data|)^2.")
  OF("negative",       "_sparse_negative",                "-a",         "-g",
     "-data, element by element; gradient -1.")
  OF("abs",            "_sparse_abs",                     "abs(a)",     "g * sign(a)",
     "|data|, element by element; gradient the sign of data, 0 at 0 and at NaN.")
  FLAT("sign",         "_sparse_sign",                    "sign(a)",
       "-1, 0 or 1 as data is below, at or above 0; 0 for NaN.")
  FLAT("round",        "_sparse_round",                   "round(a)",
       "The nearest integer, halves away from zero.")
  FLAT("rint",         "_sparse_rint",                    "rint(a)",
       "The nearest integer, halves down.")
  FLAT("_contrib_round_half_even", NULL,
       "r = round(a); abs(r - a) == 0.5 && mod(r, 2) != 0 ? r - sign(a) : r",
       "The nearest integer, halves to the even one.")
  FLAT("ceil",         "_sparse_ceil",                    "ceil(a)",
       "The least integer not below data.")
  FLAT("floor",        "_sparse_floor",                   "floor(a)",
       "The greatest integer not above data.")
  FLAT("trunc",        "_sparse_trunc",                   "trunc(a)",
       "data without its fraction.")
  FLAT("fix",          "_sparse_fix",                     "trunc(a)",
       "The nearest integer on the way to zero.")
  OF("square",         "_sparse_square",                  "a * a",      "g * (2 * a)",
     "data^2, element by element; gradient 2 data.")
  OF("sqrt",           "_sparse_sqrt",                    "sqrt(a)",    "g * (0.5 / y)",
     "Square root, element by element; gradient 1 / (2 y).")
  OF("rsqrt",          "_sparse_rsqrt",                   "rsqrt(a)",   "g * (-0.5 / (a * sqrt(a)))",
     "1 / sqrt(data), element by element; gradient -1 / (2 data sqrt(data)).")
  OF("cbrt",           "_sparse_cbrt",                    "cbrt(a)",    "g * (1 / (3 * y * y))",
     "Cube root, element by element; gradient 1 / (3 y^2).")
  OF("rcbrt",          NULL,                              "rcbrt(a)",   "g * (-1 / (3 * a * cbrt(a)))",
     "1 / cbrt(data), element by element; gradient -1 / (3 data cbrt(data)).")
  OF("reciprocal",     NULL,                              "1 / a",      "g * (-1 / (a * a))",
     "1 / data, element by element; gradient -1 / data^2.")
  OF("exp",            "_sparse_exp",                     "exp(a)",     "g * y",
     "e^data, element by element; gradient y.")
  OF("log",            "_sparse_log",                     "log(a)",     "g / a",
     "Natural logarithm, element by element; gradient 1 / data.")
  OF("log10",          "_sparse_log10",                   "log10(a)",   "g * (0.43429448190325183 / a)",
     "Logarithm to base 10, element by element; gradient 1 / (data ln 10).")
  OF("log2",           "_sparse_log2",                    "log2(a)",    "g * (1.4426950408889634 / a)",
     "Logarithm to base 2, element by element; gradient 1 / (data ln 2).")
  OF("log1p",          "_sparse_log1p",                   "log1p(a)",   "g / (1 + a)",
     "ln(1 + data), right near 0 too; gradient 1 / (1 + data).")
  OF("expm1",          "_sparse_expm1",                   "expm1(a)",   "g * exp(a)",
     "e^data - 1, right near 0 too; gradient e^data.")
  OF("sin",            "_sparse_sin",                     "sin(a)",     "g * cos(a)",
     "Sine of radians, element by element; gradient cos(data).")
  OF("cos",            "_sparse_cos",                     "cos(a)",     "g * -sin(a)",
     "Cosine of radians, element by element; gradient -sin(data).")
  OF("tan",            "_sparse_tan",                     "tan(a)",     "g * (y * y + 1)",
     "Tangent of radians, element by element; gradient y^2 + 1.")
  OF("arcsin",         "_sparse_arcsin",                  "asin(a)",    "g * (1 / sqrt((1 - a) * (1 + a)))",
     "Inverse sine, in radians; gradient 1 / sqrt(1 - data^2).")
  OF("arccos",         "_sparse_arccos",                  "acos(a)",    "g * (-1 / sqrt((1 - a) * (1 + a)))",
     "Inverse cosine, in radians; gradient -1 / sqrt(1 - data^2).")
  OF("arctan",         "_sparse_arctan",                  "atan(a)",    "g / (1 + a * a)",
     "Inverse tangent, in radians; gradient 1 / (1 + data^2).")
  OF("degrees",        "_sparse_degrees",                 "degrees(a)", "degrees(g)",
     "Radians to degrees; gradient 180 / pi.")
  OF("radians",        "_sparse_radians",                 "radians(a)", "radians(g)",
     "Degrees to radians; gradient pi / 180.")
  OF("sinh",           "_sparse_sinh",                    "sinh(a)",    "g * cosh(a)",
     "Hyperbolic sine; gradient cosh(data).")
  OF("cosh",           "_sparse_cosh",                    "cosh(a)",    "g * sinh(a)",
     "Hyperbolic cosine; gradient sinh(data).")
  ACT(ACT_TANH,    "tanh",    "_sparse_tanh",                    "tanh(a)",    "g * (1 - y * y)",
     "Hyperbolic tangent; gradient 1 - y^2.")
  OF("arcsinh",        "_sparse_arcsinh",                 "asinh(a)",   "g / sqrt(a * a + 1)",
     "Inverse hyperbolic sine; gradient 1 / sqrt(data^2 + 1).")
  OF("arccosh",        "_sparse_arccosh",                 "acosh(a)",   "g * (1 / sqrt((a - 1) * (a + 1)))",
     "Inverse hyperbolic cosine; gradient 1 / sqrt(data^2 - 1).")
  OF("arctanh",        "_sparse_arctanh",                 "atanh(a)",   "g * (1 / ((1 - a) * (1 + a)))",
     "Inverse hyperbolic tangent; gradient 1 / (1 - data^2).")
  OF("gamma",          "_npx_gamma _sparse_gamma",        "gamma(a)",   "g * (y * digamma(a))",
     "The gamma function; gradient y psi(data).")
  OF("gammaln",        "_npx_gammaln _sparse_gammaln",    "gammaln(a)", "g * digamma(a)",
     "ln |gamma(data)|; gradient psi(data).")
  OF("erf",            "_npx_erf",                        "erf(a)",     "g * (1.1283791670955126 * exp(-(a * a)))",
     "The error function; gradient 2 / sqrt(pi) exp(-data^2).")
  OF("erfinv",         "_npx_erfinv",                     "erfinv(a)",  "g * (0.88622692545275801 * exp(y * y))",
     "Inverse of erf; gradient sqrt(pi) / 2 exp(y^2).")
  FLAT("logical_not",  NULL,                              "!a",
       "1 where data is 0, else 0, in data's dtype.")

  OF("_copy",          "identity",                        "a",          "g",
     "data itself; the gradient passes through.")
  FLAT("BlockGrad",    "_sparse_stop_gradient stop_gradient", "a",
       "data itself; nothing flows back.")
  FLAT("zeros_like",   "_sparse_zeros_like",              "0",
       "Zeros of data's shape and dtype.")
  FLAT("ones_like",    NULL,                              "1",
       "Ones of data's shape and dtype.")
  OF("_contrib_round_ste", "_sparse__contrib_round_ste",      "round(a)",   "g",
     "The nearest integer, halves away from zero; the gradient passes through as if it were data.")
  OF("_contrib_sign_ste", "_sparse__contrib_sign_ste",       "sign(a)",    "g",
     "-1, 0 or 1 as data is below, at or above 0; the gradient passes through as if it were data.")
  { 0 }
};
