/* small.h - freed small blocks, kept for the next ones of their size.
**
** Arrays and what belongs to them are freed thousands at a time, when a collector ends its cycle.
** The system's allocator joins such blocks and divides them again, a third of the time of a small
** call; here they wait in chains of their thread. Full chains go to other threads through a common
** list, so that what one thread makes and another frees comes back. Under a sanitizer nothing is
** kept. The bytes in use are counted here for the same reason: by each thread.
*/
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether blocks of so many bytes are kept. */
bool small_fits(size_t bytes);
/* Returns the bytes to ask the system for where `bytes` are wanted: those of a size that is kept,
** or as many. */
size_t small_size(size_t bytes);
/* Returns the bytes to ask the system for where the block must not be kept when it is freed. */
size_t small_beyond(size_t bytes);
/* Takes a kept block of small_size(bytes), zeroed; NULL: there is none. */
void *small_take(size_t bytes);
/* Keeps a block of so many usable bytes. Returns false if it is the caller's to free. */
bool small_keep(void *p, size_t usable);
/* Frees the blocks in the common list. Returns whether there were some. */
bool small_release(void);
/* Counts bytes as in use, or with a negative number as freed. */
void small_count(int64_t by);
/* Returns the bytes in use, to some 64 KiB for each other thread. */
int64_t small_counted(void);
