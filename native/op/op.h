/* op.h - what an operator is. An operator file includes this (and base/philox.h,
** kernel/gemm/gemm.h, pointwise/pointwise.h, base/parallel.h), never graph/graph.h.
**
** native/op/NAME.c ends in `const struct op op_NAME[] = { {...}, {...}, { 0 } };`. The folder is
** the registry: the Makefile lists the files, nothing else is edited. An operator has at most
** one gradient operator, "_backward_X", which is described in the same struct: `grad` says what
** it reads, its output k is the gradient of input k, and `back_cpu` are its kernels.
** Element-wise operators have a `row` of formulas instead of kernels (pointwise/pointwise.h).
**
** Text of ports:  in  "data weight bias"     out  "output [mean] {mask}"
**   name!         an input that is changed in place: an auxiliary state when used in a symbol
**   name*param    as many as integer parameter `param` says, called name0 name1 ...
**   [name]        a hidden output: counted and monitored, but not seen by composition and list_outputs
**   {name}        a private output: only the executor knows it (what backward needs and nobody else)
** Text of grad:  "g0 i1 o2 i3!": head gradient of output 0, input 1, output 2, input 3 which backward changes in place;
**   "g*" / "i*" / "o*": all of them. "": reads nothing. NULL: no gradient exists (an error when one is asked for).
*/
#pragma once
#include <math.h>
#include "base/base.h"
#include "tensor/tensor.h"
#include "base/parallel.h"

/* -- parameters ----------------------------------------------------------------------------- */

/* P_SHAPE: n = -1 is None; an entry may be NONE */
struct dims  { int64_t n; int64_t d[16]; };
struct ints  { int64_t n; int64_t d[128]; };          /* P_INTS: long lists */
struct reals { int64_t n; double  d[128]; };          /* P_FLOATS */
#define NONE INT64_MIN                                /* None in P_INT and in the entries of lists */
#define PORTS_RANGE "[1,65536]"                       /* of a parameter that counts inputs or outputs */
#define SIZES_RANGE "[-2147483648,2147483647]"        /* of sizes that are multiplied with others */

/* field types:  P_INT int64_t   P_FLOAT double   P_BOOL int64_t   P_ENUM int64_t (place in `choice`)
**               P_DTYPE int64_t   P_TEXT const char *   P_SHAPE struct dims   P_INTS struct ints   P_FLOATS struct reals
** None (if `none`): P_INT NONE, P_FLOAT NAN, P_BOOL -1, P_ENUM -1, P_DTYPE -1, P_TEXT NULL,
** lists n = -1. */
enum { P_END, P_INT, P_FLOAT, P_BOOL, P_ENUM, P_DTYPE, P_TEXT, P_SHAPE, P_INTS, P_FLOATS };
struct param {
  const char *name;
  int         type;
  size_t      at;                                     /* offsetof */
  /* default, as attribute text; NULL: required */
  const char *init;
  const char *doc;
  const char *choice;                                 /* P_ENUM: "relu|sigmoid|tanh" */
  /* "[1,]", "[0,1]": checked, of P_SHAPE each entry; NULL: any */
  const char *range;
  int         none;                                   /* None is accepted */
};

/* -- inference ------------------------------------------------------------------------------ */

