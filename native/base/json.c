/* json.c - reads the JSON of symbol files.
**
** The files hold objects, lists, texts and numbers, nothing else; texts know the escapes \" \\
** \n \r \t and no raw line breaks. The check refuses everything else with line and byte, and nests
** at most DEPTH levels; it and the walk allocate nothing, so damaged or hostile files cost no
** more than their length. Source: behaviour of the reference's reader.
*/
#include "base/json.h"

enum { DEPTH = 64 };
struct json_reader { const char *begin, *s; int depth; };
#define NUMBER "+-.0123456789eE"

static int fail_json(const struct json_reader *r, const char *what)
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

static const char *skip_space(const char *s)
{
  while (*s == ' ' || *s == '\n' || *s == '\t' || *s == '\r') s++;
  return s;
}

static int skip_char(struct json_reader *r, char c, const char *what)
{
  r->s = skip_space(r->s);
  if (*r->s != c) return fail_json(r, what);
  r->s++;
  return TY_OK;
}

static char escape_of(char c)
{
  const char *from = "\"\\nrt", *to = "\"\\\n\r\t", *at = c ? strchr(from, c) : NULL;
  return at ? to[at - from] : 0;
}

/* -- the check --------------------------------------------------------------------------------- */

static int check_text(struct json_reader *r)
{
  TRY(skip_char(r, '"', "a text"));
  for (char c; (c = *r->s) && c != '"' && c != '\n' && c != '\r'; r->s++)
    if (c == '\\' && !escape_of(*++r->s))
      return fail_json(r, "one of the escapes \\\" \\\\ \\n \\r \\t");
  if (*r->s != '"') return fail_json(r, "the text's closing quote on the same line");
  return r->s++, TY_OK;
}

static int check_number(struct json_reader *r)
{
  size_t digits = strspn(r->s, NUMBER);
  char *end;
  if (!digits) return fail_json(r, "a text, number, list or object");
  number_read(r->s, &end);
  if (end != r->s + digits) return fail_json(r, "a number");
  r->s = end;
  return TY_OK;
}

static int check_value(struct json_reader *r);

static int check_entries(struct json_reader *r, bool object)
{
  const char close = object ? '}' : ']';
  for (int n = 0;; n++) {
    r->s = skip_space(r->s);
    if (*r->s == close) return r->s++, TY_OK;
    if (n) TRY(skip_char(r, ',', object ? "',' or '}'" : "',' or ']'"));
    if (object) {
      TRY(check_text(r));
      TRY(skip_char(r, ':', "':'"));
    }
    TRY(check_value(r));
  }
}

static int check_value(struct json_reader *r)
{
  r->s = skip_space(r->s);
  char c = *r->s;
  if (c == '"') return check_text(r);
  if (c != '[' && c != '{') return check_number(r);
  if (r->depth == DEPTH) return fail_json(r, "no more than 64 nested brackets");
  r->s++;
  r->depth++;
  TRY(check_entries(r, c == '{'));
  r->depth--;
  return TY_OK;
}

int json_check(const char *s)
{
  struct json_reader r = { s, skip_space(s), 0 };
  if (*r.s != '{') return fail_json(&r, "'{'");
  TRY(check_value(&r));
  r.s = skip_space(r.s);
  return *r.s ? fail_json(&r, "nothing more") : TY_OK;
}

/* -- the walk ---------------------------------------------------------------------------------- */

int json_type(const char *v)
{
  return *v == '"' ? J_TEXT : *v == '[' ? J_LIST : *v == '{' ? J_OBJECT : J_NUMBER;
}

static const char *find_text_end(const char *v)
{
  for (v++; *v != '"'; v++) v += *v == '\\';
  return v + 1;
}

static const char *find_end(const char *v)
{
  int depth = 0;
  if (json_type(v) == J_NUMBER) return v + strspn(v, NUMBER);
  do {
    if (*v == '"')
      v = find_text_end(v);
    else {
      depth += (*v == '[' || *v == '{') - (*v == ']' || *v == '}');
      v++;
    }
  } while (depth);
  return v;
}

const char *json_first(const char *v)
{
  v = skip_space(v + 1);
  return *v == ']' || *v == '}' ? NULL : v;
}

const char *json_next(const char *v)
{
  v = skip_space(find_end(v));
  return *v == ',' ? skip_space(v + 1) : NULL;
}

const char *json_value(const char *key) { return skip_space(skip_space(find_text_end(key)) + 1); }

bool json_is(const char *text, const char *s)
{
  for (text++; *text != '"'; text++, s++) {
    char c = *text == '\\' ? escape_of(*++text) : *text;
    if (c != *s) return false;
  }
  return !*s;
}

char *json_text(const char *text, struct arena *a)
{
  const char *end = find_text_end(text) - 1;
  char *copy = arena_chars(a, (size_t)(end - text)), *put = copy;
  if (!copy) return NULL;
  for (text++; text < end; text++) *put++ = *text == '\\' ? escape_of(*++text) : *text;
  *put = 0;
  return copy;
}

double json_number(const char *v)
{
  char *end;
  return number_read(v, &end);
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
