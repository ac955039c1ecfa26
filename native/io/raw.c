/* raw.c - "raw": binary records of a fixed size, plain or compressed: `label_bytes` labels of one
** byte each (CIFAR-10: 1, CIFAR-100: 2), then the elements of the sample, little-endian. Without
** label bytes the label is 0.
*/
#include "io/reader.h"

struct raw {
  struct reader base;
  struct gz_stream stream;
  uint8_t *head;
  int64_t head_bytes;
  size_t bytes;
};

static void close_raw(struct reader *r)
{
  struct raw *w = (struct raw *)r;
  stream_close(&w->stream);
  mem_free(w->head);
  mem_free(w);
}

static int set_up(struct raw *w, const struct options *o)
{
  int dtype;
  TRY(option_shape(o, "shape", NULL, &w->base.data));
  TRY(dtype_parse(option_text(o, "dtype", "uint8"), &dtype));
  TRY(option_int(o, "label_bytes", 0, 0, &w->head_bytes));
  NEED(w->head_bytes <= 1 << 20, TY_EVALUE, "label_bytes is %lld", (long long)w->head_bytes);
  w->base.data.dtype = dtype;
  w->base.label = (ty_desc){ .dtype = TY_F32, .ndim = 1, .dim = { MAX(w->head_bytes, 1) } };
  w->bytes = desc_bytes(&w->base.data);
  w->head = mem_new((size_t)w->head_bytes + 1);
  if (!w->head) return TY_EMEMORY;
  return stream_open(&w->stream, option_text(o, "path", ""));
}

static int open_raw(const struct options *o, struct reader **out)
{
  struct raw *w = NEW(struct raw);
  if (!w) return TY_EMEMORY;
  w->base.kind = &reader_raw;
  int code = set_up(w, o);
  if (code != TY_OK) {
    close_raw(&w->base);
    return code;
  }
  *out = &w->base;
  return TY_OK;
}

static int next_raw(struct reader *r, void *data, float *label, bool *more)
{
  struct raw *w = (struct raw *)r;
  size_t head, body;
  TRY(stream_read(&w->stream, w->head, (size_t)w->head_bytes, &head));
  TRY(stream_read(&w->stream, data, w->bytes, &body));
  *more = head + body > 0;
  if (!*more) return TY_OK;
  NEED(head == (size_t)w->head_bytes && body == w->bytes, TY_EFORMAT,
      "'%s' ends within a record: %zu of %zu bytes", w->stream.path, head + body,
      (size_t)w->head_bytes + w->bytes);
  label[0] = 0;
  for (int64_t i = 0; i < w->head_bytes; i++) label[i] = w->head[i];
  return TY_OK;
}

static int rewind_raw(struct reader *r) { return stream_rewind(&((struct raw *)r)->stream); }

const struct reader_kind reader_raw = { "raw", open_raw, next_raw, rewind_raw, close_raw };
