/* scalar.c - element-wise functions of an input and a number.
**
** One line each: name, aliases, y, gradient, doc. On integers the number is truncated first and
** the result keeps the dtype (bool becomes int64), unless is_int is false: then the result is
** float64.
*/
#include "op/op.h"

struct scalar { double scalar; int64_t is_int; };
static const struct param params[] = {
  { "scalar", P_FLOAT, offsetof(struct scalar, scalar), "1.0",  "the number" },
  { "is_int", P_BOOL,  offsetof(struct scalar, is_int), "True", "on integers: the number is an integer; False: compute in float64" },
  { 0 } };
static const struct param smooth_params[] = { { "scalar", P_FLOAT, 0, "1.0", "sigma: the inner part ends at 1 / sigma^2" }, { 0 } };

static int result_type(struct infer *s)
{
  const struct scalar *p = s->param;
  int d = s->in[0].dtype;
  if (d == TY_NODTYPE) return type_is(s, &s->in[0], s->out[0].dtype);
  if (dtype_float(d)) return type_is(s, &s->out[0], d);
  return type_is(s, &s->out[0], !p->is_int ? TY_F64 : d == TY_BOOL ? TY_I64 : d);
}

static struct attention_part make_scale_part(const void *param, int ndim)
{
  (void)ndim;
  return (struct attention_part){ ATTENTION_SCALE,
    .number = ((const struct scalar *)param)->scalar };
}

static struct attention_part make_divide_part(const void *param, int ndim)
{
  (void)ndim;
  return (struct attention_part){ ATTENTION_SCALE,
    .number = 1 / ((const struct scalar *)param)->scalar };
}

/* Infers an array of one float32, for any data. */
static int scale_shape(struct infer *s)
{
  const int64_t one = 1;
  TRY(shape_is(s, &s->in[1], 1, &one));
  return shape_both(s, &s->in[0], &s->out[0]);
}

static int scale_type(struct infer *s)
{
  TRY(type_is(s, &s->in[1], TY_F32));
  return type_both(s, &s->in[0], &s->out[0]);
}

#define NUMBERED(name_, alias_) \
  .name = name_, .alias = alias_, .in = "data", .param = params, \
  .param_size = sizeof(struct scalar), .type = result_type, .inplace = "0=0"
#define SCALES(name_, alias_, y_, grad_, attention_, doc_) \
  { NUMBERED(name_, alias_), .doc = doc_, .formula = &(const struct formula){ y_, { grad_ } }, \
    .back_inplace = "0=0 0=1", .attention = attention_ },
#define WITH(name_, alias_, y_, grad_, doc_) SCALES(name_, alias_, y_, grad_, NULL, doc_)
#define TEST(name_, alias_, y_, doc_) \
  { NUMBERED(name_, alias_), .doc = doc_ " in data's dtype; the gradient is zero.", \
    .formula = &(const struct formula){ y_, { NULL } }, .flags = OP_ZERO_GRAD },

