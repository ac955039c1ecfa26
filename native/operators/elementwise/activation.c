/* activation.c - Activation, hard_sigmoid, clip, _contrib_quadratic, _contrib_swiglu. Formulas
** choose by act_type, which is folded when a pointwise program is built, so that operands of the
** other choices are not read. Numeric parameters are rounded to float32 as in the reference, which
** matters for float64 data.
*/
#include "op/op.h"
#include "pointwise/pointwise.h"

struct activation { int64_t act_type; };
static const struct param activation_params[] = {
  { "act_type", P_ENUM, offsetof(struct activation, act_type), NULL, "which function", "relu|sigmoid|tanh|softrelu|softsign",
    .elsewhere = "gelu leaky elu selu prelu rrelu: use LeakyReLU, which has this act_type; leaky_relu: use LeakyReLU; "
                 "silu swish: use data * sigmoid(data); mish: use data * tanh(softrelu(data)); softplus: use softrelu; "
                 "softmax log_softmax softmin hard_sigmoid: use the operator of that name" },
  { 0 } };
static const struct formula activation_row = {
  "$act_type == 0 ? relu(a) : $act_type == 1 ? sigmoid(a) : $act_type == 2 ? tanh(a) : $act_type == 3 ? softrelu(a) "
  ": a / (1 + abs(a))",
  { "$act_type == 0 ? g * step(y) : $act_type == 1 ? g * (y * (1 - y)) : $act_type == 2 ? g * (1 - y * y) "
    ": $act_type == 3 ? g * -expm1(-y) : g / square(1 + abs(a))" } };

static void to_singles(double *v, int n)
{
  for (int i = 0; i < n; i++) v[i] = to_single(v[i]);
}
static int two_singles(void *param) { return to_singles(param, 2), TY_OK; }
static int three_singles(void *param) { return to_singles(param, 3), TY_OK; }

/* Returns the ACT_ of act_type; the table is in the order of the choices. */
static int activation_of(const void *param)
{
  static const int act[] = { ACT_RELU, ACT_SIGMOID, ACT_TANH, ACT_SOFTRELU, ACT_NONE };
  return act[((const struct activation *)param)->act_type];
}

struct hard { double alpha, beta; };
static const struct param hard_params[] = {
  { "alpha", P_FLOAT, offsetof(struct hard, alpha), "0.2", "slope" },
  { "beta",  P_FLOAT, offsetof(struct hard, beta),  "0.5", "value at 0" }, { 0 } };

struct clip_param { double a_min, a_max; };
static const struct param clip_params[] = {
  { "a_min", P_FLOAT, offsetof(struct clip_param, a_min), NULL, "least result" },
  { "a_max", P_FLOAT, offsetof(struct clip_param, a_max), NULL, "greatest result" }, { 0 } };

struct quadratic { double a, b, c; };
static const struct param quadratic_params[] = {
  { "a", P_FLOAT, offsetof(struct quadratic, a), "0.0", "factor of the square" },
  { "b", P_FLOAT, offsetof(struct quadratic, b), "0.0", "factor of data" },
  { "c", P_FLOAT, offsetof(struct quadratic, c), "0.0", "constant" }, { 0 } };

#define ALIKE .in = "data", .inplace = "0=0", .back_inplace = "0=0 0=1"

static const struct formula swiglu_row = {
  "a * sigmoid(a) * b",
  { "s = sigmoid(a); g * b * s * (1 + a * (1 - s))", "g * (a * sigmoid(a))" } };

const struct op op_activation[] = {
  { .name = "Activation", .alias = "_npx_activation", ALIKE,
    .doc = "relu, sigmoid, tanh, softrelu = ln(1 + e^data) or softsign = data / (1 + |data|), element by element; same "
           "shape. The gradient is made from the output, that of softsign from the input.",
    .param = activation_params, .param_size = sizeof(struct activation), .formula = &activation_row,
    .activation_of = activation_of },
  { .name = "hard_sigmoid", ALIKE,
    .doc = "alpha data + beta, cut off below 0 and above 1; gradient alpha where the result is strictly between, else 0.",
    .param = hard_params, .param_size = sizeof(struct hard), .check = two_singles,
    .formula = &(const struct formula){ "clip($alpha * a + $beta, 0, 1)", { "g * (y > 0 && y < 1 ? $alpha : 0)" } } },
  { .name = "clip", .alias = "_npi_clip _sparse_clip", ALIKE,
    .doc = "data, but never below a_min or above a_max; the gradient is 0 where data is outside of them.",
    .param = clip_params, .param_size = sizeof(struct clip_param), .check = two_singles,
    .formula = &(const struct formula){ "a > $a_max ? $a_max : a < $a_min ? $a_min : a", { "a > $a_max || a < $a_min ? 0 : g" } } },
  { .name = "_contrib_quadratic", ALIKE,
    .doc = "a data^2 + b data + c, element by element; gradient 2 a data + b.",
    .param = quadratic_params, .param_size = sizeof(struct quadratic), .check = three_singles,
    .formula = &(const struct formula){ "$a * a * a + $b * a + $c", { "g * (2 * $a * a + $b)" } }, .flags = OP_NAMED_INPUT },
  { .name = "_contrib_swiglu", .in = "gate data", .inplace = "0=0 0=1", .back_inplace = "0=0 1=0",
    .doc = "gate sigmoid(gate) data, element by element: the gated unit of today's language models; same shapes.",
    .formula = &swiglu_row },
  { 0 }
};
