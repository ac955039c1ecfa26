/* libsvm.c - labels and pairs of index and value (io/table.c). */
#include "readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const ty_attr attr[] = { { "data_libsvm", fuzz_file(0, data, size) }, { "data_shape", "(8,)" },
    { "label_libsvm", fuzz_file(1, data, size) }, { "label_shape", "(2,)" } };
  fuzz_begin();
  read_all(&reader_libsvm, attr, size % 2 ? 4 : 2);
  return fuzz_end(unpacked(data, size));
}
