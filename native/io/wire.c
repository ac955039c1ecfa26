/* wire.c - Protocol Buffers' wire format, read from a file a field at a time (ty_wire_*).
**
** A message is a sequence of fields: a varint of number << 3 | type, then a varint (type 0), eight
** bytes (1), a length and that many bytes (2), or four bytes (5). Bytes of type 2 may be text, a
** message or packed numbers; only the caller knows. Only the heads of fields are read: other bytes,
** such as weights, are skipped unless asked for, so a file of any size takes the memory of one
** window.
*/
#include <inttypes.h>
#include "base/base.h"
#include "tensor/tensor.h"

enum {
  WIRE_DEPTH = 64,                                    /* most nested messages */
  WINDOW_LEAST = 4 << 10, WINDOW_MOST = 64 << 10,     /* bytes read at a time */
  VARINT_BYTES = 10,
};

struct ty_wire {
  ty_file *file;
  int64_t size;                                       /* of the file */
  int64_t at;                                         /* where the next field begins */
  int64_t end[WIRE_DEPTH + 1];                        /* ends of the open messages */
  int depth;
  ty_field last;
  uint8_t *window;
  int64_t begin;                                      /* offset of the window in the file */
  int64_t filled;                                     /* bytes of the window */
};

int ty_wire_open(ty_file *f, ty_wire **out)
{
  NEED(f && out, TY_ETYPE, "ty_wire_open: the file or the result's place is missing");
  ty_wire *w = NEW(ty_wire);
  if (!w) return TY_EMEMORY;
  w->file = file_keep(f);
  w->window = mem_new(WINDOW_MOST);
  int code = w->window ? ty_file_size(f, &w->size) : TY_EMEMORY;
  if (code) return ty_wire_free(w), code;
  w->end[0] = w->size;
  *out = w;
  return TY_OK;
}

void ty_wire_free(ty_wire *w)
{
  if (!w) return;
  ty_file_free(w->file);
  mem_free(w->window);
  mem_free(w);
}

/* -- bytes ------------------------------------------------------------------------------------- */

/* Loads the n bytes at `at`, which must be in the file, into the window. Windows are larger while
** the file is read without gaps, so that jumping between weights reads little. */
static int window_hold(ty_wire *w, int64_t at, int64_t n)
{
  if (at >= w->begin && at + n <= w->begin + w->filled) return TY_OK;
  bool on = w->filled && at >= w->begin && at <= w->begin + w->filled;
  int64_t bytes = MAX(n, on ? MIN(2 * w->filled, (int64_t)WINDOW_MOST) : (int64_t)WINDOW_LEAST);
  bytes = MIN(bytes, w->size - at);
  w->filled = 0;
  TRY(ty_file_read(w->file, at, w->window, (size_t)bytes));
  w->begin = at;
  w->filled = bytes;
  return TY_OK;
}

static int wire_damaged(const ty_wire *w, int64_t at, const char *what)
{
  return fail(TY_EFORMAT, "byte %" PRId64 ": %s", at, what);
}

/* Reads a varint at *at, which must end before `end`, and advances *at. */
static int read_varint(ty_wire *w, int64_t *at, int64_t end, uint64_t *value)
{
  int64_t most = MIN((int64_t)VARINT_BYTES, end - *at);
  if (most <= 0) return wire_damaged(w, *at, "a field ends after its message");
  TRY(window_hold(w, *at, most));
  const uint8_t *p = w->window + (*at - w->begin);
  uint64_t v = 0;
  for (int i = 0; i < most; i++) {
    if (i == VARINT_BYTES - 1 && p[i] > 1) break;     /* more than 64 bits */
    v |= (uint64_t)(p[i] & 0x7f) << 7 * i;
    if (p[i] & 0x80) continue;
    *value = v;
    *at += i + 1;
    return TY_OK;
  }
  return wire_damaged(w, *at, most < VARINT_BYTES ? "a field ends after its message"
                                                  : "a number of more than 64 bits");
}

