/* control_flow.c - control flow: _foreach, _while_loop, _cond, and the operators to which they are
** expanded.
**
** The three have bodies, which belong to the node (graph/graph.h). native/pass/control_flow.c
** infers shapes through them and expands them when an executor is made, so they have no kernels.
** The expansion uses three operators: _guard converts a condition to a byte, _gate passes values
** into a part that may be skipped, _select passes values out of it. A gate's gradient is zero if
** its part was skipped, so results of skipped values are never used.
*/
#include "op/op.h"
#include "operators/control/subgraphs.h"

#define LOCS(of, field, name, doc) { name, P_INTS, offsetof(struct of, field), NULL, doc }
#define COUNTS(of, least) \
  { "num_args",    P_INT, offsetof(struct of, num_args),    NULL, "inputs and bodies", NULL, \
    least }, \
  { "num_outputs", P_INT, offsetof(struct of, num_outputs), NULL, \
    "outputs and final states together", NULL, "[1,]" }

static const struct param foreach_params[] = {
  COUNTS(foreach_param, "[1,]"),
  { "num_out_data", P_INT, offsetof(struct foreach_param, num_out_data), NULL, "outputs that are stacked; the rest are states",
    NULL, "[0,]" },
  LOCS(foreach_param, state_locs,  "in_state_locs", "the body's variable of each state, -1 where it has none"),
  LOCS(foreach_param, data_locs,   "in_data_locs",  "the body's variable of each slice, -1 where it has none"),
  LOCS(foreach_param, remain_locs, "remain_locs",   "the body's variable of each other input"),
  { 0 }
};

static const struct param while_params[] = {
  COUNTS(while_param, "[2,]"),
  { "num_out_data",   P_INT, offsetof(struct while_param, num_out_data),   NULL, "outputs that are stacked; the rest are loop variables",
    NULL, "[0,]" },
  { "max_iterations", P_INT, offsetof(struct while_param, max_iterations), NULL, "rows of the stacked outputs", NULL, "[1,]" },
  LOCS(while_param, cond_locs, "cond_input_locs", "the input of each variable of the condition"),
  LOCS(while_param, func_locs, "func_input_locs", "the input of each variable of the body"),
  LOCS(while_param, var_locs,  "func_var_locs",   "the body's variable of each loop variable"),
  { 0 }
};

static const struct param cond_params[] = {
  COUNTS(cond_param, "[3,]"),
  LOCS(cond_param, cond_locs, "cond_input_locs", "the input of each variable of the condition"),
  LOCS(cond_param, then_locs, "then_input_locs", "the input of each variable of the first branch"),
  LOCS(cond_param, else_locs, "else_input_locs", "the input of each variable of the second branch"),
  { 0 }
};

static const char *outputs_text(int64_t n)     { return n == 1 ? "output" : "output*num_outputs"; }
static const char *foreach_out(const void *p)
{
  return outputs_text(((const struct foreach_param *)p)->num_outputs);
}
static const char *while_out(const void *p)
{
  return outputs_text(((const struct while_param *)p)->num_outputs);
}
static const char *cond_out(const void *p)
{
  return outputs_text(((const struct cond_param *)p)->num_outputs);
}

static int64_t find_location(const struct ints *list, int64_t k)
{
  for (int64_t i = 0; i < list->n; i++)
    if (list->d[i] == k) return i;
  return -1;
}

static int64_t foreach_input(const void *param, int body, int64_t k)
{
  const struct foreach_param *p = param;
  int64_t data = find_location(&p->data_locs, k), state = find_location(&p->state_locs, k),
          other = find_location(&p->remain_locs, k);
  if (data >= 0) return data;
  if (state >= 0) return p->data_locs.n + state;
  return other < 0 ? -1 : p->data_locs.n + p->state_locs.n + other;
}

static int64_t entry_of(const struct ints *list, int64_t k)
{
  return k < list->n ? list->d[k] : -1;
}

static int64_t while_input(const void *param, int body, int64_t k)
{
  const struct while_param *p = param;
  return entry_of(body ? &p->func_locs : &p->cond_locs, k);
}

static int64_t cond_input(const void *param, int body, int64_t k)
{
  const struct cond_param *p = param;
  return entry_of(body == 0 ? &p->cond_locs : body == 1 ? &p->then_locs : &p->else_locs, k);
}

/* Infers nothing: inference goes through the bodies (pass/infer.c). */
static int nothing_known(struct infer *s)
{
  (void)s;
  return TY_OK;
}

/* -- _guard ------------------------------------------------------------------------------------ */

struct guard {
  int64_t nested, negate;
};
static const struct param guard_params[] = { { "nested", P_BOOL, offsetof(struct guard, nested),
                                                 "False",
                                                 "a second input, the guard around this one" },
  { "negate", P_BOOL, offsetof(struct guard, negate), "False",
      "holds where the condition does not" },
  { 0 } };
static const char *guard_in(const void *p)
{
  return ((const struct guard *)p)->nested ? "condition outer" : "condition";
}

static int guard_shape(struct infer *s)
{
  int64_t one = 1;
  if (s->nin > 1) TRY(shape_is(s, &s->in[1], 1, &one));
  return shape_is(s, &s->out[0], 1, &one);
}

static int guard_type(struct infer *s)
{
  if (s->nin > 1) TRY(type_is(s, &s->in[1], TY_BOOL));
  return type_is(s, &s->out[0], TY_BOOL);
}

static bool any_bit(const char *p, size_t n)
{
  while (n--)
    if (*p++) return true;
  return false;
}

