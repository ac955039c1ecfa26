/* fault.c - what kernels find wrong in contents, which the host does not see: the first finding of
** a device lies in pinned memory, and becomes an error when the task ends. */
#include "cuda/cuda.h"

int cuda_fault_new(struct cuda_fault **out)
{
  TRY(cuda_told(cu_api.MemHostAlloc((void **)out, sizeof **out, CU_HOST_PORTABLE),
      "allocating pinned memory"));
  memset(*out, 0, sizeof **out);
  return TY_OK;
}

int cuda_fault_told(struct cuda_fault *f)
{
  char axis[32] = "";
  if (!f->taken) return TY_OK;
  if (f->axis >= 0) snprintf(axis, sizeof axis, " on axis %d", f->axis);
  int code = f->what
      ? fail(TY_ERUN, "%s: matrix %lld %s", f->op, (long long)f->index, f->what)
      : fail(TY_ERUN, "%s: index %lld at position %lld is out of range%s; expected %lld to %lld",
            f->op, (long long)f->index, (long long)f->position, axis, (long long)f->low,
            (long long)f->high - 1);
  fail_node(f->op, NULL, NULL);
  f->taken = 0;
  f->what = NULL;
  return code;
}
