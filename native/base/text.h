/* text.h - texts that grow, shapes in words, nearness of names. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "tycho.h"

/* zero-initialised = empty; lost: out of memory on the way */
struct text { char *s; size_t n, cap; bool lost; };
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_put(struct text *t, const char *s, size_t n);
void text_done(struct text *t);
void text_clear(struct text *t);                      /* empty again; what was lost is forgotten */
const char *text_whole(const struct text *t);         /* NULL: a part of it was lost */
/* Writes "(2, 3)"; unknown: "?" for a dim, "(?)" for all. Returns buffer. */
const char *text_shape(const ty_desc *d, char *buffer, size_t size);
double name_distance(const char *a, const char *b);   /* edit distance, for "did you mean" */