static int read_fixed(ty_wire *w, int64_t *at, int64_t end, int n, uint64_t *value)
{
  if (end - *at < n) return wire_damaged(w, *at, "a field ends after its message");
  TRY(window_hold(w, *at, n));
  *value = 0;
  memcpy(value, w->window + (*at - w->begin), (size_t)n);
  *at += n;
  return TY_OK;
}

/* -- fields ------------------------------------------------------------------------------------ */

int ty_wire_next(ty_wire *w, ty_field *out, int *more)
{
  NEED(w && out && more, TY_ETYPE, "ty_wire_next: null argument");
  enum { NUMBER_BITS = 29 };
  const int64_t end = w->end[w->depth], from = w->at;
  ty_field f = { 0 };
  uint64_t tag, length;
  *more = from < end;
  if (!*more) return TY_OK;
  TRY(read_varint(w, &w->at, end, &tag));
  f.type = (int)(tag & 7);
  if (tag >> 3 == 0 || tag >> (3 + NUMBER_BITS)) return wire_damaged(w, from, "no such field");
  f.number = (int)(tag >> 3);
  f.at = w->at;
  switch (f.type) {
  case TY_FIELD_VARINT: TRY(read_varint(w, &w->at, end, &f.value)); break;
  case TY_FIELD_64: TRY(read_fixed(w, &w->at, end, 8, &f.value)); break;
  case TY_FIELD_32: TRY(read_fixed(w, &w->at, end, 4, &f.value)); break;
  case TY_FIELD_BYTES:
    TRY(read_varint(w, &w->at, end, &length));
    if (length > (uint64_t)(end - w->at))
      return wire_damaged(w, from, "a field is longer than its message");
    f.at = w->at;
    f.value = length;
    w->at += (int64_t)length;
    break;
  default: return wire_damaged(w, from, "a field of an unknown type");
  }
  f.bytes = w->at - f.at;
  *out = w->last = f;
  return TY_OK;
}

int ty_wire_enter(ty_wire *w)
{
  NEED(w, TY_ETYPE, "ty_wire_enter: no reader");
  NEED(w->last.type == TY_FIELD_BYTES, TY_EFORMAT,
      "byte %" PRId64 ": field %d is a number, no message", w->last.at, w->last.number);
  NEED(w->depth < WIRE_DEPTH, TY_EFORMAT, "byte %" PRId64 ": more than %d messages in each other",
      w->last.at, WIRE_DEPTH);
  w->at = w->last.at;
  w->end[++w->depth] = w->last.at + w->last.bytes;
  return TY_OK;
}

int ty_wire_leave(ty_wire *w)
{
  NEED(w && w->depth, TY_ESTATE, "ty_wire_leave: no message is open");
  w->at = w->end[w->depth--];
  w->last = (ty_field){ 0 };
  return TY_OK;
}

int ty_wire_bytes(ty_wire *w, const char **out)
{
  NEED(w && out, TY_ETYPE, "ty_wire_bytes: null argument");
  NEED(w->last.type == TY_FIELD_BYTES, TY_EFORMAT,
      "byte %" PRId64 ": field %d is a number, no text", w->last.at, w->last.number);
  NEED(w->last.bytes <= WINDOW_MOST, TY_EFORMAT,
      "byte %" PRId64 ": a text of %" PRId64 " bytes, at most %d", w->last.at, w->last.bytes,
      WINDOW_MOST);
  TRY(window_hold(w, w->last.at, w->last.bytes));
  *out = (const char *)w->window + (w->last.at - w->begin);
  return TY_OK;
}

int ty_wire_numbers(ty_wire *w, int64_t *to, int64_t capacity, int64_t *n)
{
  NEED(w && n && (to || !capacity), TY_ETYPE, "ty_wire_numbers: null argument");
  NEED(w->last.type == TY_FIELD_BYTES, TY_EFORMAT,
      "byte %" PRId64 ": field %d is no list of numbers", w->last.at, w->last.number);
  int64_t at = w->last.at;
  const int64_t end = at + w->last.bytes;
  uint64_t value;
  for (*n = 0; at < end; ++*n) {
    TRY(read_varint(w, &at, end, &value));
    if (*n < capacity) to[*n] = (int64_t)value;
  }
  return TY_OK;
}
