/* convert.c - converts arrays from one dtype to another on a GPU (kernels/convert.cu). */
#include "cuda/row.h"

static const char *conversion_name(int from, int to)
{
  if (from == TY_F64 || to == TY_F64) return "double";
  return dtype_float(from) ? "float" : "i64";
}

int cuda_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  cu_function f;
  void *params[] = { &dst, &src, &n };
  TRY(cuda_family(device, FAMILY_convert, "convert", &f, "FROM=%s TO=%s BY=%s",
      cuda_type(src_type), cuda_type(dst_type), conversion_name(src_type, dst_type)));
  return cuda_launch(device, f, cuda_blocks(device, n), CUDA_BLOCK, 0, params);
}

int cuda_times(const struct call *c, const struct operand *to, const struct operand *from,
    double factor, bool add)
{
  const char *type = cuda_type(to->d.dtype), *by = to->d.dtype == TY_F64 ? "double" : "float";
  int64_t n = desc_count(&to->d);
  int32_t adds = add;
  if (!to->p) return TY_OK;
  return cuda_start_words(c, FAMILY_convert, "times_factor", n,
      (void *[]){ (void *)&to->p, (void *)&from->p, &n, &factor, &adds }, "FROM=%s TO=%s BY=%s",
      type, type, by);
}
