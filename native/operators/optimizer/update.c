/* update.c - optimizer updates of one weight, by formulas: y is the new weight, states are assigned
** in place.
**
** a is the weight, b its gradient, c d e f the states in the order of the inputs. GRADIENT leaves
** the rescaled and clipped gradient in b; DECAYED does so with the weight decay inside of the
** clipping. Updates named mp_ keep a float32 master copy of a float16 weight as a state; the weight
** itself is only written.
*/
#include "op/op.h"
#include "operators/optimizer/update.h"
#include "kernel/vec/update.h"

int update_check(void *param)
{
  double *v = param;
  for (int i = 0; i < UPDATE_NUMBERS; i++) v[i] = to_single(v[i]);
  return TY_OK;
}

/* Rounds the parameters to float32, except epsilon. */
static int ftml_check(void *param)
{
  double epsilon = ((struct update *)param)->epsilon;
  update_check(param);
  ((struct update *)param)->epsilon = epsilon;
  return TY_OK;
}

/* -- inference --------------------------------------------------------------------------------- */

/* Infers the types: weight, gradient and output have one; states are float32. */
static int master_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->in[1]));
  TRY(type_both(s, &s->in[0], &s->out[0]));
  for (int i = 2; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  return TY_OK;
}

/* Infers the types: the step that is returned is float32. */
static int phase1_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->in[1]));
  for (int i = 2; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  return type_is(s, &s->out[0], TY_F32);
}

static int phase2_type(struct infer *s)
{
  for (int i = 1; i < s->nin; i++) TRY(type_is(s, &s->in[i], TY_F32));
  return type_both(s, &s->in[0], &s->out[0]);
}

/* Infers the types; rescale_grad may have any dtype. */
static int scale_type(struct infer *s)
{
  int dtype = s->in[0].dtype;
  for (int i = 0; i < s->nin - 1; i++) TRY(type_is(s, &s->in[i], dtype));
  return type_is(s, &s->out[0], dtype);
}

static int master_scale_type(struct infer *s)
{
  TRY(type_both(s, &s->in[0], &s->in[1]));
  TRY(type_both(s, &s->in[0], &s->out[0]));
  for (int i = 2; i < s->nin - 1; i++) TRY(type_is(s, &s->in[i], TY_F32));
  return TY_OK;
}

int update_infer_number(struct infer *s, const ty_desc *weight, ty_desc *slot)
{
  const int64_t one = 1;
  if (!slot->ndim || (weight->ndim && slot->ndim > weight->ndim))
    return shape_is(s, slot, 1, &one);
  for (int k = 0; k < slot->ndim; k++) TRY(shape_dim(s, slot, k, 1));
  return TY_OK;
}

/* Infers the weight's shape for inputs and output, except for inputs first .. last, which are norms
** or scales. */
static int shape_alike(struct infer *s, int first, int last)
{
  for (int i = 1; i < s->nin; i++)
    if (i < first || i > last) TRY(shape_both(s, &s->in[0], &s->in[i]));
  for (int i = first; i <= last; i++) TRY(update_infer_number(s, &s->in[0], &s->in[i]));
  return shape_both(s, &s->in[0], &s->out[0]);
}
static int phase2_shape(struct infer *s) { return shape_alike(s, 2, 3); }
static int scale_shape(struct infer *s) { return shape_alike(s, s->nin - 1, s->nin - 1); }

/* -- parameters -------------------------------------------------------------------------------- */

static const struct param sgd[] = { RATE, COMMON, LAZY, { 0 } }, sgd_mom[] = { RATE, MOMENTUM, COMMON, LAZY, { 0 } };
static const struct param rate_only[] = { RATE, COMMON, { 0 } }, nag[] = { RATE, MOMENTUM, COMMON, { 0 } };
static const struct param adam[] = { RATE, BETAS, NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), COMMON, LAZY, { 0 } };
static const struct param rmsprop[] = {
  RATE, NUMBER(gamma1, "0.95", "decay of the mean square"), NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), COMMON,
  NUMBER(clip_weights, "-1.0", "weights are cut off at +- this; negative: not at all"), { 0 } };
static const struct param rmspropalex[] = {
  RATE, NUMBER(gamma1, "0.95", "decay of mean and mean square"), NUMBER(gamma2, "0.9", "part of the last step that is kept"),
  NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), COMMON,
  NUMBER(clip_weights, "-1.0", "weights are cut off at +- this; negative: not at all"), { 0 } };
