/* json.h - the JSON of symbol files: a strict check of a text, then a walk over what was checked,
** and the writer's escapes. A value is a pointer to its first byte: a tree would be many times the
** text. */
#pragma once
#include "base/base.h"

enum { J_TEXT, J_NUMBER, J_LIST, J_OBJECT };
/* Checks a whole text, which is one object. Fails with TY_EFORMAT, line and byte. */
int json_check(const char *s);
/* -- of what was checked -- */
int json_type(const char *v);
const char *json_first(const char *v);                /* of a list or object; NULL: it is empty */
const char *json_next(const char *v);                 /* after a value; NULL: it is the last */
const char *json_value(const char *key);              /* an entry of an object is its key */
bool   json_is(const char *text, const char *s);
char  *json_text(const char *text, struct arena *a);  /* a copy; NULL: out of memory */
double json_number(const char *v);
void json_quote(struct text *t, const char *s);       /* "s" with its escapes */
