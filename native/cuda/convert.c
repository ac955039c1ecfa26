/* convert.c - arrays from one dtype to another on a GPU, and the sums of broadcasting. */
#include "cuda/family.h"

enum { BLOCK = 256 };

static const char *between(int from, int to)
{
  if (from == TY_F64 || to == TY_F64) return "double";
  return dtype_float(from) ? "float" : "i64";
}

int cuda_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n)
{
  char defines[128];
  cu_function f;
  void *params[] = { &dst, &src, &n };
  snprintf(defines, sizeof defines, "FROM=%s TO=%s BY=%s", cuda_type(src_type),
      cuda_type(dst_type), between(src_type, dst_type));
  TRY(cuda_family(device, FAMILY_convert, defines, "convert", &f));
  return cuda_launch(device, f, cuda_blocks(device, n, BLOCK), BLOCK, 0, params);
}

struct sum_axes { int64_t keep[TY_MAXDIM][3], fold[TY_MAXDIM][2]; int nkeep, nfold; };

/* Aligned to the right; neighbours are joined where their strides allow it. */
static int split_axes(const ty_desc *dst, const ty_desc *src, struct sum_axes *a)
{
  char x[160], y[160];
  int64_t from = 1, to = 1;
  struct sum_axes all = { 0 };
  for (int i = src->ndim - 1, k = dst->ndim - 1; i >= 0; i--, k--) {
    int64_t size = k >= 0 ? dst->dim[k] : 1;
    if (size != 1 && size != src->dim[i])
      return fail(TY_ESHAPE, "a sum of shape %s from %s is not possible",
          text_shape(dst, x, sizeof x), text_shape(src, y, sizeof y));
    bool folds = size == 1 && src->dim[i] != 1;
    if (folds) {
      all.fold[all.nfold][0] = src->dim[i];
      all.fold[all.nfold++][1] = from;
    }
    else if (src->dim[i] != 1) {
      all.keep[all.nkeep][0] = src->dim[i];
      all.keep[all.nkeep][1] = from;
      all.keep[all.nkeep++][2] = to;
    }
    from *= src->dim[i];
    to *= size;
  }
  *a = (struct sum_axes){ .nkeep = all.nkeep, .nfold = all.nfold };
  for (int i = 0; i < all.nkeep; i++)
    memcpy(a->keep[i], all.keep[all.nkeep - 1 - i], sizeof a->keep[i]);
  for (int i = 0; i < all.nfold; i++)
    memcpy(a->fold[i], all.fold[all.nfold - 1 - i], sizeof a->fold[i]);
  return TY_OK;
}

int cuda_sum_rows(int device, void *dst, const ty_desc *dst_d, const void *src,
    const ty_desc *src_d, bool add)
{
  struct sum_axes a;
  int64_t buffer[2 + 3 * TY_MAXDIM + 2 * TY_MAXDIM] = { 1, 1 };
  char defines[160];
  cu_function f;
  TRY(split_axes(dst_d, src_d, &a));
  int nkeep = MAX(a.nkeep, 1), nfold = MAX(a.nfold, 1);
  if (!a.nkeep) a.keep[0][0] = 1;
  if (!a.nfold) a.fold[0][0] = 1;
  for (int i = 0; i < nkeep; i++) buffer[0] *= a.keep[i][0];
  for (int i = 0; i < nfold; i++) buffer[1] *= a.fold[i][0];
  memcpy(buffer + 2, a.keep, sizeof a.keep[0] * (size_t)nkeep);
  memcpy(buffer + 2 + 3 * nkeep, a.fold, sizeof a.fold[0] * (size_t)nfold);
  snprintf(defines, sizeof defines, "T=%s TO=%s A=%s KEEP=%d FOLD=%d ADD=%d",
      cuda_type(src_d->dtype), cuda_type(dst_d->dtype),
      dtype_float(src_d->dtype) ? "double" : "i64", nkeep, nfold, add);
  TRY(cuda_family(device, FAMILY_sum_to, defines, "sum_to", &f));
  void *params[] = { &dst, &src, buffer };
  return cuda_launch(device, f, MIN(buffer[0], INT32_MAX), BLOCK, 0, params);
}

int cuda_sum_to(int device, void *dst, const ty_desc *dst_d, const void *src, const ty_desc *src_d)
{
  return cuda_sum_rows(device, dst, dst_d, src, src_d, false);
}