/* shape() reads and writes ndim and dim only, type() dtype only; both may be called many times
** with more known each time, must fill in whatever follows (inputs from outputs too), and must
** return TY_OK while something is unknown. */
struct op;
struct infer {
  const struct op *op;
  const void *param;
  int         nin, nout;
  /* out: all outputs, hidden and private ones too */
  ty_desc    *in, *out;
};
/* merges; dim 0 is unknown; TY_ESHAPE on conflict */
int  shape_is(struct infer *s, ty_desc *slot, int ndim, const int64_t *dim);
/* slot takes what `with` knows */
int  shape_as(struct infer *s, ty_desc *slot, const ty_desc *with);
/* each takes what the other knows */
int  shape_both(struct infer *s, ty_desc *a, ty_desc *b);
/* one dim of a slot whose ndim is known */
int  shape_dim(struct infer *s, ty_desc *slot, int axis, int64_t size);
/* TY_NODTYPE: nothing to say */
int  type_is(struct infer *s, ty_desc *slot, int dtype);
int  type_both(struct infer *s, ty_desc *a, ty_desc *b);
/* every input and output the same: what type = NULL does */
int  type_all(struct infer *s);
int  shape_all(struct infer *s);                      /* likewise: what shape = NULL does */
int infer_fail(struct infer *s, int code, const ty_desc *slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* slot (or NULL) names the argument */
/* negative from the end; TY_EVALUE outside */
int  axis_of(struct infer *s, int64_t axis, int ndim, int *out);
static inline bool dims_known(const ty_desc *d)
{
  return desc_known(d);
} /* ndim > 0 and every dim > 0 */

/* -- kernels -------------------------------------------------------------------------------- */

/* an operand: dense, row-major but for its channels */
struct operand {
  /* NULL: an output nobody reads, or an absent input */
  void *p;
  ty_desc d;
  /* of a bound array: changes with its contents; NULL: a planned value */
  const uint64_t *version;
  /* b > 0: (N, C, space) lies as (N, C / b, space, b) */
  int block;
};
/* the b that convolutions of a device compute in; 0: none */
int channel_block(int device);
/* with_grad: the executor was bound with gradients */
struct run {
  int is_train, with_grad;
  struct rng_state rng;
};
enum { ACT_NONE, ACT_RELU, ACT_SIGMOID, ACT_TANH, ACT_SOFTRELU };

/* A forward kernel gets the operator's inputs and all its outputs. A backward kernel gets in[]
** as `grad` lists them and out[k] = gradient of forward input k, p NULL where nobody wants it;
** shapes of out are those of the inputs. A kernel writes all of every output with p set; it
** allocates nothing; it may be called by one queue thread at a time per call struct, and opens
** parallel regions itself. Errors: fail(TY_ERUN, ...), without operator and node. */
struct call {
  const struct op *op;
  const void *param;
  struct operand *in, *out;
  int nin, nout;
  /* scratch(): 64-byte aligned, contents undefined */
  void *tmp;
  /* state(): zeroed at bind, kept between runs, private to this instruction */
  void *state;
  const struct run *run;
  /* key of random numbers: the same in forward and backward */
  uint32_t node;
  /* bit k: out[k] += result (only if the kernel's `add` has the bit) */
  uint32_t add;
  /* ACT_*: applied to out[0]; its gradient to in[0] backward (only if K_ACT), or to out[0] (only
  ** if K_MASK) */
  int act;
  /* weights change from run to run: packed copies are not worth keeping */
  bool trains;
  const struct scaling *affine; /* NULL: none (only if K_AFFINE) */
  /* parameters of the loss in front; NULL: none (only if K_LOSS) */
  const void *loss;
  /* the last input is added to out[0], before `act` (only if K_PLUS) */
  bool plus;
};
/* out[0] = act(scale[i] product + shift[i] + what out[0] holds), per channel i; shift has the
** bias in it. */
struct scaling {
  float *scale, *shift;
  bool add;         /* there is something in out[0] */
  uint64_t version; /* changes with scale and shift */
};
static inline bool in_blocks(const struct call *c) /* any operand */
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].block) return true;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].block) return true;
  return false;
}
enum { K_ACT = 1,                                     /* can apply call.act */
       K_ALIKE = 2,                                   /* `blocks`: all in blocks, or none */
       /* backward: behind its own inputs come pairs like inputs 0 and 1, with any number of
       ** rows; the sums out[1] and on are over these too (pass/batch_weight_gradients.c) */
       K_JOIN = 4,
       /* `packs`: a state only where several steps share it */
       K_REUSED = 8,
       /* can do call.affine; refuse and scratch look at it */
       K_AFFINE = 16,
       /* backward: can make the gradient that it takes itself. Input 0 holds the output of a
       ** SoftmaxOutput with parameters call.loss, behind the others comes its label */
       K_LOSS = 32,
       /* backward: can apply call.act, the gradient of a relu that made the data, to out[0];
       ** behind the inputs comes the output of the forward part */
       K_MASK = 64,
       /* forward: can do call.plus, whose input stands behind the others */
       K_PLUS = 128 };
#define IN_BLOCKS(in, out) ((uint32_t)(in) | (uint32_t)(out) << 16)
#define T(dtype) (1u << (dtype))
enum { T_FLOAT = 1 << TY_F32 | 1 << TY_F64, T_ANY = ~0u >> 1,
       T_INT = 1 << TY_U8 | 1 << TY_I8 | 1 << TY_I32 | 1 << TY_I64 | 1 << TY_BOOL };
