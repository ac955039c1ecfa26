/* kernel.h - what a kernel is given and what it says of itself. Nothing here knows operators,
** graphs or plans: a back end registers tables of these (op/op.h). */
#pragma once
#include <math.h>
#include "base/parallel.h"
#include "base/precision.h"
#include "base/stop.h"
#include "kernel/epilogue.h"
#include "kernel/grain.h"
#include "tensor/tensor.h"

struct op;

/* the node of a call */
struct origin {
  const char *op, *node;
  const char *where;                                  /* "file.lua:12" or NULL */
};

/* an operand: dense, row-major but for its channels */
struct operand {
  /* NULL: an unused output, or an absent input; in a call that is being planned only that is valid
  ** (OPERAND_PLANNED) */
  void *p;
  ty_desc d;
  /* of a bound array: changes with its contents; NULL: a planned value */
  const uint64_t *version;
  /* b > 0: (N, C, space) is stored as (N, C / b, space, b) */
  int block;
};
/* The address of an operand before memory is planned: never read nor written. */
#define OPERAND_PLANNED ((void *)ALIGN)

struct run {
  int is_train;
  struct rng_state rng;
  /* the same in the device's memory, which recorded steps read (K_DRAWS_ON_DEVICE); NULL: none */
  const struct rng_state *rng_on_device;
};

/* A forward kernel gets the operator's inputs and all its outputs. A backward kernel gets in[]
** as `grad` lists them and out[k] = gradient of forward input k, p NULL where it is unused;
** shapes of out are those of the inputs. A kernel writes all of every output with p set; it
** allocates nothing; it may be called by one queue thread at a time per call struct, and opens
** parallel regions itself. Errors: fail(TY_ERUN, ...), without operator and node. */
struct call {
  const struct op *op;
  /* the device that has the operands and whose queue runs the kernel */
  int device;
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
  int precision;                                      /* PRECISION_*, of float32 products */
  /* weights change from run to run: packed copies are not worth keeping */
  bool trains;
  /* of a node with inputs that it overwrites ("name~"): its gradient operator runs too */
  bool with_grad;
  const struct epilogue *epilogue;                    /* NULL: nothing */
  /* outputs as they are stored, where half types are converted around the kernel; NULL: as out */
  const struct operand *stored;
  const void *row;                                    /* that of the kernel that runs */
  /* what failures say that a device finds after the call; NULL: `op` alone */
  const struct origin *origin;
  /* of its kernel, `before` has run for it, `after` will */
  bool prepared, finished_later;
};
/* Returns the type in which output i is stored, which may be narrower than the one it is computed
** in. */
static inline int stored_dtype(const struct call *c, int i)
{
  return c->stored ? c->stored[i].d.dtype : c->out[i].d.dtype;
}
static inline bool in_blocks(const struct call *c) /* any operand */
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].block) return true;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].block) return true;
  return false;
}
/* Returns what to do besides, as `fuses` allows; NULL: nothing. */
static inline const struct fused_op *find_fused(const struct call *c, enum fused_kind kind)
{
  return epilogue_find(c->epilogue, kind);
}
static inline int fused_act(const struct call *c) /* ACT_* of POST_ACT */
{
  const struct fused_op *f = find_fused(c, POST_ACT);
  return f ? f->act : ACT_NONE;
}
static inline const struct scaling *fused_scaling(const struct call *c) /* NULL: none */
{
  const struct fused_op *f = find_fused(c, POST_SCALE);
  return f ? f->scaling : NULL;
}
/* Does POST_ACT in a pass of its own, for kernels whose loops have no place for it. */
void epilogue_act(const struct call *c);

enum { K_ALIKE = 1,                                   /* `blocks`: all in blocks, or none */
       /* backward: after its own inputs come pairs like inputs 0 and 1, with any number of
       ** rows; the sums out[1] and on are over these too (pass/batch_weight_gradients.c) */
       K_BATCHES = 2,
       /* `packs`: a state only where several steps share it */
       K_REUSED = 4,
       /* made of primitives alone: it runs on the device of its call (kernel/primitives.h) */
       K_ANYWHERE = 8,
       /* it draws by run->rng_on_device where that is given, so that a recording of it draws
       ** others at each start */
       K_DRAWS_ON_DEVICE = 16,
       /* its products of float32 are as exact as the call's precision asks (gemm_type_for) */
       K_PRECISION = 32,
       /* takes only calls that have operands of each of `types` */
       K_MIXED = 64 };
#define IN_BLOCKS(in, out) ((uint32_t)(in) | (uint32_t)(out) << 16)
#define T(dtype) (1u << (dtype))
enum { T_FLOAT = 1 << TY_F32 | 1 << TY_F64, T_ANY = ~0u >> 1,
       T_INT = 1 << TY_U8 | 1 << TY_I8 | 1 << TY_I32 | 1 << TY_I64 | 1 << TY_BOOL };
/* What the calls of a segment do together, in few launches: with an input before the first of them
** runs, or with an output after the last one. */
struct together {
  int operand;                                        /* which input or output */
  /* Returns whether a call takes part. Shapes and dtypes known, no pointers */
  bool (*takes)(const struct call *c);
  int  (*run)(struct call *const *list, int n);
};
/* A candidate. Candidates are in order: the first that accepts is taken. */
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
  /* IN_BLOCKS(1 << i, 1 << o): operands that may have their channels in blocks; bit 15 means
  ** all from 15 on */
  uint32_t     blocks;
  /* > 0: the state is nothing but input packs - 1, packed; steps that read one bound array share
  ** it */
  int          packs;
  /* What this run does to channel i of input 0 without looking at it: a[i] x + d[i]. false: it
  ** looks. NULL a: only asked. */
  bool       (*affine)(const struct call *c, double *a, double *d);
  /* CAN(POST_ACT) | ...: what it can do besides; refuse and scratch ask for POST_SCALE */
  uint32_t     fuses;
  /* Leading axes of input 0 whose elements, the rows, do not depend on each other: a call of some
  ** of the rows of all operands but the inputs `whole` (bits) is right for them, and does not fail.
  ** NULL, 0: there are none. Asked only where half types are converted around the kernel. */
  int        (*lead)(const struct call *c);
  uint32_t     whole;
  /* The state of a kernel with `before` is what that makes; the forward and the backward kernel of
  ** an operator share it where both have the same `done`. */
  const struct together *before;
  const struct together *after;
  /* What `run` finds in call.row, where several kernels share one. */
  const void  *row;
};
