/* json.h - a small strict reader of symbol files, and the writer's escapes. Values lie in the
** caller's arena. Lists of the outermost object, which may be long, are checked and counted;
** json_each hands out their entries. */
#pragma once
#include "base/base.h"

enum { J_TEXT, J_NUMBER, J_LIST, J_OBJECT };
struct json {
  int type, n;                                        /* n: entries of a list or object */
  const char *key;                                    /* inside an object */
  union {
    const char *text;
    double number;
    struct json *first;                               /* of the entries, in the order of the file */
  };
  struct json *next;
  size_t at;                                          /* byte where the value begins */
};
/* a whole text; TY_EFORMAT names line and byte */
int json_read(const char *s, struct arena *a, struct json **out);
/* the object at a byte of it, which is the outermost one then */
int json_object(const char *s, size_t at, struct arena *a, struct json **out);
/* entries of a list of the outermost object, until `take` gives an error; each is gone after it */
int json_each(const char *s, const struct json *list,
              int (*take)(const struct json *entry, void *to), void *to);
const struct json *json_get(const struct json *object, const char *key);     /* NULL */
void json_quote(struct text *t, const char *s);       /* "s" with its escapes */
