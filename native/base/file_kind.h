/* file_kind.h - recognises files of other programs by their first bytes, for error messages. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* bytes at the start of a file that are enough */
enum { FILE_KIND_HEAD = 264 };

/* Returns text that completes "this is ...", with what reads such a file if Tycho can, for a file
** that begins with these n bytes; NULL: an unknown kind. */
const char *file_kind(const void *head, size_t n);
