/* fused_update.c - a weight that is updated inside backward.
**
** Forward returns the weight itself. The gradient's kernel does the optimizer's step on the weight
** and the states in place, as soon as the gradient is complete and nothing reads the old weight any
** more, so the gradient needs no permanent array. Rates are an array, so that they may change from
** step to step. Their port is marked as changed although they are not, which makes them an
** auxiliary state without a gradient.
*/
#include "kernel/strided_copy.h"
#include "op/op.h"
#include "operators/optimizer/update.h"

struct learn { struct update update; int64_t rule, at; };

/* The rules, in the order of the choices of parameter `rule`. */
static const struct rule { const char *op, *in, *reads; } rules[] = {
  { "sgd_update",         "weight rates!",                 "g0 i0! i1" },
  { "sgd_mom_update",     "weight mom! rates!",            "g0 i0! i1! i2" },
  { "nag_mom_update",     "weight mom! rates!",            "g0 i0! i1! i2" },
  { "adam_update",        "weight mean! var! rates!",      "g0 i0! i1! i2! i3" },
  { "rmsprop_update",     "weight n! rates!",              "g0 i0! i1! i2" },
  { "rmspropalex_update", "weight n! g! delta! rates!",    "g0 i0! i1! i2! i3! i4" },
  { "ftrl_update",        "weight z! n! rates!",           "g0 i0! i1! i2! i3" },
  { "signsgd_update",     "weight rates!",                 "g0 i0! i1" },
  { "signum_update",      "weight mom! rates!",            "g0 i0! i1! i2" },
};
#define RULES \
  "sgd_update|sgd_mom_update|nag_mom_update|adam_update|rmsprop_update|rmspropalex_update|" \
  "ftrl_update|signsgd_update|signum_update"

static const struct rule *rule_of(const void *param)
{
  return &rules[((const struct learn *)param)->rule];
}
static const char *rule_inputs(const void *param)         { return rule_of(param)->in; }
static const char *rule_reads(const void *param)          { return rule_of(param)->reads; }

static int learn_shape(struct infer *s)
{
  ty_desc *rates = &s->in[s->nin - 1];
  for (int round = 0; round < 2; round++) {
    for (int i = 1; i < s->nin - 1; i++) TRY(shape_both(s, &s->in[0], &s->in[i]));
    TRY(shape_both(s, &s->in[0], &s->out[0]));
  }
  int64_t at = ((const struct learn *)s->param)->at;
  if (!desc_known(rates) || (rates->ndim == 2 && rates->dim[0] > at && rates->dim[1] == 2))
    return TY_OK;
  char got[160];
  return infer_fail(s, TY_ESHAPE, rates,
      "rates are rows of {rate, decay}, %lld or more, but the shape is %s", (long long)at + 1,
      text_shape(rates, got, sizeof got));
}

static int learn_type(struct infer *s)
{
  int dtype = s->in[0].dtype;
  if (dtype != TY_NODTYPE && dtype != TY_F32 && dtype != TY_F64)
    return infer_fail(s, TY_EDTYPE, &s->in[0],
        "a weight that is updated inside backward is float32 or float64, not %s",
        dtype_name(dtype));
  for (int i = 1; i < s->nin - 1; i++) TRY(type_both(s, &s->in[0], &s->in[i]));
  TRY(type_both(s, &s->in[0], &s->out[0]));
  return type_is(s, &s->in[s->nin - 1], TY_F32);
}

/* Does a step, and copies the gradient to the output, if it is used. in: the gradient, the weight,
** its states, the rates. */
static int learn_step(struct call *c)
{
  const struct learn *p = c->param;
  const float *rate = (const float *)c->in[c->nin - 1].p + 2 * p->at;
  const struct live_number rates[] = { { offsetof(struct update, lr), TY_F32, &rate[0] },
    { offsetof(struct update, wd), TY_F32, &rate[1] } };
  struct update u = p->update;
  struct operand in[6] = { c->in[1], c->in[0] }, *g = &c->in[0], *dw = &c->out[0];
  for (int i = 2; i < c->nin - 1; i++) in[i] = c->in[i];
  if (dw->p) TRY(move_bytes(c->device, dw->p, g->p, desc_bytes(&g->d)));
  return formula_apply(c->device, op_find(rules[p->rule].op), &u, in, c->nin - 1, &c->in[1], rates,
      COUNT(rates));
}

static const struct param params[] = {
  { "rule", P_ENUM, offsetof(struct learn, rule), NULL, "the update", RULES },
  { "at", P_INT, offsetof(struct learn, at), "0", "row of the rates", NULL, "[0,]" },
  MOMENTUM, RESCALE, CLIP, BETAS, NUMBER(epsilon, "1e-08", "keeps the divisor from 0"),
  NUMBER(gamma1, "0.95", "decay of the mean square"), NUMBER(gamma2, "0.9", "part of the last step that is kept"),
  NUMBER(clip_weights, "-1.0", "weights are cut off at +- this; negative: not at all"),
  NUMBER(lamda1, "0.01", "below it a weight is 0"), NUMBER(beta, "1.0", "added to the root of n"),
  NUMBER(wd_lh, "0.0", "weight decay outside of the momentum"), { 0 } };

const struct op op_fused_update[] = {
  { .name = "_learn", .flags = OP_ALIAS | OP_FUSED_UPDATE,
    .doc = "The weight itself; backward makes the optimizer's step on it and its states, with rates[at] = {learning rate, weight decay}.",
    .in = "weight rates!", .in_of = rule_inputs, .grad_of = rule_reads, .param = params, .param_size = sizeof(struct learn),
    .check = update_check, .shape = learn_shape, .type = learn_type,
    .back_cpu = (const struct kernel[]){ { "update", learn_step, T_FLOAT, .flags = K_ANYWHERE }, { 0 } } },
  { 0 } };
