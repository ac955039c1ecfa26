/* dispatch.h - one call of one operator: the choice of its kernel, the conversion of half types
** around it, and copies to the host and back where the device has none. Used by lowering
** (programs) and by ty_call (imperative calls). */
#pragma once
#include "op/registry.h"

/* Filled by invoke_choose from op, backward, and call (descriptors and param set, pointers not
** needed). scratch: bytes that `call.tmp` must have at run: the kernel's own, then the converted
** operands. */
struct invoke {
  struct call call;                                   /* in, out: the real operands */
  bool     backward;
  const struct kernel *kernel;
  size_t   scratch, kernel_scratch, state;
  /* some operands are converted to float32 and back */
  bool     half;
  /* half: > 0: the kernel is run on so many rows at a time, which have `lead` axes; a thread has
  ** `part_bytes` of scratch (half_rows.h) */
  int64_t  rows;
  int      lead;
  size_t   part_bytes;
  /* half: it changes inputs in place, which are converted back */
  bool     changes;
  /* so little data that it has ended before Ctrl-C could stop it */
  bool     brief;
  /* float32 operands in place of half ones, from the arena */
  struct operand *half_in;
  struct operand *half_out;                           /* likewise */
  /* a CPU's kernel on another device: it runs over copies in the host's memory */
  bool     cpu_fallback;
  /* the kernel that was asked last has not the operands' element types */
  bool     lacks_type;
  size_t   host_scratch;
  struct operand *fallback_in, *fallback_out;
};
/* The kernels of an operator on a device, formulas included: the device's own in order, then the
** CPU's, which run over copies there (`cpu_fallback`). */
struct candidates { const struct kernel *own, *cpu; };
struct candidates op_candidates(const struct op *op, bool backward, int device);
/* Returns the next candidate; NULL: there are no more. */
const struct kernel *next_candidate(struct candidates *c, bool *cpu_fallback);
/* Bits that the kernels of an operator have in common. */
struct kernel_caps { uint32_t flags, fuses, add; };
/* Returns what all candidates can do, no bits if there is no candidate. */
struct kernel_caps op_common_caps(const struct op *op, bool backward, int device);
/* Kernels of a back end; a list ends with { 0 } and is not copied. `what` says which of the
** operators that share kernels this is. */
struct op_kernels { const char *op; const struct kernel *forward, *backward; int what; };
void op_register_kernels(int kind, const struct op_kernels *list);
/* Returns a back end's row of an operator; NULL: it has none. */
const struct op_kernels *op_backend_kernels(const struct op *op);
/* Returns NULL where the kernel accepts the call, else the reason. */
const char *invoke_try_kernel(struct invoke *v, const struct kernel *k, struct arena *a);
/* Returns whether operand i may have its channels in blocks. */
bool kernel_blocks(const struct kernel *k, int i, bool out);
/* Chooses the first kernel that accepts the call. why (may be NULL) gets the others' names and
** reasons, those of other element types left out. */
int  invoke_choose(struct invoke *v, struct arena *a, struct text *why);
/* TY_EINTERRUPTED: Ctrl-C stopped the kernel, and what it writes is not complete. */
int  invoke_run(struct invoke *v);
/* The same for v's kernel, on the host, with another call's operands. */
int  invoke_run_as(struct invoke *v, struct call *c);
