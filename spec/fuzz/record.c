/* record.c - RecordIO (io/record.c): all records, then a seek into the middle. */
#include "fuzz.h"
#include "tycho.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ty_record *r = NULL;
  const char *bytes;
  size_t n, total = 0;
  const char *path = fuzz_file(0, data, size);
  fuzz_begin();
  MUST(!ty_record_open(path, "r", &r));
  while (!ty_record_read(r, &bytes, &n) && bytes) {
    for (size_t i = 0; i < n; i++) total += (unsigned char)bytes[i];
    MUST(n <= size + size / 2);                       /* a magic word between parts is left out */
  }
  MUST(!ty_record_seek(r, (int64_t)(total % (size + 1))));
  ty_record_read(r, &bytes, &n);
  ty_record_close(r);
  return fuzz_end(size);
}
