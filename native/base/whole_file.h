/* whole_file.h - reads a whole file. */
#pragma once
#include <stddef.h>

/* Reads a file into memory that the caller frees (mem_free), followed by a 0 that *n does not
** count. Fails with TY_EIO, which names the path. */
int file_read(const char *path, char **data, size_t *n);
