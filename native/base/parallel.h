/* parallel.h - splits work over the cores.
**
** Only threads of queues run parallel regions, with a team of (cores / CPU queues opened) members.
** Work is split into chunks by n and the estimated cost of a unit alone, never by the number of
** threads or a clock, so that sums have equal bits on any machine. Work of one chunk runs inline.
** Inside another region, or on any other thread, the caller runs all chunks itself, in order.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of a chunk. Starting a team takes about 20 us, so two chunks are the least for which
** it pays. */
#define PARALLEL_CHUNK_NS 10000.0

typedef void (*parallel_fn)(int64_t begin, int64_t end, void *context);
/* Calls body for all chunks of n units, and returns after the last call. ns: nanoseconds of a unit
** on one core, estimated from shapes and constants (kernel/grain.h) and never measured at run time,
** since some kernels make a partial sum per chunk. */
void parallel_for(int64_t n, double ns, parallel_fn body, void *context);
/* Does the same, but skips chunks that have not begun when Ctrl-C asks to stop (stop.h). */
void parallel_for_stoppable(int64_t n, double ns, parallel_fn body, void *context);
/* Do the same with chunks of `grain` units, for callers that choose the chunks. */
void parallel_chunks(int64_t n, int64_t grain, parallel_fn body, void *context);
void parallel_chunks_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context);
/* Returns the number of members of this thread's team; on a thread that is not a queue's (scratch()
** at bind), the most that any team may have. */
int  parallel_threads(void);
/* Returns which member of its team this thread is, from 0. */
int  parallel_index(void);
/* Counts one more CPU queue, with which the cores are shared from now on. */
void parallel_add_queue(void);
/* Declares that this thread is (on) or is no longer (off) a queue's. */
void parallel_queue(bool on);
/* Ends the threads of all teams. Call it when no thread is in a region, and none enters one
** again. */
void parallel_close(void);
/* Calls run(context) with teams of one member. Returns its result. */
int  parallel_alone(int (*run)(void *context), void *context);
/* Sets the team size of a library that opens OpenMP regions itself (oneDNN) to parallel_threads().
** Call it before each call of the library. */
void parallel_library(void);
/* Returns the most members that a team of this process will ever have. */
int  parallel_most(void);
/* Does as parallel_library for another team size; call parallel_library() afterwards. */
void parallel_library_set(int threads);