/* candidates stand in order; the first that accepts is taken */
struct kernel {
  const char  *name;                                  /* shown in the printed program */
  int        (*run)(struct call *c);
  /* dtypes of the operands it handles; where float16/bfloat16 is missing, lowering converts
  ** these operands to float32 and back */
  uint32_t     types;
  /* NULL: accepts; else the reason. Shapes and dtypes known, no pointers */
  const char *(*refuse)(const struct call *c);
  size_t     (*scratch)(const struct call *c);        /* bytes */
  size_t     (*state)(const struct call *c);          /* bytes */
  void       (*done)(void *state);                    /* releases what the state holds */
  uint32_t     add;                                   /* bit k: can accumulate into out[k] */
  uint32_t     flags;                                 /* K_* */
  /* IN_BLOCKS(1 << i, 1 << o): operands that may have their channels in blocks; bit 15 stands
  ** for all from 15 on */
  uint32_t     blocks;
  /* > 0: the state is nothing but input packs - 1, packed; steps that read one bound array share
  ** it */
  int          packs;
  /* What this run does to channel i of input 0 without looking at it: a[i] x + d[i]. false: it
  ** looks. NULL a: only asked. */
  bool       (*affine)(const struct call *c, double *a, double *d);
};

/* -- the operator --------------------------------------------------------------------------- */

/* Formulas of an element-wise operator. Variables: a b c d e f inputs, y the output, g the head
** gradient, $p parameter p (number, integer or boolean). `y` may begin with assignments to
** inputs that the operator changes ("c = $m*c - g1; a + c"). grad[k]: gradient of input k; NULL:
** zero. */
struct formula {
  const char *y; const char *grad[6];
  /* y in one loop, where all operands have one shape and one type, float32 or float64; false:
  ** not under these parameters */
  bool (*sweep)(const void *param, const struct operand *in, const struct operand *out);
};

enum { OP_RANDOM = 1,                                 /* two equal nodes differ: never merged */
       /* output 0 is input 0's bytes under another shape; no kernel */
       OP_VIEW = 2,
       OP_BROADCAST = 4,                              /* a row whose inputs broadcast */
       /* gradients of all inputs are zeros; grad must be NULL */
       OP_ZERO_GRAD = 8,
       OP_CALLBACK = 16,                                  /* runs in the front end (TY_EV_HOST) */
       OP_LOSS = 32,                                  /* ignores head gradients */
       /* output 0 has room for more rows than a run fills: their number (int64_t) begins the
       ** kernel's state; only heads may be such outputs */
       OP_DYNAMIC_ROWS = 256,
       /* the sum of its inputs: part of a pointwise program where there are few */
       OP_SUM = 512,
       /* as OP_VIEW, but its gradient has kernels of its own */
       OP_ALIAS = 128,
       /* backward changes its inputs: it runs although nobody asks for a gradient */
       OP_FUSED_UPDATE = 1024,
       /* the gradient of every input is head gradient 0 itself: no kernel, no node */
       OP_IDENTITY_GRAD = 64 };

struct op {
  const char *name;
  const char *alias;                                  /* "a b c" */
  /* one sentence, shapes, gradient: our own words */
  const char *doc;
  const char *in, *out;
  const struct param *param;                          /* ends with { 0 } */
  size_t      param_size;
  /* ports that depend on parameters; NULL: in / out */
  const char *(*in_of)(const void *param);
  const char *(*out_of)(const void *param);
  int       (*check)(void *param);                    /* after parsing: rules between parameters */
  int       (*shape)(struct infer *s);                /* NULL: all alike */
  int       (*type)(struct infer *s);                 /* NULL: all alike */
  /* where contents decide shapes: sets c->out[i].d; imperative calls only */
  int       (*measure)(struct call *c);
  const char *grad;
  const char *(*grad_of)(const void *param);          /* NULL: grad */
  /* what monitors say that backward reads, where the reference differs from grad */
  const char *shown;
  /* name of the gradient operator; NULL: "_backward_" + name */
  const char *back;
  const char *inplace, *back_inplace;                 /* "0=0 0=1": output 0 may take the memory of input 0 or 1 (equal bytes);
                                                         "*=3": output k that of input 3 k */
  const struct kernel *cpu, *back_cpu;                /* end with { 0 } */
  const struct formula *formula;
  uint32_t    flags;
  int         tier;                                   /* 1 A, 2 B, 3 C */
};

/* registry (registry.c) */
const struct op *op_find(const char *name);           /* aliases too; NULL */
const struct op *op_at(int i);
int   op_count(void);
/* fails with TY_ENAME and the nearest names */
int   op_unknown(const char *name);
/* into param_size bytes; texts are borrowed from attr */
int   op_parse(const struct op *op, const ty_attr *attr, int nattr, void *param);
/* The ports under given parameters: names are written into the arena. n inputs of a variadic
** operator, -1: as parameters say. */
struct port { const char *name; bool mutated, hidden, secret; };
/* nreal: without private ones */
struct ports { struct port *in, *out; int nin, nout, nvisible, nreal; };
int   op_ports(const struct op *op, const void *param, int n, struct arena *a, struct ports *out);
