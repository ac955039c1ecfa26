/* op.h - the definition of an operator. An operator file includes this and what it needs of base/,
** kernel/, pointwise/ and image/, never graph/graph.h.
**
** native/operators/TOPIC/NAME.c ends with `const struct op op_NAME[] = { {...}, {...}, { 0 } };`.
** The Makefile finds the files, so no list has to be edited. An operator has at most one gradient
** operator, "_backward_X", described in the same struct: `grad` says what it reads, its output k is
** the gradient of input k, and `back_cpu` are its kernels. Element-wise operators have formulas
** instead of kernels (op/formula.h).
**
** Text of ports: in "data weight bias" out "output [mean] {mask}"
**   name!         an input that is changed in place: an auxiliary state when used in a symbol
**   name~         an argument that forward overwrites where the node's gradient runs
**   name*param    as many as integer parameter `param` says, called name0 name1 ...
**   [name]        a hidden output: counted and monitored, but not seen by composition and
**                 list_outputs
**   {name}        a private output: only the executor knows it (what backward alone needs)
** Text of grad: "g0 i1 o2 i3!": head gradient of output 0, input 1, output 2, input 3 which
**   backward changes in place; "g*" / "i*" / "o*": all of them. "": reads nothing. NULL: no
**   gradient exists (an error when one is asked for).
** Only op/signature.c parses these texts; other code uses its lists.
*/
#pragma once
#include "kernel/kernel.h"
#include "kernel/reduce/reduce.h"
#include "op/formula.h"
#include "op/infer.h"
#include "op/param.h"

/* -- the operator ------------------------------------------------------------------------------ */

enum {
  OP_RANDOM = 1,    /* random: equal nodes have different results and are not merged */
  OP_VIEW = 2,      /* input 0's bytes under another shape */
  OP_BROADCAST = 4, /* a formula whose inputs broadcast */
  OP_ZERO_GRAD = 8, /* the gradient of all inputs is 0; grad must be NULL */
  OP_CALLBACK = 16, /* runs in the front end (TY_EV_HOST) */
  OP_LOSS = 32,     /* ignores head gradients */
  /* the gradient of every input is head gradient 0 itself: no kernel, no node */
  OP_IDENTITY_GRAD = 64,
  OP_ALIAS = 128, /* OP_VIEW whose gradient has kernels */
  /* output 0 has space for more rows than a run fills: their number (int64_t) begins the kernel's
  ** state; only heads may be such outputs */
  OP_DYNAMIC_ROWS = 256,
  /* the sum of its inputs, which passes may fuse (pass/fuse.c, pass/epilogue.c) */
  OP_SUM = 512,
  /* backward changes its inputs: it runs although no gradient is asked for */
  OP_FUSED_UPDATE = 1024,
  /* recomputation spares it, unless its node asks for it by name */
  OP_SPARED = 2048,
  OP_NEVER_AGAIN = 4096,   /* recomputation spares it always */
  OP_WEIGHTED_LOSS = 8192, /* OP_LOSS, but with gradients of weights too */
  /* monitors call its input `data` by that name, as the reference does where it declares one */
  OP_NAMED_INPUT = 16384,
  /* monitors number its inputs, as the reference does where it declares no names */
  OP_NUMBERED_INPUTS = 32768,
  /* its gradient has a part that does not depend on the head gradient: without one, backward runs
  ** on zeros */
  OP_OWN_GRADIENT = 65536,
  /* a run fails for some contents of its inputs: recorded calls do not wait to be submitted with
  ** others, so that only their own results fail */
  OP_MAY_FAIL = 131072,
  OP_MAY_RAISE = 262144, /* as OP_MAY_FAIL, if its mode is "raise" */
  OP_CAST = 524288,      /* input 0 in another dtype */
  /* of bfloat16 data it takes a float32 weight and bias, inputs 1 and 2, and rounds them itself
  ** where nothing is trained (pass/weight_casts.c) */
  OP_ROUNDS_WEIGHT = 1048576,
};

/* Operators with bodies (subgraphs), which pass/control_flow.c expands. */
enum op_control { CONTROL_NONE, CONTROL_FOREACH, CONTROL_WHILE, CONTROL_COND };

/* What an operator computes in a user's own graph of attention (pass/attention.c). Sums and views
** are known by their flags. */
enum attention_role {
  ATTENTION_NONE,
  ATTENTION_PRODUCT,                                  /* of matrices; ta, tb: transposed */
  ATTENTION_SCALE,                                    /* times `number` */
  ATTENTION_SOFTMAX,                                  /* of `number` times input 0, last axis */
  ATTENTION_DROPOUT,                                  /* in training, `number` of the elements */
  ATTENTION_CHOICE,                                   /* input 1 where input 0 is not 0, else 2 */
  ATTENTION_CONSTANT,                                 /* `number` everywhere */
  /* products of interleaved projections of `heads` heads (operators/nn/attention.c); self: keys and
  ** values are in one input with the queries */
  ATTENTION_SCORES,
  ATTENTION_VALUES,
};
struct attention_part {
  enum attention_role role;
  bool ta, tb, self;
  double number;
  int64_t heads;
};

