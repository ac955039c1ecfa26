/* stream.c - options of iterators, files that may be compressed, and their lines. */
#include <ctype.h>
#include <errno.h>
#include "io/reader.h"

/* -- options ----------------------------------------------------------------------------------- */

const char *option_text(const struct options *o, const char *key, const char *otherwise)
{
  for (int i = 0; i < o->n; i++)
    if (!strcmp(o->attr[i].key, key)) return o->attr[i].value;
  return otherwise;
}

int option_int(
    const struct options *o, const char *key, int64_t otherwise, int64_t least, int64_t *out)
{
  const char *text = option_text(o, key, NULL);
  char *end;
  *out = otherwise;
  if (!text) return TY_OK;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end == text || *end || errno || *out < least) {
    fail(TY_EVALUE, "'%s' is '%s', not an integer of at least %lld", key, text, (long long)least);
    fail_argument(key, NULL, text);
    return TY_EVALUE;
  }
  return TY_OK;
}

int option_real(const struct options *o, const char *key, double otherwise, double *out)
{
  const char *text = option_text(o, key, NULL);
  char *end;
  *out = otherwise;
  if (!text) return TY_OK;
  *out = strtod(text, &end);
  if (end != text && !*end && *out - *out == 0) return TY_OK;
  fail(TY_EVALUE, "'%s' is '%s', not a finite number", key, text);
  fail_argument(key, "a finite number", text);
  return TY_EVALUE;
}

int option_bool(const struct options *o, const char *key, bool otherwise, bool *out)
{
  const char *text = option_text(o, key, otherwise ? "True" : "False");
  *out = !strcmp(text, "True") || !strcmp(text, "true") || !strcmp(text, "1");
  if (*out || !strcmp(text, "False") || !strcmp(text, "false") || !strcmp(text, "0")) return TY_OK;
  fail(TY_EVALUE, "'%s' is '%s', neither True nor False", key, text);
  fail_argument(key, "True or False", text);
  return TY_EVALUE;
}

int option_shape(const struct options *o, const char *key, const char *otherwise, ty_desc *out)
{
  const char *text = option_text(o, key, otherwise), *s = text ? text : "";
  *out = (ty_desc){ .dtype = TY_F32, .device = TY_CPU };
  while (*s) {
    char *end;
    if (!isdigit((unsigned char)*s)) {
      s++;
      continue;
    }
    long long n = strtoll(s, &end, 10);
    if (n < 1 || n > INT32_MAX || out->ndim == TY_MAXDIM - 1) break;
    out->dim[out->ndim++] = n;
    s = end;
  }
  if (*s || !out->ndim) {
    fail(TY_EVALUE, "'%s' is '%s', not a shape", key, text ? text : "missing");
    fail_argument(key, "a shape", text);
    return TY_EVALUE;
  }
  return TY_OK;
}

int option_part(const struct options *o, int64_t *parts, int64_t *index)
{
  TRY(option_int(o, "num_parts", 1, 1, parts));
  TRY(option_int(o, "part_index", 0, 0, index));
  NEED(*index < *parts, TY_EVALUE, "part_index is %lld, but there are %lld parts",
      (long long)*index, (long long)*parts);
  return TY_OK;
}

/* -- files ------------------------------------------------------------------------------------- */

int stream_open(struct gz_stream *s, const char *path)
{
  errno = 0;
  s->path = mem_text(path);
  s->file = s->path ? gzopen(path, "rb") : NULL;
  if (s->file) {
    gzbuffer(s->file, 1 << 17);
    return TY_OK;
  }
  fail(TY_EIO, "cannot open '%s': %s", path, errno ? strerror(errno) : "out of memory");
  fail_argument(path, NULL, NULL);
  return TY_EIO;
}

int stream_read(struct gz_stream *s, void *out, size_t bytes, size_t *got)
{
  *got = 0;
  while (*got < bytes) {
    unsigned step = (unsigned)MIN(bytes - *got, (size_t)1 << 28);
    int n = gzread(s->file, (char *)out + *got, step);
    if (n < 0) {
      int code;
      const char *why = gzerror(s->file, &code);
      bool broken = code != Z_ERRNO;
      return fail(broken ? TY_EFORMAT : TY_EIO, "cannot read '%s': %s", s->path,
          broken ? why : strerror(errno));
    }
    if (n == 0) return TY_OK;
    *got += (size_t)n;
  }
  return TY_OK;
}

int stream_rewind(struct gz_stream *s)
{
  NEED(gzrewind(s->file) == 0, TY_EIO, "cannot read '%s' from its beginning", s->path);
  return TY_OK;
}

void stream_close(struct gz_stream *s)
{
  if (s->file) gzclose(s->file);
  mem_free(s->path);
  *s = (struct gz_stream){ 0 };
}

/* -- lines ------------------------------------------------------------------------------------- */

static int read_more(struct line_reader *l, bool *any)
{
  if (l->begin > 0) {
    memmove(l->text, l->text + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
  }
  if (l->room < l->end + (1 << 16) + 1) {
    size_t room = l->room * 2 + (1 << 17);
    char *text = mem_grow(l->text, room);
    if (!text) return TY_EMEMORY;
    l->text = text;
    l->room = room;
  }
  size_t got;
  TRY(stream_read(&l->stream, l->text + l->end, l->room - l->end - 1, &got));
  l->end += got;
  *any = got > 0;
  return TY_OK;
}

int lines_next(struct line_reader *l, char **line)
{
  size_t seen = 0;
  for (;;) {
    size_t n = l->end - l->begin;
    char *end = n > seen ? memchr(l->text + l->begin + seen, '\n', n - seen) : NULL;
    bool any = true;
    if (!end) {
      seen = n;
      TRY(read_more(l, &any));
      if (any) continue;
      if (l->begin == l->end) {
        *line = NULL;
        return TY_OK;
      }
      end = l->text + l->end; /* there is room for the zero */
    }
    *line = l->text + l->begin;
    l->begin = (size_t)(end - l->text) + (any ? 1 : 0);
    *end = 0;
    if (end > *line && end[-1] == '\r') end[-1] = 0;
    l->number++;
    return TY_OK;
  }
}

int lines_rewind(struct line_reader *l)
{
  l->begin = l->end = 0;
  l->number = 0;
  return stream_rewind(&l->stream);
}

void lines_close(struct line_reader *l)
{
  stream_close(&l->stream);
  mem_free(l->text);
  *l = (struct line_reader){ 0 };
}
