/* op.h - what an operator is. An operator file includes this and what it needs of the rooms below
** (base, kernel, pointwise; image for pictures), never graph/graph.h.
**
** native/operators/TOPIC/NAME.c ends in `const struct op op_NAME[] = { {...}, {...}, { 0 } };`. The
** folder is the registry: the Makefile lists the files, nothing else is edited. An operator has
** at most one gradient operator, "_backward_X", which is described in the same struct: `grad`
** says what it reads, its output k is the gradient of input k, and `back_cpu` are its kernels.
** Element-wise operators have formulas instead of kernels (op/formula.h).
**
** Text of ports:  in  "data weight bias"     out  "output [mean] {mask}"
**   name!         an input that is changed in place: an auxiliary state when used in a symbol
**   name~         an argument that forward overwrites where the node's gradient runs
**   name*param    as many as integer parameter `param` says, called name0 name1 ...
**   [name]        a hidden output: counted and monitored, but not seen by composition and
**                 list_outputs
**   {name}        a private output: only the executor knows it (what backward alone needs)
** Text of grad:  "g0 i1 o2 i3!": head gradient of output 0, input 1, output 2, input 3 which
**   backward changes in place; "g*" / "i*" / "o*": all of them. "": reads nothing. NULL: no
**   gradient exists (an error when one is asked for).
** Nothing else takes these texts apart: op/signature.h has them as lists.
*/
#pragma once
#include "kernel/kernel.h"
#include "kernel/reduce/reduce.h"
#include "op/formula.h"
#include "op/infer.h"
#include "op/param.h"

/* -- the operator --------------------------------------------------------------------------- */

enum {
  OP_RANDOM = 1,    /* two equal nodes differ: never merged */
  OP_VIEW = 2,      /* input 0's bytes under another shape */
  OP_BROADCAST = 4, /* a formula whose inputs broadcast */
  OP_ZERO_GRAD = 8, /* of all inputs; grad must be NULL */
  OP_CALLBACK = 16, /* runs in the front end (TY_EV_HOST) */
  OP_LOSS = 32,     /* ignores head gradients */
  /* the gradient of every input is head gradient 0 itself: no kernel, no node */
  OP_IDENTITY_GRAD = 64,
  OP_ALIAS = 128, /* OP_VIEW whose gradient has kernels */
  /* output 0 has space for more rows than a run fills: their number (int64_t) begins the kernel's
  ** state; only heads may be such outputs */
  OP_DYNAMIC_ROWS = 256,
  /* the sum of its inputs: part of a pointwise program where there are few, or a formula */
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
  /* its gradient has a part of its own: backward runs, on zeros, where no head gradient comes */
  OP_OWN_GRADIENT = 65536,
  /* a run fails for some contents of its inputs: recorded calls do not wait with others, so that
  ** nothing fails beside their own results */
  OP_MAY_FAIL = 131072,
  OP_MAY_RAISE = 262144, /* as OP_MAY_FAIL, if its mode is "raise" */
  OP_CAST = 524288,      /* input 0 in another dtype */
  /* of bfloat16 data it takes a float32 weight and bias, inputs 1 and 2, and rounds them itself
  ** where nothing is trained (pass/weight_casts.c) */
  OP_ROUNDS_WEIGHT = 1048576,
};

/* what passes expand: operators whose inputs are bodies too (pass/control_flow.c) */
enum op_control { CONTROL_NONE, CONTROL_FOREACH, CONTROL_WHILE, CONTROL_COND };