static const struct param ftrl[] = {
  RATE, NUMBER(lamda1, "0.01", "below it a weight is 0"), NUMBER(beta, "1.0", "added to the root of n"), COMMON, { 0 } };
static const struct param ftml[] = {
  RATE, { "beta1", P_FLOAT, offsetof(struct update, beta1), "0.6", "decay of z", NULL, "[0,1]" },
  { "beta2", P_FLOAT, offsetof(struct update, beta2), "0.999", "decay of the mean square", NULL, "[0,1]" },
  NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), STEP, DECAY, RESCALE,
  NUMBER(clip_grad, "-1.0", "gradients are cut off at +- this; negative: not at all"), { 0 } };
static const struct param signum[] = { RATE, MOMENTUM, COMMON, NUMBER(wd_lh, "0.0", "weight decay outside of the momentum"), { 0 } };
static const struct param phase1[] = {
  BETAS, NUMBER(epsilon, "1e-06", "keeps the divisor from 0"), STEP, UNBIASED, NUMBER(wd, NULL, "weight decay"), RESCALE, CLIP, { 0 } };
static const struct param phase2[] = { RATE, BOUNDS, { 0 } };
static const struct param adamw[] = {
  RATE, BETAS, NUMBER(epsilon, "1e-08", "keeps the divisor from 0"), DECAY, NUMBER(eta, NULL, "multiplies the whole step"), CLIP, { 0 } };
static const struct param adagrad[] = { RATE, NUMBER(epsilon, "1e-07", "keeps the divisor from 0"), COMMON, { 0 } };
static const struct param average[] = { NUMBER(momentum, "0.9", "part of the average that is kept"), { 0 } };
static const struct param lars[] = {
  NUMBER(eta, NULL, "trust coefficient"), NUMBER(eps, NULL, "keeps the divisor from 0"), RESCALE, { 0 } };

/* -- formulas ---------------------------------------------------------------------------------- */

#define CUT(x, limit) "(" limit " >= 0 ? clip(" x ", -" limit ", " limit ") : " x ")"
#define GRADIENT "b = $rescale_grad * b; b = " CUT("b", "$clip_gradient") "; "
#define DECAYED  "b = $rescale_grad * b + $wd * a; b = " CUT("b", "$clip_gradient") "; "
#define MOMENTS  "c = $beta1 * c + (1 - $beta1) * b; d = $beta2 * d + (1 - $beta2) * b * b; "
/* a gradient scale of 0, Inf or NaN: the step is skipped */
#define USABLE   "(isfinite(s) && s != 0)"

#define LAMB(w) GRADIENT MOMENTS \
  "m = $bias_correction ? c / (1 - pow($beta1, $t)) : c; " \
  "v = $bias_correction ? d / (1 - pow($beta2, $t)) : d; " \
  "m / (sqrt(v) + $epsilon) + $wd * " w
#define LAMB2(w) \
  "c = $lower_bound >= 0 ? max(c, $lower_bound) : c; " \
  "c = $upper_bound >= 0 ? min(c, $upper_bound) : c; " \
  w " - $lr * (c == 0 || d == 0 ? 1 : c / d) * b"
#define ADAMW(w) \
  "b = b * s; b = " CUT("b", "$clip_gradient") "; m = c; v = d; " MOMENTS \
  "c = " USABLE " ? c : m; d = " USABLE " ? d : v; " \
  "x = " w " - $eta * ($lr * c / (sqrt(d) + $epsilon) + $wd * " w "); "

struct adam_run {
  const struct vec_ops *r;
  struct adam k;
  const struct operand *in;
  void *y;
  int64_t n;
};
enum { ADAM_CHUNK = 1 << 14 };                        /* elements */

static void adam_chunks(int64_t begin, int64_t end, void *context)
{
  const struct adam_run *q = context;
  const struct vec_ops *r = q->r;
  const int64_t first = begin * ADAM_CHUNK, n = MIN(end * ADAM_CHUNK, q->n) - first;
  r->update->adam(vec_at(r, q->y, first), vec_at(r, q->in[0].p, first),
      vec_at(r, q->in[1].p, first),
      vec_at(r, q->in[2].p, first), vec_at(r, q->in[3].p, first), &q->k, n);
}

