/* kernel.h - the interface of kernels: their argument (struct call) and their description (struct
** kernel). Operators and back ends have tables of kernels; nothing here depends on operators,
** graphs or plans. */
#pragma once
#include <math.h>
#include "base/parallel.h"
#include "base/precision.h"
#include "base/stop.h"
#include "kernel/epilogue.h"
#include "kernel/grain.h"
#include "tensor/tensor.h"

struct op;

/* The node of a call, for errors. */
struct origin {
  const char *op, *node;
  const char *where;                                  /* "file.lua:12" or NULL */
};

/* An operand: dense and row-major, except that channels may be in blocks. */
struct operand {
  /* NULL: an unused output, or an absent input. While a call is planned it may only be compared
  ** with NULL (OPERAND_PLANNED). */
  void *p;
  ty_desc d;
  /* for a bound array, a number that changes with its contents; NULL: a planned value */
  const uint64_t *version;
  /* b > 0: (N, C, space) is stored as (N, C / b, space, b) */
  int block;
};
/* The address of an operand before memory is planned; it is never dereferenced. */
#define OPERAND_PLANNED ((void *)ALIGN)

struct run {
  int is_train;
  struct rng_state rng;
  /* the same in device memory, read by recorded steps (K_DRAWS_ON_DEVICE); NULL: none */
  const struct rng_state *rng_on_device;
};

/* The argument of a kernel. A forward kernel gets the operator's inputs and all its outputs. A
** backward kernel gets in[] as `grad` lists them; out[k] is the gradient of forward input k and has
** its shape, with p NULL if it is unused. A kernel writes all elements of each output with p set.
** It must not allocate memory. One queue thread at a time calls it with a given struct call; it
** opens parallel regions itself. Errors: fail(TY_ERUN, ...), without operator and node, which the
** caller adds. */
struct call {
  const struct op *op;
  /* the device whose memory has the operands and whose queue runs the kernel */
  int device;
  const void *param;
  struct operand *in, *out;
  int nin, nout;
  /* kernel.scratch() bytes, 64-byte aligned, contents undefined */
  void *tmp;
  /* kernel.state() bytes, zeroed at bind, kept between runs, private to this instruction */
  void *state;
  const struct run *run;
  /* key of random numbers, the same in forward and backward */
  uint32_t node;
  /* bit k: out[k] += result (only if the kernel's `add` has the bit) */
  uint32_t add;
  int precision;                                      /* PRECISION_*, of float32 products */
  /* weights change at each run, so packed copies are not worth keeping */
  bool trains;
  /* for a node with inputs that it overwrites ("name~"): whether its gradient operator runs, too */
  bool with_grad;
  const struct epilogue *epilogue;                    /* NULL: nothing is fused */
  /* outputs as they are stored, if half types are converted around the kernel; NULL: as in out */
  const struct operand *stored;
  const void *row;                                    /* kernel.row of the kernel that runs */
  /* names the node in failures found by the device after the call; NULL: only `op` is named */
  const struct origin *origin;
  /* the kernel's `before` has run for this call; its `after` will */
  bool prepared, finished_later;
};
/* Returns the dtype in which output i is stored, which may be narrower than the one in which it is
** computed. */
static inline int stored_dtype(const struct call *c, int i)
{
  return c->stored ? c->stored[i].d.dtype : c->out[i].d.dtype;
}
/* Returns whether any operand has its channels in blocks. */
static inline bool in_blocks(const struct call *c)
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i].block) return true;
  for (int i = 0; i < c->nout; i++)
    if (c->out[i].block) return true;
  return false;
}
/* Returns the fused operation of a kind, which kernel.fuses must allow; NULL if there is none. */
static inline const struct fused_op *find_fused(const struct call *c, enum fused_kind kind)
{
  return epilogue_find(c->epilogue, kind);
}
/* Returns the ACT_* of POST_ACT; ACT_NONE if there is none. */
static inline int fused_act(const struct call *c)
{
  const struct fused_op *f = find_fused(c, POST_ACT);
  return f ? f->act : ACT_NONE;
}
/* Returns the scaling of POST_SCALE; NULL if there is none. */
static inline const struct scaling *fused_scaling(const struct call *c)
{
  const struct fused_op *f = find_fused(c, POST_SCALE);
  return f ? f->scaling : NULL;
}
/* Applies POST_ACT, which must be relu or gelu, to out[0] in a separate pass, for kernels that
** cannot do it in their loops. */
void epilogue_act(const struct call *c);

