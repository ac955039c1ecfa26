/* whole_file.h - a file's bytes at once. */
#pragma once
#include <stddef.h>

/* Reads a file into memory that the caller frees (mem_free); a 0 follows that `n` does not count.
** TY_EIO names the path. */
int file_read(const char *path, char **data, size_t *n);