static bool adam_sweep(const void *param, const struct operand *in, const struct operand *out)
{
  const struct update *p = param;
  struct adam_run q = {
    .r = vec_ops_of(out->d.dtype), .in = in, .y = out->p, .n = desc_count(&out->d)
  };
  if (p->clip_gradient >= 0) return false;
  q.k = (struct adam){ p->lr, p->beta1, p->beta2, p->epsilon, p->wd, p->rescale_grad };
  parallel_chunks((q.n + ADAM_CHUNK - 1) / ADAM_CHUNK, 1, adam_chunks, &q);
  return true;
}

#define UPDATE(name_, in_, params_, y_, ...) SWEPT(name_, in_, params_, y_, NULL, __VA_ARGS__)
#define SWEPT(name_, in_, params_, y_, sweep_, ...) \
  RULE(name_, in_, params_, y_, sweep_, OP_NUMBERED_INPUTS, __VA_ARGS__)
#define BROADCASTS(name_, in_, params_, y_, ...) \
  RULE(name_, in_, params_, y_, NULL, OP_NUMBERED_INPUTS | OP_BROADCAST, __VA_ARGS__)
#define RULE(name_, in_, params_, y_, sweep_, flags_, ...) \
  { .name = name_, .in = in_, .param = params_, .param_size = sizeof(struct update), \
    .check = update_check, .inplace = "0=0", .flags = flags_, \
    .formula = &(const struct formula){ y_, { NULL }, sweep_ }, __VA_ARGS__ }

