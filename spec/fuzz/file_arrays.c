/* file_arrays.c - arrays in files of other engines (tensor/file_arrays.c): what a header of such a
** file may say of an array, and the bytes that it is read from. What is read is freed again. */
#include "fuzz.h"
#include "tensor/tensor.h"

/* The head of the input. 8 bytes of the offset follow, then 8 for each size and stride, then the
** file. */
struct head { uint8_t dtype, encoding, ndim, strided; };

static int64_t next_number(const uint8_t **data, size_t *size)
{
  int64_t n = 0;
  size_t take = *size < sizeof n ? *size : sizeof n;
  if (take) memcpy(&n, *data, take);
  *data += take;
  *size -= take;
  return n;
}

/* Reads the elements where they are few: a stride of 0 makes many of some bytes, which the callers
** of ty_file_tensor limit. */
static void read_all(ty_tensor *x)
{
  ty_desc d;
  void *elements = NULL;
  MUST(!ty_tensor_desc(x, &d));
  if (desc_bytes(&d) <= FUZZ_BASE / 64 && !ty_tensor_data(x, &elements)) MUST(elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct head h = { 0 };
  int64_t stride[TY_MAXDIM], at;
  ty_file *file = NULL;
  ty_tensor *x = NULL;
  size_t given = size;
  if (size < sizeof h) return 0;
  fuzz_begin();
  memcpy(&h, data, sizeof h);
  data += sizeof h;
  size -= sizeof h;
  ty_desc d = { .dtype = h.dtype % 14, .ndim = h.ndim % TY_MAXDIM, .device = TY_CPU };
  at = next_number(&data, &size);
  for (int i = 0; i < d.ndim; i++) {
    d.dim[i] = next_number(&data, &size);
    stride[i] = next_number(&data, &size);
  }
  MUST(!ty_file_copy(data, size, &file));
  if (!ty_file_tensor(file, at, &d, h.strided & 1 ? stride : NULL, h.encoding, &x)) read_all(x);
  ty_tensor_free(x);
  ty_file_free(file);
  return fuzz_end(given);
}
