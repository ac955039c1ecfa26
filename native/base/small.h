/* small.h - a cache of freed small blocks, by size, for memory.c.
**
** When a garbage collector ends its cycle, arrays and their parts are freed by thousands. The
** system's allocator would join such blocks and divide them again, which took a third of the time
** of a small call; here each thread keeps them in chains. Full chains go to a common list, so that
** blocks made by one thread and freed by another come back. Under a sanitizer nothing is kept. The
** bytes in use are counted per thread, which is as cheap.
*/
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether blocks of this size are kept. */
bool small_fits(size_t bytes);
/* Returns `bytes` rounded up to a size that is kept, or unchanged if it is too large for that: what
** to ask the system for. */
size_t small_size(size_t bytes);
/* Returns the bytes to ask the system for where the block must not be kept when it is freed. */
size_t small_beyond(size_t bytes);
/* Returns a kept block of small_size(bytes), zeroed; NULL: there is none. */
void *small_take(size_t bytes);
/* Keeps a block of `usable` bytes. Returns false if the caller has to free it. */
bool small_keep(void *p, size_t usable);
/* Frees the blocks in the common list. Returns whether there were any. */
bool small_release(void);
/* Counts bytes as in use, or with a negative number as freed. */
void small_count(int64_t by);
/* Returns the bytes in use, with an error of up to 64 KiB per other thread. */
int64_t small_counted(void);
