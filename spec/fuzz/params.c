/* params.c - files of arrays (tensor/params.c). What is read is written again, and read again. */
#include "fuzz.h"
#include "tycho.h"

static void write_and_read(ty_bag *b, int named)
{
  char path[64];
  ty_bag *again = NULL;
  const char *name, *other;
  ty_tensor *x, *y;
  int same;
  snprintf(path, sizeof path, "/dev/shm/tycho-fuzz-%ld.params", (long)getpid());
  MUST(!ty_params_save(path, b, named));
  MUST(!ty_params_load(path, &again, &same));
  MUST(named == same || ty_bag_at(b, 0, NULL, NULL));
  for (int i = 0; !ty_bag_at(b, i, &name, &x); i++) {
    ty_desc d, e;
    MUST(!ty_bag_at(again, i, &other, &y) && !strcmp(name, other));
    MUST(!ty_tensor_desc(x, &d) && !ty_tensor_desc(y, &e));
    MUST(d.ndim == e.ndim && d.dtype == e.dtype);
    MUST(!memcmp(d.dim, e.dim, sizeof *d.dim * (size_t)d.ndim));
  }
  ty_bag_free(again);
  unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ty_bag *b = NULL;
  int named = 0;
  fuzz_begin();
  if (!ty_params_parse(data, size, &b, &named)) write_and_read(b, named);
  ty_bag_free(b);
  return fuzz_end(size);
}
