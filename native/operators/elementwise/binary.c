/* binary.c - element-wise functions of two inputs, each twice: for equal shapes, and with
** broadcasting.
**
** One line each: both names with their aliases, y, gradients of lhs and rhs, doc. Broadcasting
** aligns shapes to the right; an axis of 1, or one that is missing on the left, repeats; its
** gradient is summed. Comparisons and logic give 0 or 1 in the dtype of the inputs and have a
** zero gradient.
*/
#include "op/op.h"

/* Infers the larger of both dims, aligned to the right; 0 is unknown. */
static int broadcast_shape(struct infer *s)
{
  const ty_desc *a = &s->in[0], *b = &s->in[1];
  int64_t dim[TY_MAXDIM];
  int n = MAX(a->ndim, b->ndim);
  if (!a->ndim || !b->ndim) return TY_OK;
  for (int i = 0; i < n; i++) {
    int64_t x = i < n - a->ndim ? 1 : a->dim[i - n + a->ndim],
            y = i < n - b->ndim ? 1 : b->dim[i - n + b->ndim];
    char left[160], right[160];
    if (x > 1 && y > 1 && x != y)
      return infer_fail(s, TY_ESHAPE, b, "shape %s does not broadcast with %s",
          text_shape(b, right, sizeof right), text_shape(a, left, sizeof left));
    dim[i] = x > 1 ? x : y > 1 ? y : x && y ? 1 : 0;
  }
  return shape_is(s, &s->out[0], n, dim);
}

/* Infers the shape that condition, x and y broadcast to. */
static int where_shape(struct infer *s)
{
  int64_t dim[TY_MAXDIM];
  int n = 0;
  for (int k = 0; k < 3; k++) n = MAX(n, s->in[k].ndim);
  for (int i = 0; i < n; i++) dim[i] = 1;
  for (int k = 0; k < 3; k++) {
    const ty_desc *d = &s->in[k];
    if (!d->ndim) return TY_OK;
    for (int i = 0; i < d->ndim; i++) {
      int64_t *to = &dim[n - d->ndim + i], size = d->dim[i];
      char shape[160];
      if (size > 1 && *to > 1 && size != *to)
        return infer_fail(s, TY_ESHAPE, d, "shape %s does not broadcast with the others",
            text_shape(d, shape, sizeof shape));
      if (size > 1 || (!size && *to == 1)) *to = size;
    }
  }
  return shape_is(s, &s->out[0], n, dim);
}

/* Infers the types; the condition may have any. */
static int where_type(struct infer *s)
{
  TRY(type_both(s, &s->in[1], &s->in[2]));
  TRY(type_both(s, &s->in[1], &s->out[0]));
  return type_both(s, &s->in[1], &s->in[2]);
}

static struct attention_part attention_choice(const void *param, int ndim)
{
  (void)param, (void)ndim;
  return (struct attention_part){ ATTENTION_CHOICE };
}

#define SAME(name_, alias_, doc_) \
  .name = name_, .alias = alias_, .doc = doc_, .in = "lhs rhs", .inplace = "0=0 0=1"
#define WIDE(name_, alias_, doc_) SAME(name_, alias_, doc_), .shape = broadcast_shape
#define PAIR(same, same_alias, wide, wide_alias, y_, da_, db_, doc_) \
  { SAME(same, same_alias, doc_ " Shapes are equal."), \
    .formula = &(const struct formula){ y_, { da_, db_ } }, \
    .back_inplace = "0=0 0=1 0=2 1=0 1=1 1=2" }, \
  { WIDE(wide, wide_alias, doc_ " Shapes broadcast; gradients are summed back."), \
    .formula = &(const struct formula){ y_, { da_, db_ } }, .flags = OP_BROADCAST },
#define TEST(same, same_alias, wide, wide_alias, y_, doc_) \
  { SAME(same, same_alias, doc_ " Shapes are equal; the gradient is zero."), \
    .formula = &(const struct formula){ y_, { NULL } }, .flags = OP_ZERO_GRAD }, \
  { WIDE(wide, wide_alias, doc_ " Shapes broadcast; the gradient is zero."), \
    .formula = &(const struct formula){ y_, { NULL } }, .flags = OP_ZERO_GRAD | OP_BROADCAST },

static const struct formula sum = { "a + b", { "g", "g" } };

