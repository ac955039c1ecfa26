/* text.h - growing strings, shapes as text, similarity of names. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "tycho.h"

/* A string that grows. Zero-initialised: empty. lost: memory ran out, a part is missing, and later
** additions are ignored. */
struct text { char *s; size_t n, cap; bool lost; };
/* Appends formatted text. */
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends n bytes. */
void text_put(struct text *t, const char *s, size_t n);
/* Frees the string. */
void text_done(struct text *t);
/* Makes it empty, and resets `lost`, but keeps the memory. */
void text_clear(struct text *t);
/* Returns the string, borrowed; NULL if a part was lost. */
const char *text_whole(const struct text *t);
/* Writes a shape: "(2, 3)", with "?" for an unknown dim; "(?)" if ndim is unknown. Returns
** buffer. */
const char *text_shape(const ty_desc *d, char *buffer, size_t size);
/* Returns the edit distance of two names, for "did you mean". Swapping two neighbouring letters is
** one step. Case and separators cost less than one, so that "fullyconnected" and "fully_connected"
** are near "FullyConnected". */
double name_distance(const char *a, const char *b);
