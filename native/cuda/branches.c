/* branches.c - _guard, _gate and _select, between which control flow skips what is not taken
** (kernels/branches.cu). */
#include "cuda/family.h"
#include "kernel/strided_copy.h"

static int write_guard(struct call *c)
{
  void *none = NULL, **outer = c->nin > 1 ? &c->in[1].p : &none;
  int32_t negate = cuda_flag(c, "negate");
  cu_function f;
  TRY(cuda_family(c->device, FAMILY_branches, "guard", &f, "UNIT=u8 T=%s",
      cuda_type(c->in[0].d.dtype)));
  void *params[] = { &c->out[0].p, &c->in[0].p, outer, &negate };
  return cuda_launch(c->device, f, 1, 1, 0, params);
}

static int branch_family(const struct call *c, const char *name, const ty_desc *d, cu_function *f)
{
  return cuda_family(
      c->device, FAMILY_branches, name, f, "UNIT=%s T=u8", cuda_unit(dtype_size(d->dtype)));
}

/* Two gradients of x's dtype; p NULL: unused. */
static int part_ways(struct call *c, void *first, void *second, const void *guard)
{
  const struct operand *x = &c->in[0];
  int64_t n = desc_count(&x->d);
  cu_function f;
  if (!first && !second) return TY_OK;
  TRY(branch_family(c, "part_ways", &x->d, &f));
  void *params[] = { &first, &second, (void *)&guard, (void *)&x->p, &n };
  return cuda_run(c, f, n, params);
}

static int pass_gate(struct call *c)
{
  if (!c->out[0].p || c->out[0].p == c->in[0].p) return TY_OK;
  return move_bytes(c->device, c->out[0].p, c->in[0].p, desc_bytes(&c->in[0].d));
}

/* in: head gradient, guard */
static int gate_back(struct call *c)
{
  TRY(part_ways(c, c->out[0].p, NULL, c->in[1].p));
  return cuda_zero(c, &c->out[1]);
}

static int select_branch(struct call *c)
{
  const ty_desc *d = &c->out[0].d;
  int64_t n = desc_count(d);
  cu_function f;
  if (!c->out[0].p) return TY_OK;
  TRY(branch_family(c, "choose", d, &f));
  void *params[] = { &c->out[0].p, &c->in[0].p, &c->in[1].p, &c->in[2].p, &n };
  return cuda_run(c, f, n, params);
}

/* in: head gradient, guard */
static int choose_back(struct call *c)
{
  TRY(part_ways(c, c->out[1].p, c->out[2].p, c->in[1].p));
  return cuda_zero(c, &c->out[0]);
}

static const struct kernel guards[]       = { { "byte",   write_guard,   T_ANY }, { 0 } };
static const struct kernel gates[]        = { { "bytes",  pass_gate,     T_ANY }, { 0 } };
static const struct kernel gates_back[]   = { { "choice", gate_back,     T_ANY }, { 0 } };
static const struct kernel selects[]      = { { "choice", select_branch, T_ANY }, { 0 } };
static const struct kernel selects_back[] = { { "choice", choose_back,   T_ANY }, { 0 } };

const struct op_kernels cuda_branches[] = {
  { "_guard", guards, NULL },
  { "_gate", gates, gates_back },
  { "_select", selects, selects_back },
  { 0 }
};
