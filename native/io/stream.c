/* stream.c - options of iterators, and reading of files, compressed or not, by bytes and lines. */
#include <ctype.h>
#include <errno.h>
#include "base/system.h"
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
  *out = number_read(text, &end);
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

enum { INPUT = 1 << 17 };                             /* bytes of the compressed buffer */

static void *zlib_alloc(void *context, uInt n, uInt size) { return mem_new((size_t)n * size); }
static void zlib_free(void *context, void *p) { mem_free(p); }

/* Reads until at least two bytes of input are buffered, fewer at the end of the file. */
static int fill_input(struct gz_stream *s)
{
  z_stream *z = &s->z;
  if (z->avail_in >= 2) return TY_OK;
  if (z->avail_in) s->input[0] = *z->next_in;
  z->next_in = s->input;
  z->avail_in += (uInt)fread(s->input + z->avail_in, 1, INPUT - z->avail_in, s->file);
  NEED(!ferror(s->file), TY_EIO, "cannot read '%s': %s", s->path, strerror(errno));
  return TY_OK;
}

static bool begins_member(const z_stream *z)
{
  return z->avail_in >= 2 && z->next_in[0] == 0x1f && z->next_in[1] == 0x8b;
}

/* Reads the beginning of the file and finds whether it is compressed. */
static int stream_begin(struct gz_stream *s)
{
  s->z.avail_in = 0;
  TRY(fill_input(s));
  s->compressed = s->inside = begins_member(&s->z);
  if (s->compressed)
    NEED(inflateReset(&s->z) == Z_OK, TY_EFORMAT, "cannot read '%s': %s", s->path, s->z.msg);
  return TY_OK;
}

int stream_open(struct gz_stream *s, const char *path)
{
  s->path = mem_text(path);
  s->input = mem_new(INPUT);
  s->z.zalloc = zlib_alloc;
  s->z.zfree = zlib_free;
  NEED(s->path && s->input && inflateInit2(&s->z, MAX_WBITS + 16) == Z_OK, TY_EMEMORY,
      "out of memory");
  s->file = sys_fopen(path, "rb");
  if (s->file) return stream_begin(s);
  fail(TY_EIO, "cannot open '%s': %s", path, strerror(errno));
  fail_argument(path, NULL, NULL);
  return TY_EIO;
}

/* Inflates some bytes. Data after the last member is ignored, as gzip does. */
static int inflate_some(struct gz_stream *s)
{
  z_stream *z = &s->z;
  NEED(z->avail_in, TY_EFORMAT, "cannot read '%s': unexpected end of file", s->path);
  int code = inflate(z, Z_NO_FLUSH);
  NEED(code != Z_MEM_ERROR, TY_EMEMORY, "out of memory");
  NEED(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, TY_EFORMAT,
      "cannot read '%s': %s", s->path, z->msg ? z->msg : "the compressed bytes are damaged");
  if (code != Z_STREAM_END) return TY_OK;
  TRY(fill_input(s));
  s->inside = begins_member(z);
  if (s->inside) inflateReset(z);
  return TY_OK;
}

static void copy_some(z_stream *z)
{
  uInt n = MIN(z->avail_in, z->avail_out);
  memcpy(z->next_out, z->next_in, n);
  z->next_in += n;
  z->next_out += n;
  z->avail_in -= n;
  z->avail_out -= n;
}

int stream_read(struct gz_stream *s, void *out, size_t bytes, size_t *got)
{
  z_stream *z = &s->z;
  *got = 0;
  while (*got < bytes) {
    uInt step = (uInt)MIN(bytes - *got, (size_t)1 << 28);
    TRY(fill_input(s));
    bool ended = s->compressed ? !s->inside : !z->avail_in;
    if (ended) return TY_OK;
    z->next_out = (uint8_t *)out + *got;
    z->avail_out = step;
    if (s->compressed)
      TRY(inflate_some(s));
    else
      copy_some(z);
    *got += step - z->avail_out;
  }
  return TY_OK;
}

int stream_rewind(struct gz_stream *s)
{
  NEED(fseeko(s->file, 0, SEEK_SET) == 0, TY_EIO, "cannot read '%s' from its beginning: %s",
      s->path, strerror(errno));
  return stream_begin(s);
}

void stream_close(struct gz_stream *s)
{
  if (s->file) fclose(s->file);
  if (s->z.state) inflateEnd(&s->z);
  mem_free(s->input);
  mem_free(s->path);
  *s = (struct gz_stream){ 0 };
}

