/* primitives.c - see primitives.h. */
#include "kernel/primitives.h"

static const struct primitives *of_gpu;

void primitives_register(int kind, const struct primitives *p)
{
  if (kind == TY_GPU) of_gpu = p;
}

const struct primitives *primitives_of(int device)
{
  return device_kind(device) == TY_GPU ? of_gpu : NULL;
}
