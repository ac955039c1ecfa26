/* stream_copy.h - stores that pass by the caches, for results that would not stay there: the old
** contents are not fetched. */
#pragma once
#include "base/base.h"

bool bypass_pays(size_t bytes);                       /* more than half of the last cache */
/* as memcpy; fastest where dst is a multiple of 16 */
void bypass_copy(void *dst, const void *src, size_t bytes);
