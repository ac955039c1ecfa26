/* floats.h - tensors of floats for C tests. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "tensor/tensor.h"

#define SURE(condition) CHECK(condition, "%s", ty_error())

static inline ty_tensor *new_floats(int device, int64_t n, float value)
{
  ty_desc d = { .dtype = TY_F32, .device = device, .ndim = 1, .dim = { n } };
  ty_tensor *t = NULL;
  float *x = malloc(sizeof *x * (size_t)n);
  for (int64_t i = 0; i < n; i++) x[i] = value;
  RUN(ty_tensor_new(&d, &t));
  RUN(ty_tensor_write(t, x, sizeof *x * (size_t)n));
  free(x);
  return t;
}

/* Returns the first number of a tensor of at most 64. */
static inline float read_first(ty_tensor *t)
{
  float x[64] = { NAN };
  RUN(ty_tensor_read(t, x, desc_bytes(&t->d)));
  return x[0];
}
