/* stream_copy.h - copies with stores that bypass the caches, for results that would not fit there:
** the old contents of their lines are not read. */
#pragma once
#include "base/base.h"

/* Returns whether a copy of this size has more bytes than half of the last-level cache. */
bool stream_copy_profitable(size_t bytes);
/* Copies as memcpy does; fastest if dst is a multiple of 16. */
void stream_copy(void *dst, const void *src, size_t bytes);