/* What an operator does where users write attention (pass/attention.c); sums and views have
** flags. */
enum attention_role {
  ATTENTION_NONE,
  ATTENTION_PRODUCT,                                  /* of matrices; ta, tb: transposed */
  ATTENTION_SCALE,                                    /* times `number` */
  ATTENTION_SOFTMAX,                                  /* of `number` times input 0, last axis */
  ATTENTION_DROPOUT,                                  /* in training, `number` of the elements */
  ATTENTION_CHOICE,                                   /* input 1 where input 0 is not 0, else 2 */
  ATTENTION_CONSTANT,                                 /* `number` everywhere */
  /* interleaved projections of so many heads (operators/nn/attention.c); self: of one input */
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
  /* one sentence, shapes, gradient: our own words */
  const char *doc;
  const char *in, *out;
  const struct param *param;                          /* ends with { 0 } */
  size_t      param_size;
  /* ports that depend on parameters; NULL: in / out. They give NULL where memory is short */
  const char *(*in_of)(const void *param);
  const char *(*out_of)(const void *param);
  int       (*check)(void *param);                    /* after parsing: rules between parameters */
  int       (*shape)(struct infer *s);                /* NULL: all alike */
  int       (*type)(struct infer *s);                 /* NULL: all alike */
  /* of an operator with an input of indices, labels or lengths: these are below the result, 0 while
  ** that is not known. *input, which is 1, may be set. A half type that does not hold them is
  ** refused. */
  int64_t   (*indices)(const struct infer *s, int *input);
  /* asked by the search for bad numbers, where training runs the operator: fails where an input
  ** makes no sense (operands are on the host) */
  int       (*examine)(const struct call *c);
  /* of OP_RANDOM: does a run take random numbers? NULL: always */
  bool      (*draws)(const void *param, bool is_train);
  /* where contents decide shapes: sets c->out[i].d; imperative calls only */
  int       (*measure)(struct call *c);
  const char *grad;
  const char *(*grad_of)(const void *param);          /* NULL: grad */
  /* what monitors say that backward reads, where the reference differs from grad */
  const char *shown;
  /* name of the gradient operator; NULL: "_backward_" + name */
  const char *back;
  /* "0=0 0=1": output 0 may take the memory of input 0 or 1 (equal bytes); "*=3": output k that
  ** of input 3 k */
  const char *inplace;
  const char *back_inplace;                           /* the same of the gradient operator */
  const struct kernel *cpu;                           /* ends with { 0 } */
  const struct kernel *back_cpu;                      /* ends with { 0 } */
  const struct formula *formula;
  /* ACT_* that its formula is, or is under these parameters */
  int         activation;
  int       (*activation_of)(const void *param);
  /* of a loss: its gradient can be made for any part of its output, from that part and the label
  ** alone (operators/loss/softmax_loss.h); NULL: never */
  bool      (*loss_in_parts)(const void *param, const ty_desc *out, const ty_desc *label);
  /* of an operator that picks one element of each row of input 0, by the index that is input 1,
  ** moved to the nearest end where it is out of range; NULL: never */
  bool      (*picks)(const void *param, int ndim);
  /* of log_softmax: whether rows are on the last axis, so that kernels of its gradient can do
  ** PRE_PICK_GRAD, and kernels after that do both with PRE_LOG_GRAD; NULL: never */
  bool      (*picked_from)(const void *param, int ndim);
  /* of a reduction of input 0 over axes: what output 0 is; NULL: it is none */
  struct axis_reduction (*reduction)(const void *param, int ndim);
  /* of an operator with bodies: the input that variable k of a body represents, -1: none */
  int64_t   (*body_input)(const void *param, int body, int64_t k);
  enum op_control control;
  /* its part in attention, of data with ndim axes; NULL: none */
  struct attention_part (*attention)(const void *param, int ndim);
  /* outputs that the reference has after ours: its symbol files count them */
  int       (*further_outputs)(const void *param);
  /* of a layer on 8-bit integers: name of the layer that it runs on them in double
  ** (operators/quantized/arithmetic.c); NULL: it is none */
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
const struct op *op_find(const char *name);           /* aliases too; NULL */
const struct op *op_at(int i);
int   op_count(void);
/* Fails with TY_ENAME and the nearest names. */
int   op_unknown(const char *name);
/* Parses attributes into param_size bytes; texts are borrowed from attr. An operator without
** parameters takes attributes of all names, as annotations. */
int   op_parse(const struct op *op, const ty_attr *attr, int nattr, void *param);
/* The ports under given parameters: names are written into the arena. n inputs of a variadic
** operator, -1: as parameters say. */
struct port { const char *name; bool mutated, overwritten, hidden, secret; };
/* nreal: without private ones */
struct ports { const struct port *in, *out; int nin, nout, nvisible, nreal; };
int   op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out);
