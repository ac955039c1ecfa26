/* json.h - the JSON of symbol files: a strict check of a text, a walk over the checked text, and
** escapes for the writer. A value is a pointer to its first byte in the text; no tree is built,
** since it would take many times the memory of the text. */
#pragma once
#include "base/base.h"

enum { J_TEXT, J_NUMBER, J_LIST, J_OBJECT };
/* Checks that a whole text is one object. Fails with TY_EFORMAT, line and byte. */
int json_check(const char *s);
/* The functions below, but json_quote, take values of a text that json_check has accepted. */
/* Returns J_*. */
int json_type(const char *v);
/* Returns the first item of a list, or the first key of an object; NULL: it is empty. */
const char *json_first(const char *v);
/* Returns the item after v, or the key after an object's value v; NULL: v is the last one. */
const char *json_next(const char *v);
/* Returns the value that follows an object's key. */
const char *json_value(const char *key);
/* Returns whether a text, with its escapes resolved, is s. */
bool   json_is(const char *text, const char *s);
/* Returns a copy of a text with its escapes resolved, in the arena; NULL: out of memory. */
char  *json_text(const char *text, struct arena *a);
double json_number(const char *v);
/* Adds s to t in quotes, with escapes. */
void json_quote(struct text *t, const char *s);