enum { K_ALIKE = 1,                                   /* `blocks`: all in blocks, or none */
       /* backward: its inputs may be followed by further pairs like inputs 0 and 1, with any number
       ** of rows, over which out[1] and later outputs are summed as well
       ** (pass/batch_weight_gradients.c) */
       K_BATCHES = 2,
       /* `packs`: it has a state only if several steps share it */
       K_REUSED = 4,
       /* it uses primitives only, and runs on the device of its call (kernel/primitives.h) */
       K_ANYWHERE = 8,
       /* it uses run->rng_on_device if that is set, so that a recording has new random numbers at
       ** each replay */
       K_DRAWS_ON_DEVICE = 16,
       /* its products of float32 are as exact as the call's precision asks (gemm_type_for) */
       K_PRECISION = 32,
       /* it only takes calls that have operands of each dtype in `types` */
       K_MIXED = 64 };
#define IN_BLOCKS(in, out) ((uint32_t)(in) | (uint32_t)(out) << 16)
#define T(dtype) (1u << (dtype))
enum { T_FLOAT = 1 << TY_F32 | 1 << TY_F64, T_ANY = ~0u >> 1,
       T_INT = 1 << TY_U8 | 1 << TY_I8 | 1 << TY_I32 | 1 << TY_I64 | 1 << TY_BOOL };
/* Work that is done in few launches for several calls of a segment: on an input before the first
** call runs, or on an output after the last one. */
struct together {
  int operand;                                        /* which input or output */
  /* Returns whether a call takes part. Shapes and dtypes are known, pointers are not. */
  bool (*takes)(const struct call *c);
  int  (*run)(struct call *const *list, int n);
};
/* A kernel. In a table, the first one that accepts a call is used. */
struct kernel {
  const char  *name;                                  /* shown in printed programs */
  int        (*run)(struct call *c);
  /* bits T(dtype) that operands may have; if a half type is missing, such operands are converted to
  ** float32 and back around the kernel */
  uint32_t     types;
  /* returns NULL to accept a call, or the reason for refusing it. Shapes and dtypes are known,
  ** pointers not. NULL: accepts all */
  const char *(*refuse)(const struct call *c);
  size_t     (*scratch)(const struct call *c);        /* bytes */
  size_t     (*state)(const struct call *c);          /* bytes */
  void       (*done)(void *state);                    /* frees what the state owns */
  uint32_t     add;                                   /* bit k: it can add to out[k] */
  uint32_t     flags;                                 /* K_* */
  /* IN_BLOCKS(1 << i, 1 << o): inputs and outputs that may have their channels in blocks; bit 15
  ** stands for all from index 15 on */
  uint32_t     blocks;
  /* > 0: the state is only the packed input packs - 1, and is shared by steps that read the same
  ** bound array */
  int          packs;
  /* Sets a and d if the call computes a[i] x + d[i] for channel i of input 0, independent of its
  ** values. Returns false if it does not. a NULL: only asks. */
  bool       (*affine)(const struct call *c, double *a, double *d);
  /* CAN(POST_ACT) | ...: operations that can be fused with it; refuse and scratch see POST_SCALE in
  ** the call */
  uint32_t     fuses;
  /* Returns the number of leading axes of input 0 along which elements, the rows, are independent:
  ** a call with some rows of all operands, except the inputs in `whole` (bits), computes these rows
  ** and cannot fail. NULL or 0: none. Only used if half types are converted around the kernel. */
  int        (*lead)(const struct call *c);
  uint32_t     whole;
  /* `before` makes the state of its kernel. An operator's forward and backward kernel share it if
  ** they have the same `done`. */
  const struct together *before;
  const struct together *after;
  /* Passed to `run` in call.row, for kernels that share a function. */
  const void  *row;
};
