/* fault.c - errors that kernels find in the contents of arrays, which the host does not see. The
** first one on a device is written to pinned memory and becomes a failure when the task ends. */
#include "cuda/cuda.h"

/* Same as in kernels/fault.cuh. */
enum { BAD_MATRIX, BAD_PARAMETERS, BAD_LABEL, BAD_ROW, BAD_LENGTH };

int cuda_fault_new(struct cuda_fault **out)
{
  TRY(cuda_check(cu_api.MemHostAlloc((void **)out, sizeof **out, CU_HOST_PORTABLE),
      "allocating pinned memory"));
  memset(*out, 0, sizeof **out);
  return TY_OK;
}

/* lowest bit of `op`: it is the address of a struct origin, not of a struct op */
enum { IS_ORIGIN = 1 };

int64_t cuda_origin(const struct call *c)
{
  return c->origin ? (int64_t)((uintptr_t)c->origin | IS_ORIGIN) : (int64_t)(uintptr_t)c->op;
}

/* Adds the node or operator that `op` refers to to the failure. */
static void add_origin(int64_t op)
{
  if (op & IS_ORIGIN) {
    const struct origin *o = (const struct origin *)(uintptr_t)(op - IS_ORIGIN);
    fail_node(o->op, o->node, o->where);
  } else
    fail_node(((const struct op *)(uintptr_t)op)->name, NULL, NULL);
}

int cuda_fault_report(struct cuda_fault *f)
{
  char axis[32] = "";
  if (!f->taken) return TY_OK;
  if (f->axis >= 0) snprintf(axis, sizeof axis, " on axis %d", f->axis);
  int code;
  long long index = f->index, low = f->low, high = f->high - 1;
  if (!f->what)
    code = fail(TY_ERUN,
        "index %lld at position %lld is out of range%s; expected %lld to %lld", index,
        (long long)f->position, axis, low, high);
  else if (f->axis == BAD_LABEL)
    code = fail(TY_ERUN, "label %lld at position %lld is not a class; expected 0 to %lld%s",
        index, (long long)f->position, high, f->what);
  else if (f->axis == BAD_PARAMETERS)
    code = fail(TY_ERUN, "bad parameters at %lld; expected %s", index, f->what);
  else if (f->axis == BAD_ROW)
    code = fail(TY_ERUN, "bad parameters: row %lld of data is %s", index, f->what);
  else if (f->axis == BAD_LENGTH)
    code = fail(TY_ERUN,
        "length %lld of sample %lld: a cache of %lld positions has no place for %lld more",
        index, (long long)f->position, low, (long long)f->high);
  else
    code = fail(TY_ERUN, "matrix %lld %s", index, f->what);
  add_origin(f->op);
  f->taken = 0;
  f->what = NULL;
  return code;
}
