/* copy.c - copies between devices, and the imperative copy. The bytes are the same; only the
** place differs. */
#include "kernel/strided_copy.h"
#include "op/op.h"

static const struct kernel copies[] = {
  { .name = "copy", .run = copy_kernel, .types = T_ANY, .flags = K_ANYWHERE }, { 0 }
};

const struct op op_copy[] = {
  { .name = "_CrossDeviceCopy", .doc = "The data on another device; same shape. The gradient is copied back.", .in = "data", .grad = "g0",
    .back = "_CrossDeviceCopy", .cpu = copies, .back_cpu = copies },
  { .name = "_copyto", .alias = "_npi_copyto", .doc = "A copy of data; same shape. The gradient is copied back.", .in = "data",
      .grad = "g0",
    .back = "_copyto", .cpu = copies, .back_cpu = copies, .inplace = "0=0", .back_inplace = "0=0" },
  { 0 } };
