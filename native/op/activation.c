/* activation.c - Activation, hard_sigmoid, clip. The choice in act_type folds when a tape is made, and with it goes
** whatever the other choices would have read.
*/
#include "op.h"

struct activation { int64_t act_type; };
static const struct param activation_params[] = {
  { "act_type", P_ENUM, offsetof(struct activation, act_type), NULL, "which function", "relu|sigmoid|tanh|softrelu|softsign" }, { 0 } };
static const struct row activation_row = {
  "$act_type == 0 ? relu(a) : $act_type == 1 ? sigmoid(a) : $act_type == 2 ? tanh(a) : $act_type == 3 ? softrelu(a) : a / (1 + abs(a))",
  { "$act_type == 0 ? g * step(y) : $act_type == 1 ? g * (y * (1 - y)) : $act_type == 2 ? g * (1 - y * y) : $act_type == 3 ? g * -expm1(-y) "
    ": g / square(1 + abs(a))" } };

struct hard { double alpha, beta; };
static const struct param hard_params[] = {
  { "alpha", P_FLOAT, offsetof(struct hard, alpha), "0.2", "slope" },
  { "beta",  P_FLOAT, offsetof(struct hard, beta),  "0.5", "value at 0" }, { 0 } };

struct bounds { double a_min, a_max; };
static const struct param clip_params[] = {
  { "a_min", P_FLOAT, offsetof(struct bounds, a_min), NULL, "least result" },
  { "a_max", P_FLOAT, offsetof(struct bounds, a_max), NULL, "greatest result" }, { 0 } };

const struct op op_activation[] = {
  { .name = "Activation", .alias = "_npx_activation", .in = "data", .param = activation_params, .param_size = sizeof(struct activation),
    .doc = "relu, sigmoid, tanh, softrelu = ln(1 + e^data) or softsign = data / (1 + |data|), element by element; same shape. The gradient "
           "comes from the output, that of softsign from the input.",
    .inplace = "0=0", .back_inplace = "0=0 0=1", .row = &activation_row, .tier = 1 },
  { .name = "hard_sigmoid", .in = "data", .param = hard_params, .param_size = sizeof(struct hard), .inplace = "0=0", .back_inplace = "0=0 0=1",
    .doc = "alpha data + beta, cut off below 0 and above 1; gradient alpha where the result lies strictly between, else 0.",
    .row = &(const struct row){ "clip($alpha * a + $beta, 0, 1)", { "g * (y > 0 && y < 1 ? $alpha : 0)" } }, .tier = 2 },
  { .name = "clip", .alias = "_npi_clip _sparse_clip", .in = "data", .param = clip_params, .param_size = sizeof(struct bounds), .inplace = "0=0", .back_inplace = "0=0 0=1",
    .doc = "data, but never below a_min or above a_max; the gradient passes where a_min <= data <= a_max.",
    .row = &(const struct row){ "a > $a_max ? $a_max : a < $a_min ? $a_min : a", { "a >= $a_min && a <= $a_max ? g : 0" } }, .tier = 1 },
  { 0 }
};
