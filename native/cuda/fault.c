/* fault.c - what kernels find wrong in contents, which the host does not see: the first finding of
** a device is in pinned memory, and becomes an error when the task ends. */
#include "cuda/cuda.h"

/* as kernels/fault.cuh has them */
enum { BAD_MATRIX, BAD_PARAMETERS, BAD_LABEL, BAD_ROW, BAD_LENGTH };

int cuda_fault_new(struct cuda_fault **out)
{
  TRY(cuda_check(cu_api.MemHostAlloc((void **)out, sizeof **out, CU_HOST_PORTABLE),
      "allocating pinned memory"));
  memset(*out, 0, sizeof **out);
  return TY_OK;
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
        "%s: index %lld at position %lld is out of range%s; expected %lld to %lld", f->op, index,
        (long long)f->position, axis, low, high);
  else if (f->axis == BAD_LABEL)
    code = fail(TY_ERUN, "%s: label %lld at position %lld is not a class; expected 0 to %lld%s",
        f->op, index, (long long)f->position, high, f->what);
  else if (f->axis == BAD_PARAMETERS)
    code = fail(TY_ERUN, "%s: bad parameters at %lld; expected %s", f->op, index, f->what);
  else if (f->axis == BAD_ROW)
    code = fail(TY_ERUN, "%s: bad parameters: row %lld of data is %s", f->op, index, f->what);
  else if (f->axis == BAD_LENGTH)
    code = fail(TY_ERUN,
        "%s: length %lld of sample %lld: a cache of %lld positions has no place for %lld more",
        f->op, index, (long long)f->position, low, (long long)f->high);
  else
    code = fail(TY_ERUN, "%s: matrix %lld %s", f->op, index, f->what);
  fail_node(f->op, NULL, NULL);
  f->taken = 0;
  f->what = NULL;
  return code;
}
