/* wire.c - Protocol Buffers' wire format (io/wire.c): all fields, as far down as messages go; which
** bytes are messages the input decides.
*/
#include "fuzz.h"
#include "tycho.h"

static void read_message(ty_wire *w, int depth, uint32_t *choice, size_t size)
{
  ty_field f;
  int more = 1;
  while (!ty_wire_next(w, &f, &more) && more) {
    MUST(f.number > 0 && f.at >= 0 && f.bytes >= 0 && (size_t)f.at + (size_t)f.bytes <= size);
    if (f.type != TY_FIELD_BYTES) continue;
    const char *text;
    int64_t numbers[4], n = 0;
    *choice = *choice * 1664525u + (uint32_t)f.number;
    switch (*choice >> 30) {
    case 0:
      if (!ty_wire_bytes(w, &text))
        for (int64_t i = 0; i < f.bytes; i++) *choice += (unsigned char)text[i];
      break;
    case 1:
      if (!ty_wire_numbers(w, numbers, 4, &n)) MUST(n <= f.bytes);
      break;
    default:
      if (ty_wire_enter(w)) return;
      MUST(depth < 64);
      read_message(w, depth + 1, choice, size);
      MUST(!ty_wire_leave(w));
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  ty_file *file = NULL;
  ty_wire *w = NULL;
  uint32_t choice = 1;
  const char *path = fuzz_file(0, data, size);
  fuzz_begin();
  MUST(!ty_file_open(path, &file));
  MUST(!ty_wire_open(file, &w));
  ty_file_free(file);
  read_message(w, 0, &choice, size);
  ty_wire_free(w);
  return fuzz_end(size);
}
