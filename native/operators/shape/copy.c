/* copy.c - copies between devices, and the imperative copy. The bytes are the same; only the
** place differs. */
#include "op/op.h"

enum { GRAIN = 1 << 18 };
struct copy_bytes { char *to; const char *from; };

static void copy_part(int64_t begin, int64_t end, void *context)
{
  const struct copy_bytes *b = context;
  memcpy(b->to + begin, b->from + begin, (size_t)(end - begin));
}

/* in, out: any dtype, equal shapes; may be the same place. */
static int copy(struct call *c)
{
  if (!c->out[0].p || c->out[0].p == c->in[0].p) return TY_OK;
  parallel_for((int64_t)desc_bytes(&c->in[0].d), GRAIN, copy_part,
      &(struct copy_bytes){ c->out[0].p, c->in[0].p });
  return TY_OK;
}

static const struct kernel copy_cpu[] = { { "copy", copy, T_ANY }, { 0 } };

const struct op op_copy[] = {
  { .name = "_CrossDeviceCopy", .doc = "The data on another device; same shape. The gradient is copied back.", .in = "data", .grad = "g0",
    .back = "_CrossDeviceCopy", .cpu = copy_cpu, .back_cpu = copy_cpu },
  { .name = "_copyto", .alias = "_npi_copyto", .doc = "A copy of data; same shape. The gradient is copied back.", .in = "data",
      .grad = "g0",
    .back = "_copyto", .cpu = copy_cpu, .back_cpu = copy_cpu, .inplace = "0=0", .back_inplace = "0=0" },
  { 0 } };
