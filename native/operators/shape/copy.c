/* copy.c - copies between devices, and the imperative copy. Bytes are copied unchanged. */
#include "device/device.h"
#include "kernel/strided_copy.h"
#include "op/op.h"

/* Copies between devices: the only kernel whose input is on another device than its output. */
static int copy_across(struct call *c)
{
  const struct operand *x = &c->in[0];
  return device_copy(c->device, c->out[0].p, x->d.device, x->p, desc_bytes(&x->d));
}

static const struct kernel crossings[] = {
  { .name = "copy", .run = copy_across, .types = T_ANY, .flags = K_ANYWHERE }, { 0 }
};

static const struct kernel copies[] = {
  { .name = "copy", .run = copy_kernel, .types = T_ANY, .flags = K_ANYWHERE }, { 0 }
};

const struct op op_copy[] = {
  { .name = "_CrossDeviceCopy", .doc = "The data on another device; same shape. The gradient is copied back.", .in = "data", .grad = "g0",
    .back = "_CrossDeviceCopy", .cpu = crossings, .back_cpu = crossings, .flags = OP_NAMED_INPUT },
  { .name = "_copyto", .alias = "_npi_copyto", .doc = "A copy of data; same shape. The gradient is copied back.", .in = "data",
      .grad = "g0",
    .back = "_copyto", .cpu = copies, .back_cpu = copies, .inplace = "0=0", .back_inplace = "0=0" },
  { 0 } };