const struct op op_scalar[] = {
  /*   name               aliases                               y                  gradient; doc */
  WITH("_plus_scalar",    "_PlusScalar",                        "a + $scalar",     "g",
       "data + scalar; gradient 1.")
  WITH("_minus_scalar",   "_MinusScalar",                       "a - $scalar",     "g",
       "data - scalar; gradient 1.")
  WITH("_rminus_scalar",  "_RMinusScalar",                      "$scalar - a",     "-g",
       "scalar - data; gradient -1.")
  SCALES("_mul_scalar",   "_MulScalar",                         "a * $scalar",     "g * $scalar", make_scale_part,
       "data scalar; gradient scalar.")
  SCALES("_div_scalar",   "_DivScalar",                         "a / $scalar",     "g / $scalar", make_divide_part,
       "data / scalar; gradient 1 / scalar.")
  WITH("_rdiv_scalar",    "_RDivScalar",                        "$scalar / a",     "g * (-$scalar / (a * a))",
       "scalar / data; gradient -scalar / data^2.")
  WITH("_mod_scalar",     "_ModScalar",                         "mod(a, $scalar)",
       "isreal(g) ? g : 0",
       "Remainder of data / scalar with the sign of scalar; gradient 1, 0 for integers.")
  WITH("_rmod_scalar",    "_RModScalar",                        "mod($scalar, a)",
       "isreal(g) ? g * -floor($scalar / a) : 0",
       "Remainder of scalar / data with the sign of data; gradient -floor(scalar / data), 0 for integers.")
  WITH("_power_scalar",   "_PowerScalar",                       "pow(a, $scalar)",
       "g * ($scalar * pow(a, $scalar - 1))",
       "data^scalar; gradient scalar data^(scalar - 1).")
  WITH("_rpower_scalar",  "_RPowerScalar",                      "pow($scalar, a)", "g * (y * log($scalar))",
       "scalar^data; gradient y ln(scalar).")
  WITH("_maximum_scalar", "_MaximumScalar _npi_maximum_scalar", "max(a, $scalar)", "g * (a >= $scalar)",
       "The larger of data and scalar; gradient 1 where data >= scalar, else 0.")
  WITH("_minimum_scalar", "_MinimumScalar _npi_minimum_scalar", "min(a, $scalar)", "g * (a <= $scalar)",
       "The smaller of data and scalar; gradient 1 where data <= scalar, else 0.")
  WITH("_hypot_scalar",   "_HypotScalar _npi_hypot_scalar",     "hypot(a, $scalar)","g * (a / y)",
       "sqrt(data^2 + scalar^2); gradient data / y.")
  TEST("_equal_scalar",         "_EqualScalar",        "a == $scalar",
       "1 where data = scalar, else 0,")
  TEST("_not_equal_scalar",     "_NotEqualScalar",     "a != $scalar",
       "1 where data differs from scalar, else 0,")
  TEST("_greater_scalar",       "_GreaterScalar",      "a > $scalar",
       "1 where data > scalar, else 0,")
  TEST("_greater_equal_scalar", "_GreaterEqualScalar", "a >= $scalar",
       "1 where data >= scalar, else 0,")
  TEST("_lesser_scalar",        "_LesserScalar",       "a < $scalar",
       "1 where data < scalar, else 0,")
  TEST("_lesser_equal_scalar",  "_LesserEqualScalar",  "a <= $scalar",
       "1 where data <= scalar, else 0,")
  TEST("_logical_and_scalar",   "_LogicalAndScalar",   "a && $scalar",
       "1 where neither data nor scalar is 0, else 0,")
  TEST("_logical_or_scalar",    "_LogicalOrScalar",    "a || $scalar",
       "1 where data or scalar is not 0, else 0,")
  TEST("_logical_xor_scalar",   "_LogicalXorScalar",   "xor(a, $scalar)",
       "1 where exactly one of data and scalar is 0, else 0,")

  { .name = "_contrib_gradientmultiplier", .in = "data", .param = params, .param_size = sizeof(struct scalar),
    .doc = "data itself; the gradient is multiplied by scalar (a negative one turns it around).",
    .inplace = "0=0", .back_inplace = "0=0", .formula = &(const struct formula){ "a", { "g * $scalar" } } },
  { .name = "_scale_gradient", .in = "data scale!", .shape = scale_shape, .type = scale_type, .flags = OP_BROADCAST,
    .doc = "data itself; the gradient is multiplied by scale, a float32 array of one element.",
    .formula = &(const struct formula){ "a", { "g * b", NULL } } },
  { .name = "smooth_l1", .alias = "_npx_smooth_l1", .in = "data", .param = smooth_params, .param_size = sizeof(double),
    .doc = "scalar^2 data^2 / 2 where |data| < 1 / scalar^2, else |data| - 1 / (2 scalar^2); gradient scalar^2 data inside, "
           "the sign of data outside.",
    .inplace = "0=0", .back_inplace = "0=0 0=1",
    .formula = &(const struct formula){
      "abs(a) > 1 / square($scalar) ? abs(a) - 0.5 / square($scalar) : 0.5 * a * a * square($scalar)",
      { "g * (abs(a) > 1 / square($scalar) ? sign(a) : square($scalar) * a)" } } },
  { NUMBERED("_scatter_plus_scalar", NULL), .formula = &(const struct formula){ "a + $scalar", { "g" } },
    .doc = "data + scalar at the rows that are stored: all of them, as arrays are dense. Gradient 1." },
  { NUMBERED("_scatter_minus_scalar", NULL), .formula = &(const struct formula){ "a - $scalar", { "g" } },
    .doc = "data - scalar at the rows that are stored: all of them, as arrays are dense. Gradient 1." },
  { 0 }
};
