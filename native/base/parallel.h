/* parallel.h - work split over the cores of one device; the only place that knows OpenMP is
** parallel.c.
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
/* chunks of `grain`, then the rest */
void parallel_for(int64_t n, int64_t grain, parallel_fn body, void *context);
/* the same; leaves out chunks that have not begun when Ctrl-C asks (base/stop.h) */
void parallel_for_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context);
/* once per member */
void parallel_team(void (*body)(int member, int members, void *context), void *context);
/* members of this thread's team; on a thread that is no queue (scratch() at bind): the most any
** team may have */
int  parallel_threads(void);
int  parallel_index(void);                            /* this member, from 0 */
/* the cores are shared with one more queue, from now on */
void parallel_add_queue(void);
/* this thread is (no longer) a queue */
void parallel_queue(bool on);
/* what run returns; its regions have one member */
int  parallel_alone(int (*run)(void *context), void *context);
/* before a library that opens OpenMP regions itself: its teams are ours */
void parallel_library(void);
/* members of any team of this process, now or later, at most */
int  parallel_most(void);
/* likewise, for a question about other teams; then parallel_library() */
void parallel_library_of(int threads);
