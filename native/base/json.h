/* json.h - a small strict reader of symbol files, and the writer's escapes. Values lie in the
** caller's arena. */
#pragma once
#include "base/base.h"

enum { J_TEXT, J_NUMBER, J_LIST, J_OBJECT };
struct json {
  int type, n;                                        /* n: entries of a list or object */
  const char *key, *text;                             /* key: inside an object; text: J_TEXT */
  double number;
  struct json *first, *next;                          /* entries, in the order of the file */
  size_t at;                                          /* byte where the value begins */
};
/* TY_EFORMAT names line and byte */
int json_read(const char *s, struct arena *a, struct json **out);
const struct json *json_get(const struct json *object, const char *key);     /* NULL */
void json_quote(struct text *t, const char *s);       /* "s" with its escapes */
