/* vec.c - selects the tables of vec.h for this processor, and reads numbers of any dtype. */
#include "kernel/vec/vec.h"

#define TABLES(isa) extern const struct vec_ops vec_ops_f32_##isa, vec_ops_f64_##isa;
EACH_ISA(TABLES)
#define TABLE(isa) { &vec_ops_f32_##isa, &vec_ops_f64_##isa },
static const struct vec_ops *const table[][2] = { EACH_ISA(TABLE) };

const struct vec_ops *vec_ops_of(int dtype) { return table[cpu_isa()][dtype == TY_F64]; }

double number_at(const struct operand *a, int64_t i)
{
  switch (a->d.dtype) {
  case TY_F32: return ((const float *)a->p)[i];
  case TY_F64: return ((const double *)a->p)[i];
  case TY_F16: return half_to_float(((const uint16_t *)a->p)[i]);
  case TY_BF16: return bf16_to_float(((const uint16_t *)a->p)[i]);
  case TY_I8: return ((const int8_t *)a->p)[i];
  case TY_I32: return ((const int32_t *)a->p)[i];
  case TY_I64: return (double)((const int64_t *)a->p)[i];
  default: return ((const uint8_t *)a->p)[i];
  }
}

int64_t index_at(const struct operand *a, int64_t i, int64_t n)
{
  if (a->d.dtype == TY_I64) {
    int64_t v = ((const int64_t *)a->p)[i];
    return v < 0 ? 0 : v >= n ? n - 1 : v;
  }
  double v = number_at(a, i);
  return v > 0 ? v >= (double)n ? n - 1 : (int64_t)v : 0;
}

int64_t whole_at(const struct operand *a, int64_t i)
{
  if (a->d.dtype == TY_I64) return ((const int64_t *)a->p)[i];
  double v = number_at(a, i);
  return v > -0x1p62 && v < 0x1p62 ? (int64_t)v : INT64_MIN;
}
