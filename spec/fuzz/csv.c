/* csv.c - tables of numbers (io/table.c): rows and labels from the same bytes. */
#include "readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const ty_attr attr[] = { { "data_csv", fuzz_file(0, data, size) },
    { "label_csv", fuzz_file(1, data, size) }, { "data_shape", "(2,)" },
    { "label_shape", "(2,)" } };
  fuzz_begin();
  read_all(&reader_csv, attr, size % 2 ? 4 : 3);
  return fuzz_end(unpacked(data, size));
}
