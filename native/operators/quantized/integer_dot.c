/* integer_dot.c - _contrib_integer_dot: the product of 8-bit integers as they are, in 32 bits.
**
** The caller corrects results for zero points: sum (a - z) b = sum a b - z sum b. A bound matrix
** stays packed until its contents change.
*/
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/levels.h"
#include "op/op.h"

static int integer_dot_shape(struct infer *s)
{
  ty_desc *a = &s->in[0], *b = &s->in[1];
  if (!a->ndim || b->ndim != 2)
    return b->ndim && b->ndim != 2
        ? infer_fail(s, TY_ESHAPE, b, "expected 2 dimensions, got %d", b->ndim)
        : TY_OK;
  if (a->dim[a->ndim - 1] && b->dim[0] && a->dim[a->ndim - 1] != b->dim[0])
    return infer_fail(s, TY_ESHAPE, b, "it has %lld rows, but the last axis of lhs has %lld",
        (long long)b->dim[0], (long long)a->dim[a->ndim - 1]);
  int64_t dim[TY_MAXDIM];
  memcpy(dim, a->dim, sizeof dim);
  dim[a->ndim - 1] = b->dim[1];
  return shape_is(s, &s->out[0], a->ndim, dim);
}

static int integer_dot_type(struct infer *s)
{
  TRY(type_is(s, &s->in[1], TY_I8));
  return type_is(s, &s->out[0], TY_I32);
}

static const char *integer_dot_refuse(const struct call *c)
{
  const int dtype = c->in[0].d.dtype;
  if (dtype != TY_U8 && dtype != TY_I8) return "lhs is neither uint8 nor int8";
  return c->in[1].d.dim[0] <= LEVELS_TERMS ? NULL : "sums of so many products may not fit 32 bits";
}

static int integer_dot_run(struct call *c)
{
  const struct operand *a = &c->in[0], *b = &c->in[1];
  const int64_t k = b->d.dim[0], n = b->d.dim[1], m = n ? desc_count(&c->out[0].d) / n : 0;
  const int type = a->d.dtype == TY_U8 ? GEMM_U8 : GEMM_S8;
  if (!b->version || !m || !k)
    return gemm_one(type, false, false, m, n, k, 1, a->p, k, b->p, n, 0, c->out[0].p, n);
  const void *packed = gemm_keep(c->state, type, b, false, n, k, n);
  NEED(packed, TY_EMEMORY, "out of memory: packed matrix of %lld bytes",
      (long long)gemm_pack_bytes(type, n, k));
  return gemm_packed(type, false, m, n, k, a->p, k, packed, c->out[0].p, n, NULL);
}

static const struct kernel cpu[] = { { "int8", integer_dot_run, T_INT, integer_dot_refuse, NULL, gemm_kept_bytes, gemm_kept_done }, { 0 } };

const struct op op_integer_dot[] = {
  { .name = "_contrib_integer_dot", .in = "lhs rhs", .out = "output",
    .doc = "Product of 8-bit integers, exact in int32: lhs (..., k) uint8 or int8, rhs (k, n) int8, output (..., n). "
           "No gradient.",
    .shape = integer_dot_shape, .type = integer_dot_type, .cpu = cpu }, { 0 } };
