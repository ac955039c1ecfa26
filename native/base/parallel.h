/* parallel.h - work split over the cores of one device; only parallel.c uses OpenMP.
**
** Only queue threads open regions. A region's team is constant: cores / CPU queues opened. The
** split into chunks depends on n and grain alone, never on the number of threads, so that sums
** have equal bits on any machine. Less than about 20 us of work should be one chunk (n <=
** grain): it then runs inline. A region inside a region, or on any other thread, runs inline:
** same chunks, one member.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef void (*parallel_fn)(int64_t begin, int64_t end, void *context);
/* Calls body for chunks of `grain`, the last one of the rest. */
void parallel_for(int64_t n, int64_t grain, parallel_fn body, void *context);
/* As parallel_for; leaves out chunks that have not begun when Ctrl-C asks to stop (base/stop.h). */
void parallel_for_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context);
/* Calls body once per member. */
void parallel_team(void (*body)(int member, int members, void *context), void *context);
/* Returns the members of this thread's team; on a thread that is no queue (scratch() at bind): the
** most that any team may have. */
int  parallel_threads(void);
/* Returns the number of this member, from 0. */
int  parallel_index(void);
/* Shares the cores with one more queue, from now on. */
void parallel_add_queue(void);
/* Makes this thread a queue's thread, or no longer one. */
void parallel_queue(bool on);
/* Calls run with regions of one member. Returns what it returns. */
int  parallel_alone(int (*run)(void *context), void *context);
/* Gives a library that opens OpenMP regions itself teams of parallel_threads(). Call before it. */
void parallel_library(void);
/* Returns the most members that a team of this process can have, now or later. */
int  parallel_most(void);
/* Does as parallel_library, for teams of another size; call parallel_library() afterwards. */
void parallel_library_of(int threads);
