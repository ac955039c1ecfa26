/* inflate.c - zlib for readers of archives: inflating and checksums. */
#include <zlib.h>
#include "base/base.h"

#define STEP ((size_t)1 << 30)                        /* zlib counts bytes in 32 bits */

static int inflate_all(z_stream *z, const uint8_t *from, size_t left, uint8_t *to, size_t capacity)
{
  z->next_in = (Bytef *)from;
  z->next_out = to;
  for (;;) {
    if (!z->avail_in) {
      z->avail_in = (uInt)MIN(left, STEP);
      left -= z->avail_in;
    }
    if (!z->avail_out) {
      z->avail_out = (uInt)MIN(capacity, STEP);
      capacity -= z->avail_out;
    }
    int code = inflate(z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) break;
    bool stuck = (!z->avail_in && !left) || (!z->avail_out && !capacity);
    NEED(code == Z_OK && !stuck, TY_EFORMAT, "the compressed bytes are damaged");
  }
  NEED(!capacity && !z->avail_out && !left && !z->avail_in, TY_EFORMAT,
      "the compressed bytes have another length");
  return TY_OK;
}

int ty_inflate(const void *data, size_t bytes, void *out, size_t size)
{
  z_stream z = { 0 };
  NEED(inflateInit2(&z, -MAX_WBITS) == Z_OK, TY_EMEMORY, "out of memory");
  int code = inflate_all(&z, data, bytes, out, size);
  inflateEnd(&z);
  return code;
}

uint32_t ty_crc32(uint32_t before, const void *data, size_t bytes)
{
  const uint8_t *p = data;
  for (size_t n; bytes; p += n, bytes -= n) {
    n = MIN(bytes, STEP);
    before = (uint32_t)crc32(before, p, (uInt)n);
  }
  return before;
}
