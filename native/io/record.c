/* record.c - RecordIO files: sequences of byte strings (ty_record_*).
**
** Little-endian chunks: magic, a word of flag << 29 | length, payload, zeros up to a multiple of 4.
** Flag 0: a whole record; 1, 2, 3: its first, middle, last part. Where a record contains the magic
** at a multiple of 4, it is split there and the magic is left out; reading puts it back between
** parts.
*/
#include <errno.h>
#include "base/base.h"
#include "base/system.h"
#include "io/record_file.h"

enum { WHOLE, FIRST, MIDDLE, LAST, FLAG_SHIFT = 29, MOST_BYTES = (1 << FLAG_SHIFT) - 1 };

struct ty_record {
  FILE *file;
  char *path, *buffer;
  size_t capacity;
  bool writes;
};

static int no_file(const ty_record *r)
{
  return fail(TY_EIO, "'%s': %s", r->path, strerror(errno));
}

int ty_record_open(const char *path, const char *mode, ty_record **out)
{
  NEED(path && mode && out, TY_ETYPE, "record_open: null argument");
  NEED(!strcmp(mode, "r") || !strcmp(mode, "w"), TY_EVALUE, "the mode is '%s', neither 'r' nor 'w'",
      mode);
  ty_record *r = NEW(ty_record);
  if (!r) return TY_EMEMORY;
  r->writes = *mode == 'w';
  r->path = mem_text(path);
  r->file = r->path ? sys_fopen(path, r->writes ? "wb" : "rb") : NULL;
  if (!r->file) {
    int code = r->path ? fail(TY_EIO, "cannot open '%s': %s", path, strerror(errno)) : TY_EMEMORY;
    ty_record_close(r);
    return code;
  }
  *out = r;
  return TY_OK;
}

int ty_record_close(ty_record *r)
{
  if (!r) return TY_OK;
  int code = r->file && fclose(r->file) && r->writes ? no_file(r) : TY_OK;
  mem_free(r->path);
  mem_free(r->buffer);
  mem_free(r);
  return code;
}

/* -- reading ----------------------------------------------------------------------------------- */

static uint32_t read_word(const uint8_t *b)
{
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int fail_record(ty_record *r, const char *what)
{
  return fail(TY_EFORMAT, "'%s', byte %lld: %s", r->path, (long long)ftello(r->file), what);
}

static int reserve_bytes(ty_record *r, size_t bytes)
{
  if (bytes <= r->capacity) return TY_OK;
  size_t capacity = MAX(bytes, r->capacity * 2);
  char *buffer = mem_grow(r->buffer, capacity);
  if (!buffer) return TY_EMEMORY;
  r->buffer = buffer;
  r->capacity = capacity;
  return TY_OK;
}

/* Reads the head of a chunk. *end: the file ends here. */
static int read_head(ty_record *r, uint32_t *flag, size_t *bytes, bool *end)
{
  uint8_t head[8];
  size_t n = fread(head, 1, sizeof head, r->file);
  *end = n == 0 && !ferror(r->file);
  if (*end) return TY_OK;
  if (ferror(r->file)) return no_file(r);
  if (n < sizeof head) return fail_record(r, "the file ends within the head of a record");
  if (read_word(head) != RECORD_MAGIC) return fail_record(r, "no record begins here (wrong magic)");
  *flag = read_word(head + 4) >> FLAG_SHIFT;
  *bytes = read_word(head + 4) & MOST_BYTES;
  return TY_OK;
}

static int read_payload(ty_record *r, size_t at, size_t bytes)
{
  size_t padded = align_up(bytes, 4), got = 0;
  while (got < padded) { /* step by step: a damaged length causes no large allocation */
    size_t step = MIN(padded - got, (size_t)1 << 24);
    TRY(reserve_bytes(r, at + got + step));
    if (fread(r->buffer + at + got, 1, step, r->file) != step)
      return ferror(r->file) ? no_file(r) : fail_record(r, "the file ends within a record");
    got += step;
  }
  return TY_OK;
}

int ty_record_read(ty_record *r, const char **data, size_t *bytes)
{
  NEED(r && data && bytes, TY_ETYPE, "record_read: null argument");
  uint32_t flag = WHOLE;
  size_t n = 0, total = 0;
  bool end;
  NEED(!r->writes, TY_ESTATE, "'%s' is open for writing", r->path);
  TRY(reserve_bytes(r, 8));
  for (bool inside = false;; inside = true) {
    TRY(read_head(r, &flag, &n, &end));
    if (end && inside) return fail_record(r, "the file ends between the parts of a record");
    if (end) {
      *data = NULL;
      *bytes = 0;
      return TY_OK;
    }
    if (inside != (flag == MIDDLE || flag == LAST))
      return fail_record(r, "the parts of a record are out of order");
    if (inside) {
      const uint32_t magic = RECORD_MAGIC;
      TRY(reserve_bytes(r, total + 4));
      memcpy(r->buffer + total, &magic, 4);
      total += 4;
    }
    TRY(read_payload(r, total, n));
    total += n;
    if (flag == WHOLE || flag == LAST) break;
  }
  *data = r->buffer;
  *bytes = total;
  return TY_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

static int write_bytes(ty_record *r, const void *bytes, size_t n)
{
  /* fwrite must not get NULL */
  return !n || fwrite(bytes, 1, n, r->file) == n ? TY_OK : no_file(r);
}

static int put_chunk(ty_record *r, uint32_t flag, const char *bytes, size_t n)
{
  const uint32_t head[2] = { RECORD_MAGIC, flag << FLAG_SHIFT | (uint32_t)n };
  TRY(write_bytes(r, head, sizeof head));
  TRY(write_bytes(r, bytes, n));
  return write_bytes(r, "\0\0\0", align_up(n, 4) - n);
}

int ty_record_write(ty_record *r, const void *data, size_t bytes)
{
  NEED(r && (data || !bytes), TY_ETYPE, "record_write: null argument");
  const uint32_t magic = RECORD_MAGIC;
  const char *text = data;
  size_t done = 0;
  NEED(r->writes, TY_ESTATE, "'%s' is open for reading", r->path);
  NEED(bytes <= MOST_BYTES, TY_EVALUE, "a record has %zu bytes, %d at most", bytes, MOST_BYTES);
  for (size_t i = 0; i + 4 <= bytes; i += 4)
    if (!memcmp(text + i, &magic, 4)) {
      TRY(put_chunk(r, done ? MIDDLE : FIRST, text + done, i - done));
      done = i + 4;
    }
  return put_chunk(r, done ? LAST : WHOLE, text + done, bytes - done);
}

/* -- places ------------------------------------------------------------------------------------ */

int ty_record_seek(ty_record *r, int64_t offset)
{
  NEED(r, TY_ETYPE, "record_seek: null record file");
  NEED(!r->writes, TY_ESTATE, "'%s' is open for writing", r->path);
  NEED(offset >= 0, TY_EVALUE, "the offset is %lld", (long long)offset);
  return fseeko(r->file, (off_t)offset, SEEK_SET) == 0 ? TY_OK : no_file(r);
}

int ty_record_tell(ty_record *r, int64_t *offset)
{
  NEED(r && offset, TY_ETYPE, "record_tell: null argument");
  *offset = (int64_t)ftello(r->file);
  return *offset >= 0 ? TY_OK : no_file(r);
}
