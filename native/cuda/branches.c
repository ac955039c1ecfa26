/* branches.c - _guard, _gate and _select, around parts that control flow may skip
** (kernels/branches.cu). */
#include "cuda/row.h"
#include "kernel/strided_copy.h"

/* Fills in the sizes; in: condition, the enclosing guard, which may be absent. */
static int64_t guard_sizes(const struct call *c, void *s)
{
  *(int32_t *)s = cuda_flag(c, "negate");
  return 1;
}

/* Writes the gradients of both branches, of x's dtype. first, second: NULL if unused. */
static int part_ways(struct call *c, void *first, void *second, const void *guard)
{
  const struct operand *x = &c->in[0];
  int64_t n = desc_count(&x->d);
  if (!first && !second) return TY_OK;
  return cuda_start(c, FAMILY_branches, "part_ways", "UNIT=#i0 T=u8", n,
      (void *[]){ &first, &second, (void *)&guard, (void *)&x->p, &n });
}

static int pass_gate(struct call *c)
{
  if (!c->out[0].p || c->out[0].p == c->in[0].p) return TY_OK;
  return move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d));
}

/* Computes the gradients; in: head gradient, guard. */
static int gate_back(struct call *c)
{
  TRY(part_ways(c, c->out[0].p, NULL, c->in[1].p));
  return cuda_zero(c, &c->out[1]);
}

/* Computes the gradients; in: head gradient, guard. */
static int choose_back(struct call *c)
{
  TRY(part_ways(c, c->out[1].p, c->out[2].p, c->in[1].p));
  return cuda_zero(c, &c->out[0]);
}

static const struct kernel guards[]       = {
  { "byte", CUDA_ROW(FAMILY_branches, "guard", "UNIT=u8 T=$i0", "o0 i0 i1 s0", guard_sizes),
    .types = T_ANY }, { 0 }
};
static const struct kernel gates[]        = { { "bytes",  pass_gate,     T_ANY }, { 0 } };
static const struct kernel gates_back[]   = { { "choice", gate_back,     T_ANY }, { 0 } };
static const struct kernel selects[]      = {
  { "choice", CUDA_ROW(FAMILY_branches, "choose", "UNIT=#o0 T=u8", "o0 i0 i1 i2 s0"),
    .types = T_ANY }, { 0 }
};
static const struct kernel selects_back[] = { { "choice", choose_back,   T_ANY }, { 0 } };

const struct op_kernels cuda_branches[] = {
  { "_guard", guards, NULL },
  { "_gate", gates, gates_back },
  { "_select", selects, selects_back },
  { 0 }
};
