/* dispatch.h - one call of one operator: the choice of its kernel, and the conversion of half
** types around it. Used by lowering (programs) and by ty_call (imperative calls). */
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
  /* half: it changes inputs in place, which are converted back */
  bool     changes;
  /* float32 stand-ins (from the arena), in front of the kernel */
  struct operand *half_in, *half_out;
};
/* rows included; NULL: none */
const struct kernel *op_kernels(const struct op *op, bool backward);
/* NULL: it accepts; else the reason */
const char *invoke_asks(struct invoke *v, const struct kernel *k, struct arena *a);
/* operand i may have its channels in blocks */
bool kernel_blocks(const struct kernel *k, int i, bool out);
/* why (may be NULL): what was refused, and why */
int  invoke_choose(struct invoke *v, struct arena *a, struct text *why);
int  invoke_run(struct invoke *v);