const struct op op_update[] = {
  UPDATE("sgd_update", "weight grad", sgd, GRADIENT "(1 - $lr * $wd) * a - $lr * b", .alias = "_sparse_sgd_update",
    .doc = "A step of lr against the gradient, which is rescaled and clipped, with weight decay. Gives the new weight."),
  UPDATE("sgd_mom_update", "weight grad mom!", sgd_mom, GRADIENT "c = $momentum * c - $lr * $wd * a - $lr * b; a + c",
    .alias = "_sparse_sgd_mom_update",
    .doc = "A step with momentum: mom becomes momentum mom less lr times the gradient and decay, and is added to the weight."),
  UPDATE("mp_sgd_update", "weight grad weight32!", sgd,
    GRADIENT "c = (1 - $lr * $wd) * c - $lr * b; c", .type = master_type,
    .doc = "sgd_update on a float32 master copy, weight32; the weight is its rounded image."),
  UPDATE("mp_sgd_mom_update", "weight grad mom! weight32!", sgd_mom,
    GRADIENT "c = $momentum * c - $lr * $wd * d - $lr * b; d = d + c; d", .type = master_type,
    .doc = "sgd_mom_update on a float32 master copy, weight32; the weight is its rounded image."),
  UPDATE("nag_mom_update", "weight grad mom!", nag,
    GRADIENT "m = $momentum * c; x = a - m + ($momentum + 1) * (m - $lr * (b + $wd * a)); c = m - $lr * (b + $wd * x); x",
    .doc = "A step with Nesterov's momentum: the momentum looks one step ahead; its decay is that of the new weight."),
  UPDATE("mp_nag_mom_update", "weight grad mom! weight32!", nag,
    GRADIENT "m = $momentum * c; d = d - m + ($momentum + 1) * (m - $lr * (b + $wd * d)); c = m - $lr * (b + $wd * d); d",
    .type = master_type, .doc = "nag_mom_update on a float32 master copy, weight32; the weight is its rounded image."),
  SWEPT("adam_update", "weight grad mean! var!", adam, DECAYED MOMENTS "a - $lr * c / (sqrt(d) + $epsilon)", adam_sweep,
    .alias = "_sparse_adam_update",
    .doc = "A step by running mean and root mean square of the gradient, decay and clipping included; without bias correction."),
  UPDATE("rmsprop_update", "weight grad n!", rmsprop,
    DECAYED "c = $gamma1 * c + (1 - $gamma1) * b * b; x = a - $lr * b / sqrt(c + $epsilon); " CUT("x", "$clip_weights"),
    .doc = "A step by the gradient over its running root mean square, n; the weights may be clipped afterwards."),
  UPDATE("rmspropalex_update", "weight grad n! g! delta!", rmspropalex,
    DECAYED "c = $gamma1 * c + (1 - $gamma1) * b * b; d = $gamma1 * d + (1 - $gamma1) * b; "
    "e = $gamma2 * e - $lr * b / sqrt(c - d * d + $epsilon); x = a + e; " CUT("x", "$clip_weights"),
    .doc = "A step with momentum, delta, by the gradient over its running deviation, made of n and g; the weights may be clipped."),
  UPDATE("ftrl_update", "weight grad z! n!", ftrl,
    GRADIENT "m = d + b * b; c = c + b - (sqrt(m) - sqrt(d)) * a / $lr; d = m; "
    "abs(c) <= $lamda1 ? 0 : (sign(c) * $lamda1 - c) / (($beta + sqrt(d)) / $lr + $wd)", .alias = "_sparse_ftrl_update",
    .doc = "Follows the regularised leader, coordinate by coordinate; weights whose z stays within lamda1 are 0."),
  { .name = "ftml_update", .in = "weight grad d! v! z!", .param = ftml, .param_size = sizeof(struct update), .check = ftml_check,
    .flags = OP_NUMBERED_INPUTS,
    .doc = "Follows the moving leader: weight = -z / d with exponentially weighted sums d, v, z.", .inplace = "0=0",
    .formula = &(const struct formula){
      "b = $rescale_grad * b + $wd * a; b = " CUT("b", "$clip_grad") "; d = $beta2 * d + (1 - $beta2) * b * b; "
      "m = (1 - pow($beta1, $t)) / $lr * (sqrt(d / (1 - pow($beta2, $t))) + $epsilon); "
      "e = $beta1 * e + (1 - $beta1) * b - (m - $beta1 * c) * a; c = m; -e / c", { NULL } } },
  UPDATE("signsgd_update", "weight grad", rate_only, "(1 - $lr * $wd) * a - $lr * sign(b)",
    .doc = "A step of lr against the sign of the gradient, with weight decay; rescaling and clipping have no effect."),
  UPDATE("signum_update", "weight grad mom!", signum,
    GRADIENT "c = $momentum * c - (1 - $momentum) * $wd * a - (1 - $momentum) * b; (1 - $lr * $wd_lh) * a + $lr * sign(c)",
    .doc = "A step of lr along the sign of a running mean of the negative gradient, mom."),
  UPDATE("lamb_update_phase1", "weight grad mean! var!", phase1, LAMB("a"),
    .doc = "The direction of a LAMB step: Adam's, with decay, before it is scaled by norms."),
  BROADCASTS("lamb_update_phase2", "weight g r1 r2", phase2, LAMB2("a"), .shape = phase2_shape,
    .doc = "The LAMB step along g, scaled by the norm of the weight r1 (within its bounds) over that of g, r2."),
  UPDATE("mp_lamb_update_phase1", "weight grad mean! var! weight32", phase1, LAMB("e"), .type = phase1_type,
    .doc = "lamb_update_phase1 with a float32 master copy, weight32; gives float32."),
  BROADCASTS("mp_lamb_update_phase2", "weight g r1 r2 weight32", phase2, LAMB2("e"), .shape = phase2_shape,
    .type = phase2_type,
    .doc = "lamb_update_phase2 from a float32 master copy, weight32, which is read only; gives the weight."),
  BROADCASTS("_adamw_update", "weight grad mean! var! rescale_grad", adamw, "s = e; " ADAMW("a") USABLE " ? x : a",
    .shape = scale_shape, .type = scale_type,
    .doc = "Adam with decoupled weight decay, all times eta; skipped where the scale of the gradient is 0, infinite or NaN."),
  BROADCASTS("_mp_adamw_update", "weight grad mean! var! weight32! rescale_grad", adamw,
    "s = f; " ADAMW("e") "e = " USABLE " ? x : e; " USABLE " ? e : a",
    .shape = scale_shape, .type = master_scale_type,
    .doc = "_adamw_update on a float32 master copy, weight32; the weight is its rounded image."),
  UPDATE("_sparse_adagrad_update", "weight grad history!", adagrad,
    GRADIENT "c = c + b * b; a - $lr * b / sqrt(c + $epsilon)",
    .doc = "A step by the gradient over the root of the sum of its squares so far, history."),
  RULE("multi_lars", "lrs weights_sum_sq grads_sum_sq wds", lars,
    "b > 0 && c > 0 ? a * $eta * sqrt(b) / (sqrt(c) * $rescale_grad + d * sqrt(b) + $eps) : a", NULL, 0,
    .doc = "Learning rates scaled per layer by the norm of weights over that of gradients and decay; kept where a norm is 0."),
  { .name = "_moving_average", .in = "value average!", .param = average, .param_size = sizeof(struct update),
    .formula = &(const struct formula){ "b = $momentum * b + (1 - $momentum) * a; b", { NULL } },
    .doc = "The average becomes momentum times itself and 1 - momentum times the value, in place; gives the new one." },
  { 0 }
};
