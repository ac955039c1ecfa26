/* dispatch.h - one call of one operator: chooses its kernel, converts half types around it, and
** copies to the host and back if only the CPU has a kernel. Used by programs (pass/) and by
** ty_call. */
#pragma once
#include "op/registry.h"

/* The caller sets backward and call (descriptors and param; pointers are not needed), and
** invoke_choose the rest. scratch: bytes that call.tmp needs in invoke_run, for the kernel and
** after that for converted operands. */
struct invoke {
  struct call call;                                   /* in, out: operands as the caller has them */
  bool     backward;
  const struct kernel *kernel;
  size_t   scratch, kernel_scratch, state;
  /* some operands are of half types and converted to float32 and back */
  bool     half;
  /* if half: > 0: the kernel is run on this many rows at a time, along the first `lead` axes, with
  ** `part_bytes` of scratch per thread (half_rows.h) */
  int64_t  rows;
  int      lead;
  size_t   part_bytes;
  /* if half: it changes inputs in place, so these are converted back */
  bool     changes;
  /* it has so little data that it is not worth stopping after Ctrl-C */
  bool     brief;
  /* if half: operands with float32 for half types, in the arena */
  struct operand *half_in;
  struct operand *half_out;                           /* the same of outputs */
  /* a kernel of the CPU serves another device, over copies in host memory */
  bool     cpu_fallback;
  /* the kernel tried last does not support the operands' dtypes */
  bool     lacks_type;
  size_t   host_scratch;
  struct operand *fallback_in, *fallback_out;
};
/* The kernels that may serve an operator on a device, in order: the device's own, then those of the
** CPU, over copies (`cpu_fallback`). Formulas are included. */
struct candidates { const struct kernel *own, *cpu; };
struct candidates op_candidates(const struct op *op, bool backward, int device);
/* Returns the next candidate and advances c; NULL: there are no more. */
const struct kernel *next_candidate(struct candidates *c, bool *cpu_fallback);
/* Bits as in struct kernel that all candidates of an operator have. */
struct kernel_caps { uint32_t flags, fuses, add; };
/* Returns what all candidates can do; no bits if there is none. */
struct kernel_caps op_common_caps(const struct op *op, bool backward, int device);
/* An operator's kernels in a back end. what: tells operators apart that share kernels. */
struct op_kernels { const char *op; const struct kernel *forward, *backward; int what; };
/* Registers a list, which ends with { 0 } and is not copied, for a kind of device. */
void op_register_kernels(int kind, const struct op_kernels *list);
/* Returns the entry of an operator in a back end's lists; NULL: there is none. */
const struct op_kernels *op_backend_kernels(const struct op *op);
/* Returns NULL if the kernel accepts the call, with v set up to run it; else the reason, valid
** until this thread's next call. */
const char *invoke_try_kernel(struct invoke *v, const struct kernel *k, struct arena *a);
/* Returns whether input i, or output i if `out`, may have its channels in blocks. */
bool kernel_blocks(const struct kernel *k, int i, bool out);
/* Chooses the first kernel that accepts the call. why: gets the names and reasons of those before
** it, except for unsupported dtypes; may be NULL. */
int  invoke_choose(struct invoke *v, struct arena *a, struct text *why);
/* Runs the call. TY_EINTERRUPTED: Ctrl-C stopped the kernel, and its results are incomplete. */
int  invoke_run(struct invoke *v);
/* Runs v's kernel on the host with the operands of another call. */
int  invoke_run_as(struct invoke *v, struct call *c);