/* Returns whether the first element is not 0, read in its dtype: a negative zero is zero. */
static bool first_is_nonzero(const struct operand *a)
{
  switch (a->d.dtype) {
  case TY_F32: return *(const float *)a->p != 0;
  case TY_F64: return *(const double *)a->p != 0;
  case TY_F16:
  case TY_BF16: return *(const uint16_t *)a->p & 0x7fff;
  default: return any_bit(a->p, dtype_size(a->d.dtype));
  }
}

static int guard_run(struct call *c)
{
  bool outer = c->nin < 2 || *(const uint8_t *)c->in[1].p;
  *(uint8_t *)c->out[0].p = outer &&
      first_is_nonzero(&c->in[0]) != (bool)((const struct guard *)c->param)->negate;
  return TY_OK;
}

/* -- _gate and _select ------------------------------------------------------------------------- */

static int gate_shape(struct infer *s) { return shape_both(s, &s->in[0], &s->out[0]); }
static int gate_type(struct infer *s)
{
  TRY(type_is(s, &s->in[1], TY_BOOL));
  return type_both(s, &s->in[0], &s->out[0]);
}

static void copy_or_clear(const struct operand *out, const struct operand *from, bool copy)
{
  size_t bytes = desc_bytes(&out->d);
  if (!out->p) return;
  if (!copy)
    memset(out->p, 0, bytes);
  else if (out->p != from->p)
    memcpy(out->p, from->p, bytes);
}

static int gate_run(struct call *c)
{
  copy_or_clear(&c->out[0], &c->in[0], true);
  return TY_OK;
}

static int gate_back(struct call *c)
{
  copy_or_clear(&c->out[0], &c->in[0], *(const uint8_t *)c->in[1].p);
  copy_or_clear(&c->out[1], NULL, false);
  return TY_OK;
}

static int select_shape(struct infer *s)
{
  TRY(shape_both(s, &s->in[1], &s->in[2]));
  TRY(shape_both(s, &s->in[1], &s->out[0]));
  return shape_both(s, &s->in[2], &s->out[0]);
}

static int select_type(struct infer *s)
{
  TRY(type_is(s, &s->in[0], TY_BOOL));
  TRY(type_both(s, &s->in[1], &s->in[2]));
  TRY(type_both(s, &s->in[1], &s->out[0]));
  return type_both(s, &s->in[2], &s->out[0]);
}

static int select_run(struct call *c)
{
  copy_or_clear(&c->out[0], *(const uint8_t *)c->in[0].p ? &c->in[1] : &c->in[2], true);
  return TY_OK;
}

static int select_back(struct call *c)
{
  int taken = *(const uint8_t *)c->in[1].p
      ? 1
      : 2; /* copied first: the other may overwrite the head gradient */
  copy_or_clear(&c->out[0], NULL, false);
  copy_or_clear(&c->out[taken], &c->in[0], true);
  copy_or_clear(&c->out[3 - taken], NULL, false);
  return TY_OK;
}

/* -- rows -------------------------------------------------------------------------------------- */

static const struct kernel guard_cpu[]   = { { "loops", guard_run,   T_ANY }, { 0 } };
static const struct kernel gate_cpu[]    = { { "loops", gate_run,    T_ANY }, { 0 } };
static const struct kernel ungate_cpu[]  = { { "loops", gate_back,   T_ANY }, { 0 } };
static const struct kernel select_cpu[]  = { { "loops", select_run,  T_ANY }, { 0 } };
static const struct kernel deselect_cpu[] = { { "loops", select_back, T_ANY }, { 0 } };

const struct op op_control_flow[] = {
  { .name = "_foreach", .in = "data*num_args", .out_of = foreach_out,
    .doc = "Runs its body once for each row of the data inputs; outputs are stacked on axis 0, states go on to the next row.",
    .control = CONTROL_FOREACH, .body_input = foreach_input,
    .param = foreach_params, .param_size = sizeof(struct foreach_param), .shape = nothing_known, .type = nothing_known },
  { .name = "_while_loop", .in = "data*num_args", .out_of = while_out,
    .doc = "Runs its body while the condition holds, at most max_iterations times; rows of outputs after the last step are zero.",
    .control = CONTROL_WHILE, .body_input = while_input,
    .param = while_params, .param_size = sizeof(struct while_param), .shape = nothing_known, .type = nothing_known },
  { .name = "_cond", .in = "data*num_args", .out_of = cond_out,
    .doc = "Runs one of two bodies, as the condition says; gradients of what only the other one uses are zero.",
    .control = CONTROL_COND, .body_input = cond_input,
    .param = cond_params, .param_size = sizeof(struct cond_param), .shape = nothing_known, .type = nothing_known },
  { .name = "_guard", .in = "condition", .in_of = guard_in, .flags = OP_ZERO_GRAD,
    .doc = "One byte: whether the first element is not zero (negate: is zero) and the guard around it holds.",
    .param = guard_params, .param_size = sizeof(struct guard), .shape = guard_shape, .type = guard_type, .cpu = guard_cpu },
  { .name = "_gate", .in = "data guard", .flags = OP_ALIAS,
    .doc = "Its input, into a part that runs only where the guard holds; the gradient is zero elsewhere.",
    .shape = gate_shape, .type = gate_type, .grad = "g0 i1", .inplace = "0=0", .back_inplace = "0=0",
    .cpu = gate_cpu, .back_cpu = ungate_cpu },
  { .name = "_select", .in = "guard first second",
    .doc = "The first array where the guard holds, else the second; so are their gradients.",
    .shape = select_shape, .type = select_type, .grad = "g0 i0", .inplace = "0=1 0=2", .back_inplace = "1=0 2=0",
    .cpu = select_cpu, .back_cpu = deselect_cpu },
  { 0 }
};
