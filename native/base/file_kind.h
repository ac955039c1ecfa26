/* file_kind.h - names files of other programs by their first bytes. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { FILE_KIND_HEAD = 264 };                         /* bytes that distinguish the kinds */

/* Returns what a file that begins with n bytes is, as the end of "this is ", and what reads it
** where Tycho does; NULL: an unknown kind. */
const char *file_kind(const void *head, size_t n);