struct op {
  const char *name;
  const char *alias;                                  /* "a b c" */
  /* documentation: what it computes, shapes, gradient */
  const char *doc;
  const char *in, *out;
  const struct param *param;                          /* ends with { 0 } */
  size_t      param_size;
  /* return ports that depend on parameters, or NULL if out of memory; NULL: `in` and `out` hold */
  const char *(*in_of)(const void *param);
  const char *(*out_of)(const void *param);
  int       (*check)(void *param);                    /* checks rules between parsed parameters */
  int       (*shape)(struct infer *s);                /* NULL: all have one shape */
  int       (*type)(struct infer *s);                 /* NULL: all have one dtype */
  /* for an operator with an input of indices, labels or lengths: returns the bound below which
  ** these are, 0 while it is unknown. *input, the number of that input, is 1 unless it is set here.
  ** A half type that cannot represent them is refused. */
  int64_t   (*indices)(const struct infer *s, int *input);
  /* used by the search for bad numbers in training: fails if an input is invalid (operands are in
  ** host memory) */
  int       (*examine)(const struct call *c);
  /* for OP_RANDOM: returns whether a run uses random numbers; NULL: always */
  bool      (*draws)(const void *param, bool is_train);
  /* for shapes that depend on contents: sets c->out[i].d; imperative calls only */
  int       (*measure)(struct call *c);
  const char *grad;
  const char *(*grad_of)(const void *param);          /* NULL: grad */
  /* what monitors show as read by backward, if the reference differs from grad */
  const char *shown;
  /* name of the gradient operator; NULL: "_backward_" + name */
  const char *back;
  /* "0=0 0=1": output 0 may use the memory of input 0 or 1, which has equal bytes; "*=3": output k
  ** that of input 3 k */
  const char *inplace;
  const char *back_inplace;                           /* the same for the gradient operator */
  const struct kernel *cpu;                           /* ends with { 0 } */
  const struct kernel *back_cpu;                      /* ends with { 0 } */
  const struct formula *formula;
  /* ACT_* that the operator computes; activation_of: with these parameters */
  int         activation;
  int       (*activation_of)(const void *param);
  /* for a loss: returns whether the gradient of any part of its output can be computed from that
  ** part and the label alone (operators/loss/softmax_loss.h); NULL: never */
  bool      (*loss_in_parts)(const void *param, const ty_desc *out, const ty_desc *label);
  /* returns whether it picks one element of each row of input 0 by the index in input 1, which is
  ** clipped to the row; NULL: never */
  bool      (*picks)(const void *param, int ndim);
  /* for log_softmax: returns whether its axis is the last one, so that its gradient can be fused
  ** with that of a pick (PRE_PICK_GRAD), and both with a kernel after them (PRE_LOG_GRAD); NULL:
  ** never */
  bool      (*picked_from)(const void *param, int ndim);
  /* for a reduction of input 0 over axes: returns which one output 0 is; NULL: it is no
  ** reduction */
  struct axis_reduction (*reduction)(const void *param, int ndim);
  /* for an operator with bodies: returns the input that variable k of a body stands for; -1:
  ** none */
  int64_t   (*body_input)(const void *param, int body, int64_t k);
  enum op_control control;
  /* returns its part in attention, for data of ndim axes; NULL: none */
  struct attention_part (*attention)(const void *param, int ndim);
  /* returns how many more outputs the reference has, which its symbol files count; NULL: none */
  int       (*further_outputs)(const void *param);
  /* for a layer on 8-bit integers: name of the operator that computes it in float64
  ** (operators/quantized/arithmetic.c); else NULL */
  const char *layer;
  uint32_t    flags;
};

/* Returns the activation that a parameter chooses, ACT_*. */
static inline int op_act(const struct op *op, const void *param)
{
  return op->activation_of ? op->activation_of(param) : op->activation;
}

static inline bool op_draws(const struct op *op, const void *param, bool is_train)
{
  return op->flags & OP_RANDOM && (!op->draws || op->draws(param, is_train));
}

/* registry (registry.c) */
/* Registers a table of operators, which ends with { 0 }. */
void op_register(const struct op *const *list, int n);
const struct op *op_find(const char *name);           /* by name or alias; NULL: none */
const struct op *op_at(int i);
int   op_count(void);
/* Fails with TY_ENAME and the nearest names. */
int   op_unknown(const char *name);
/* Parses attributes into the parameter struct; its texts are borrowed from attr. An operator
** without parameters accepts attributes of any name, as annotations. */
int   op_parse(const struct op *op, const ty_attr *attr, int nattr, void *param);
/* An input or output. */
struct port { const char *name; bool mutated, overwritten, hidden, secret; };
/* nvisible: outputs that composition sees. nreal: outputs without private ones */
struct ports { const struct port *in, *out; int nin, nout, nvisible, nreal; };
/* Finds the ports for these parameters; they are in the arena or live as long as the process. n:
** number of inputs of a variadic operator, -1: as the parameters say. */
int   op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out);
