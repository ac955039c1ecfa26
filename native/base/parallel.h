/* parallel.h - work split over the cores of one device.
**
** Only queue threads open regions. A region's team is constant: cores / CPU queues opened. The
** split into chunks depends on n and the estimated cost of a unit alone, never on the number of
** threads or on a clock, so that sums have equal bits on any machine. Work of one chunk runs
** inline. A region inside a region, or on any other thread, runs inline: same chunks, one member.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of a chunk: a team starts in some 20 us, so two chunks are about the least that is
** worth one. */
#define PARALLEL_CHUNK_NS 10000.0

typedef void (*parallel_fn)(int64_t begin, int64_t end, void *context);
/* Calls body for chunks of n units, the last one of the rest. ns: what one unit takes on one core,
** estimated from shapes and constants (kernel/grain.h), never measured at run time: some kernels
** add up by chunks. */
void parallel_for(int64_t n, double ns, parallel_fn body, void *context);
/* Does as parallel_for; leaves out chunks that have not begun when Ctrl-C asks to stop (stop.h). */
void parallel_for_stoppable(int64_t n, double ns, parallel_fn body, void *context);
/* Does as both, with chunks of `grain` units, where the caller has cut the work itself. */
void parallel_chunks(int64_t n, int64_t grain, parallel_fn body, void *context);
void parallel_chunks_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context);
/* Returns the members of this thread's team; on a thread that is no queue (scratch() at bind): the
** most that any team may have. */
int  parallel_threads(void);
/* Returns the number of this member, from 0. */
int  parallel_index(void);
/* Shares the cores with one more queue, from now on. */
void parallel_add_queue(void);
/* Makes this thread a queue's thread, or no longer one. */
void parallel_queue(bool on);
/* Ends the threads of all teams. No thread is in a region, and none enters one from now on. */
void parallel_close(void);
/* Calls run with regions of one member. Returns what it returns. */
int  parallel_alone(int (*run)(void *context), void *context);
/* Gives a library that opens OpenMP regions itself teams of parallel_threads(). Call before it. */
void parallel_library(void);
/* Returns the most members that a team of this process can have, now or later. */
int  parallel_most(void);
/* Does as parallel_library, for teams of another size; call parallel_library() afterwards. */
void parallel_library_set(int threads);