const struct op op_binary[] = {
  { SAME("elemwise_add", "_Plus _add _plus _sparse_elemwise_add",
      "lhs + rhs; gradients 1. Shapes are equal."), .formula = &sum, .flags = OP_SUM,
    .back_inplace = "0=0 0=1 0=2 1=0 1=1 1=2" },
  { WIDE("broadcast_add", "_sparse_broadcast_add _sparse_broadcast_plus broadcast_plus",
      "lhs + rhs; gradients 1. Shapes broadcast; gradients are summed back."), .formula = &sum,
    .flags = OP_BROADCAST | OP_SUM },
  /*   equal shapes    aliases                                    broadcasting         aliases; y, gradients of lhs and rhs; doc */
  PAIR("elemwise_sub", "_Minus _minus _sparse_elemwise_sub _sub", "broadcast_sub",
       "_sparse_broadcast_minus _sparse_broadcast_sub broadcast_minus", "a - b",       "g",                       "-g",
       "lhs - rhs; gradients 1 and -1.")
  PAIR("elemwise_mul", "_Mul _mul _sparse_elemwise_mul",          "broadcast_mul",     "_sparse_broadcast_mul",
       "a * b",       "g * b",                   "g * a",
       "lhs rhs; each gradient is the other input.")
  PAIR("elemwise_div", "_Div _div _sparse_elemwise_div",          "broadcast_div",     "_sparse_broadcast_div",
       "a / b",       "g / b",                   "g * (-a / (b * b))",
       "lhs / rhs, truncated for integers (0 where rhs is 0); gradients 1 / rhs and -lhs / rhs^2.")
  PAIR("_mod",         "_Mod",                                    "broadcast_mod",     NULL, "mod(a, b)",
       "isreal(g) ? g : 0",       "isreal(g) ? g * -floor(a / b) : 0",
       "Remainder of lhs / rhs with the sign of rhs, 0 where rhs is 0; gradients 1 and -floor(lhs / rhs), 0 for "
       "integers.")
  { WIDE("_npi_fmod", NULL, "Remainder of lhs / rhs with the sign of lhs; gradients 1 and -trunc(lhs / rhs), 0 for "
         "integers. Shapes broadcast."),
    .formula = &(const struct formula){ "fmod(a, b)", { "isreal(g) ? g : 0", "isreal(g) ? g * -trunc(a / b) : 0" } },
    .flags = OP_BROADCAST },
  PAIR("_power",       "_Power",                                  "broadcast_power",   NULL, "pow(a, b)",
       "g * (b * pow(a, b - 1))", "g * (y * log(a))",
       "lhs^rhs; gradients rhs lhs^(rhs - 1) and y ln(lhs).")
  PAIR("_maximum",     "_Maximum",                                "broadcast_maximum", "_npi_maximum", "max(a, b)",
       "g * (a >= b)",            "g * (a < b)",
       "The larger of lhs and rhs, NaN if either is; the gradient goes to the larger one, to lhs if both are equal.")
  PAIR("_minimum",     "_Minimum",                                "broadcast_minimum", "_npi_minimum", "min(a, b)",
       "g * (a <= b)",            "g * (a > b)",
       "The smaller of lhs and rhs, NaN if either is; the gradient goes to the smaller one, to lhs if both are "
       "equal.")
  PAIR("_hypot",       "_Hypot",                                  "broadcast_hypot",   NULL, "hypot(a, b)",
       "g * (a / y)",             "g * (b / y)",
       "sqrt(lhs^2 + rhs^2); gradients lhs / y and rhs / y.")
  TEST("_equal",         "_Equal",         "broadcast_equal",         NULL, "a == b",
       "1 where lhs = rhs, else 0, in their dtype.")
  TEST("_not_equal",     "_Not_Equal",     "broadcast_not_equal",     NULL, "a != b",
       "1 where lhs and rhs differ, else 0, in their dtype.")
  TEST("_greater",       "_Greater",       "broadcast_greater",       NULL, "a > b",
       "1 where lhs > rhs, else 0, in their dtype.")
  TEST("_greater_equal", "_Greater_Equal", "broadcast_greater_equal", NULL, "a >= b",
       "1 where lhs >= rhs, else 0, in their dtype.")
  TEST("_lesser",        "_Lesser",        "broadcast_lesser",        NULL, "a < b",
       "1 where lhs < rhs, else 0, in their dtype.")
  TEST("_lesser_equal",  "_Lesser_Equal",  "broadcast_lesser_equal",  NULL, "a <= b",
       "1 where lhs <= rhs, else 0, in their dtype.")
  TEST("_logical_and",   "_Logical_And",   "broadcast_logical_and",   NULL, "a && b",
       "1 where neither input is 0, else 0, in their dtype.")
  TEST("_logical_or",    "_Logical_Or",    "broadcast_logical_or",    NULL, "a || b",
       "1 where an input is not 0, else 0, in their dtype.")
  TEST("_logical_xor",   "_Logical_Xor",   "broadcast_logical_xor",   NULL, "xor(a, b)",
       "1 where exactly one input is 0, else 0, in their dtype.")

  { .name = "_npi_where", .in = "condition x y", .shape = where_shape, .type = where_type, .flags = OP_BROADCAST,
    .attention = attention_choice,
    .formula = &(const struct formula){ "a != 0 ? b : c", { NULL, "a != 0 ? g : 0", "a != 0 ? 0 : g" } },
    .doc = "x where condition is not 0, else y. Shapes broadcast; gradients go to the chosen side and are summed back." },
  { .name = "_scatter_elemwise_div", .in = "lhs rhs", .inplace = "0=0 0=1",
    .formula = &(const struct formula){ "a / b", { "g / b", "g * (-a / (b * b))" } },
    .doc = "lhs / rhs at the rows of lhs that are stored: all of them, as arrays are dense. Gradients as of elemwise_div." },
  { .name = "_grad_add", .in = "lhs rhs", .inplace = "0=0 0=1", .formula = &sum, .flags = OP_SUM,
    .doc = "lhs + rhs of equal shapes: joins the gradients that come from several readers." },
  { .name = "_identity_with_attr_like_rhs", .in = "lhs rhs", .inplace = "0=0", .formula = &(const struct formula){ "a", { "g", NULL } },
    .doc = "lhs; both inputs and the output have one shape. The gradient goes to lhs, rhs gets zeros." },
  { 0 }
};
