/* json.c - reads the JSON of symbol files.
**
** The files hold objects, lists, texts and numbers, nothing else; texts know the escapes \" \\
** \n \r \t and no raw line breaks. The reader refuses everything else with line and byte, nests
** at most DEPTH levels, and copies each text once, so damaged or hostile files cost no more than
** their length. A tree is some seven times its text, so the long lists, those of the outermost
** object, never become one. Source: behaviour of the reference's reader.
*/
#include "base/json.h"

enum { DEPTH = 64 };
struct json_reader { const char *begin, *s; struct arena *arena; int depth; };

static int refuse(const struct json_reader *r, const char *what)
{
  int line = 1;
  char got[24];
  for (const char *p = r->begin; p < r->s; p++) line += *p == '\n';
  unsigned char c = (unsigned char)*r->s;
  snprintf(got, sizeof got, c == 0 ? "the end" : c < 32 || c > 126 ? "byte %d" : "'%c'", c);
  int code = fail(TY_EFORMAT, "line %d, byte %zu: expected %s, got %s", line,
      (size_t)(r->s - r->begin), what, got);
  fail_argument(NULL, what, got);
  return code;
}

static void skip_space(struct json_reader *r) { r->s += strspn(r->s, " \t\r\n"); }

static int expect(struct json_reader *r, char c, const char *what)
{
  skip_space(r);
  if (*r->s != c) return refuse(r, what);
  r->s++;
  return TY_OK;
}

static char escape_of(char c)
{
  const char *from = "\"\\nrt", *to = "\"\\\n\r\t", *at = c ? strchr(from, c) : NULL;
  return at ? to[at - from] : 0;
}

static int read_text(struct json_reader *r, const char **out)
{
  TRY(expect(r, '"', "a text"));
  const char *end = r->s;
  while (*end && *end != '"' && *end != '\n' && *end != '\r') end += *end == '\\' && end[1] ? 2 : 1;
  char *copy = arena_new(r->arena, (size_t)(end - r->s) + 1), *put = copy;
  NEED(copy, TY_EMEMORY, "out of memory: text of %zu bytes", (size_t)(end - r->s));
  while (r->s < end) {
    char c = *r->s++;
    if (c == '\\' && !(c = escape_of(*r->s++)))
      return r->s--, refuse(r, "one of the escapes \\\" \\\\ \\n \\r \\t");
    *put++ = c;
  }
  *out = copy;
  return expect(r, '"', "the text's closing quote on the same line");
}

static int read_number(struct json_reader *r, double *out)
{
  size_t digits = strspn(r->s, "+-.0123456789eE");
  char *end;
  if (!digits) return refuse(r, "a text, number, list or object");
  *out = number_read(r->s, &end);
  if (end != r->s + digits) return refuse(r, "a number");
  r->s = end;
  return TY_OK;
}

static int read_value(struct json_reader *r, const char *key, struct json **out);

/* The next entry of a list or an object, NULL behind the last. */
static int next_entry(struct json_reader *r, struct json *v, struct json **out)
{
  const char close = v->type == J_LIST ? ']' : '}', *key = NULL;
  *out = NULL;
  skip_space(r);
  if (*r->s == close) return r->s++, TY_OK;
  if (v->n) TRY(expect(r, ',', v->type == J_LIST ? "',' or ']'" : "',' or '}'"));
  if (v->type == J_OBJECT) {
    TRY(read_text(r, &key));
    TRY(expect(r, ':', "':'"));
  }
  v->n++;
  return read_value(r, key, out);
}

static int keep_entries(struct json_reader *r, struct json *v)
{
  struct json **tail = &v->first;
  for (;;) {
    TRY(next_entry(r, v, tail));
    if (!*tail) return TY_OK;
    tail = &(*tail)->next;
  }
}

/* Takes one entry after the other, each a tree that is gone when the next one is read. */
static int pass_entries(struct json_reader *r, struct json *v,
    int (*take)(const struct json *entry, void *to), void *to)
{
  struct arena *whole = r->arena;
  struct json *entry;
  int code;
  do {
    struct arena one = { 0 };
    r->arena = &one;
    code = next_entry(r, v, &entry);
    if (!code && entry && take) code = take(entry, to);
    arena_done(&one);
  } while (!code && entry);
  r->arena = whole;
  return code;
}

static int read_value(struct json_reader *r, const char *key, struct json **out)
{
  skip_space(r);
  struct json *v = arena_new(r->arena, sizeof *v);
  NEED(v, TY_EMEMORY, "out of memory: JSON value");
  v->key = key;
  v->at = (size_t)(r->s - r->begin);
  *out = v;
  char c = *r->s;
  if (c == '"') return v->type = J_TEXT, read_text(r, &v->text);
  if (c != '[' && c != '{') return v->type = J_NUMBER, read_number(r, &v->number);
  if (r->depth == DEPTH) return refuse(r, "no more than 64 nested brackets");
  v->type = c == '[' ? J_LIST : J_OBJECT;
  r->s++;
  bool outermost = r->depth++ == 1;
  TRY(outermost && c == '[' ? pass_entries(r, v, NULL, NULL) : keep_entries(r, v));
  r->depth--;
  return TY_OK;
}

static int read_object(struct json_reader *r, struct json **out)
{
  skip_space(r);
  return *r->s == '{' ? read_value(r, NULL, out) : refuse(r, "'{'");
}

int json_read(const char *s, struct arena *a, struct json **out)
{
  struct json_reader r = { s, s, a, 0 };
  TRY(read_object(&r, out));
  skip_space(&r);
  return *r.s ? refuse(&r, "nothing more") : TY_OK;
}

int json_object(const char *s, size_t at, struct arena *a, struct json **out)
{
  struct json_reader r = { s, s + at, a, 0 };
  return read_object(&r, out);
}

int json_each(const char *s, const struct json *list,
    int (*take)(const struct json *entry, void *to), void *to)
{
  struct json_reader r = { s, s + list->at + 1, NULL, 2 };
  struct json again = { .type = J_LIST };
  return pass_entries(&r, &again, take, to);
}

const struct json *json_get(const struct json *object, const char *key)
{
  const struct json *v = object && object->type == J_OBJECT ? object->first : NULL;
  while (v && strcmp(v->key, key)) v = v->next;
  return v;
}

void json_quote(struct text *t, const char *s)
{
  text_put(t, "\"", 1);
  while (*s) {
    size_t n = strcspn(s, "\"\\\n\r\t");
    text_put(t, s, n);
    s += n;
    if (!*s) break;
    char escape[2] = { '\\', *s == '\n' ? 'n' : *s == '\r' ? 'r' : *s == '\t' ? 't' : *s };
    text_put(t, escape, 2);
    s++;
  }
  text_put(t, "\"", 1);
}
