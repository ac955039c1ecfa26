/* stream_copy.h - stores that pass by the caches, for results that would not stay there: the old
** contents are not fetched. */
#pragma once
#include "base/base.h"

/* Returns whether a copy is of more than half of the last cache. */
bool stream_copy_profitable(size_t bytes);
/* Copies as memcpy does; fastest where dst is a multiple of 16. */
void stream_copy(void *dst, const void *src, size_t bytes);
