/* cache.h - files of what is made once per machine: compiled kernels, and which of a library's ways
** is taken. Each is found by a key, a text of all that its contents follow from. */
#pragma once
#include "base/base.h"

/* Returns a text's hash, FNV-1a. */
uint64_t cache_hash(const char *s, size_t n);
/* Gives what was written for a key under names with this ending; mem_free frees the bytes, after
** which there is one more, for a 0. Returns false where there is no such file, where it is damaged,
** and where another user may have written it. */
bool cache_read(const char *key, const char *ending, char **bytes, size_t *n);
/* A cache that cannot be written costs time only. */
void cache_write(const char *key, const char *ending, const char *bytes, size_t n);