/* Reads up to `most` bytes into memory that grows with the data read, so that a damaged head causes
** no large allocation. */
static int read_grown(struct gz_stream *s, size_t most, uint8_t **out, size_t *n)
{
  enum { FIRST_STEP = 1 << 20 };
  for (size_t got = 1; got && *n < most; *n += got) {
    size_t step = MIN(most - *n, MAX(*n, (size_t)FIRST_STEP));
    uint8_t *grown = mem_grow(*out, *n + step);
    if (!grown) return TY_EMEMORY;
    *out = grown;
    TRY(stream_read(s, *out + *n, step, &got));
  }
  return TY_OK;
}

static int skip_bytes(struct gz_stream *s, int64_t n)
{
  uint8_t skipped[1 << 12];
  for (size_t got = 1; got && n > 0; n -= (int64_t)got)
    TRY(stream_read(s, skipped, (size_t)MIN(n, (int64_t)sizeof skipped), &got));
  return TY_OK;
}

int ty_gz_read(const char *path, int64_t skip, int64_t most, ty_tensor **out)
{
  NEED(path && out && skip >= 0 && most >= 0, TY_ETYPE, "gz_read: bad argument");
  struct gz_stream s = { 0 };
  uint8_t *bytes = NULL;
  size_t n = 0;
  *out = NULL;
  int code = stream_open(&s, path);
  if (code == TY_OK) code = skip_bytes(&s, skip);
  if (code == TY_OK) code = read_grown(&s, (size_t)most, &bytes, &n);
  const ty_desc d = { .dtype = TY_U8, .device = TY_CPU, .ndim = 1, .dim = { (int64_t)n } };
  if (code == TY_OK && n) code = ty_tensor_new(&d, out);
  if (code == TY_OK && n) code = ty_tensor_write(*out, bytes, n);
  stream_close(&s);
  mem_free(bytes);
  return code;
}

/* -- lines ------------------------------------------------------------------------------------- */

/* Moves the unread text to the beginning of the buffer and reads more after it. */
static int read_more(struct line_reader *l, bool *any)
{
  if (l->begin > 0) {
    memmove(l->text, l->text + l->begin, l->end - l->begin);
    l->end -= l->begin;
    l->begin = 0;
  }
  if (l->capacity < l->end + (1 << 16) + 1) {
    size_t capacity = l->capacity * 2 + (1 << 17);
    char *text = mem_grow(l->text, capacity);
    if (!text) return TY_EMEMORY;
    l->text = text;
    l->capacity = capacity;
  }
  size_t got;
  TRY(stream_read(&l->stream, l->text + l->end, l->capacity - l->end - 1, &got));
  l->end += got;
  *any = got > 0;
  return TY_OK;
}

/* Reads the beginning of the file and skips a byte order mark. */
static int read_first(struct line_reader *l)
{
  bool any;
  TRY(read_more(l, &any));
  if (l->end >= 3 && !memcmp(l->text, "\xef\xbb\xbf", 3)) l->begin = 3;
  bool wide = l->end >= 2 && (!memcmp(l->text, "\xff\xfe", 2) || !memcmp(l->text, "\xfe\xff", 2));
  NEED(!wide, TY_EFORMAT, "'%s' is a text in UTF-16; save it as UTF-8", l->stream.path);
  return TY_OK;
}

/* Reads a line, which may be blank. */
static int read_line(struct line_reader *l, char **line)
{
  size_t n = 0;
  bool any = true;
  if (l->number == 0) TRY(read_first(l));
  for (;;) {
    if (l->after_return && l->begin < l->end) {
      l->begin += l->text[l->begin] == '\n';
      l->after_return = false;
    }
    const size_t left = l->end - l->begin;
    while (n < left && l->text[l->begin + n] != '\n' && l->text[l->begin + n] != '\r') n++;
    if (n < left) break;
    TRY(read_more(l, &any));
    if (!any) break;
  }
  *line = any || n ? l->text + l->begin : NULL;
  if (!*line) return TY_OK;
  l->after_return = any && (*line)[n] == '\r';
  (*line)[n] = 0; /* the buffer has space for the zero at the end */
  l->begin += n + (any ? 1 : 0);
  l->number++;
  return TY_OK;
}

int lines_next(struct line_reader *l, char **line)
{
  do TRY(read_line(l, line));
  while (*line && !(*line)[strspn(*line, " \t")]);
  return TY_OK;
}

int lines_rewind(struct line_reader *l)
{
  l->begin = l->end = 0;
  l->number = 0;
  l->after_return = false;
  return stream_rewind(&l->stream);
}

void lines_close(struct line_reader *l)
{
  stream_close(&l->stream);
  mem_free(l->text);
  *l = (struct line_reader){ 0 };
}
