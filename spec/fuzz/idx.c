/* idx.c - MNIST's files (io/idx.c, io/stream.c): a file of images; labels that fit it. */
#include "readers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  uint8_t labels[8 + 256] = { 0, 0, 8, 1 };
  if (size >= 8) memcpy(labels + 4, data + 4, 4);
  const ty_attr attr[] = { { "image", fuzz_file(0, data, size) },
    { "label", fuzz_file(1, labels, sizeof labels) } };
  fuzz_begin();
  read_all(&reader_mnist, attr, 2);
  return fuzz_end(unpacked(data, size));
}
