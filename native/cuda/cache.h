/* cache.h - a cache on disk for results that are computed once per machine: compiled kernels, and
** choices among algorithms of a library. The key of an entry is a text of everything that its
** contents depend on. */
#pragma once
#include "base/base.h"

/* Returns a text's hash, FNV-1a. */
uint64_t cache_hash(const char *s, size_t n);
/* Reads the entry of a key. ending: of its file's name. The caller frees *bytes by mem_free; a 0
** may be written after them. Returns false if there is no such file, it is damaged, or another user
** may have written it. */
bool cache_read(const char *key, const char *ending, char **bytes, size_t *n);
/* Writes an entry. Failures are ignored: they only cost time later. */
void cache_write(const char *key, const char *ending, const char *bytes, size_t n);
