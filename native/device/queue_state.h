/* queue_state.h - a queue from inside, for what its thread starts (queue.c), in which order
** (overtaking.c), and lets pass (passing.c). */
#pragma once
#include <pthread.h>
#include <sched.h>
#include "device/order.h"
#include "device/profile.h"
#include "device/queue.h"

enum { RING = 1024, SPIN_NS = 50000, AHEAD = 64 };

/* a submitted task; its lists stay allocated */
struct slot {
  struct task task;
  struct access *list;                                /* reads, then writes */
  int cap;
  /* number k at wait[k * RING]: most tasks wait for one queue or none */
  struct ticket *wait;
  int nwait;
  bool awaits;                                        /* the device waits for some of them */
  uint64_t early;                                     /* atomic: its number, if it passed early */
  uint64_t reported;                                  /* failures, when it was submitted */
  struct failure *failed;                             /* NULL: none so far */
};

/* what a look at the tasks behind the head has met so far: storages, by their addresses */
struct touched { const struct storage *storage; uint32_t look; bool written; };

struct queue {
  int device;
  const struct device_ops *ops;
  const struct order_ops *order;                      /* NULL: the host waits */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake, past;
  /* atomic; `submitted` is written under `order` only */
  uint64_t submitted, done;
  /* atomic; the thread's own: tasks up to here have been started; have left a mark on the device */
  uint64_t ran, marked;
  /* atomic: the thread sleeps; somebody waits for `done` */
  int sleeping, waiting;
  int watching;                                       /* atomic: somebody waits for `ran` */
  /* atomic: to get here; written under the lock */
  uint64_t awaited;
  int64_t held;                                       /* atomic: bytes that only tasks keep alive */
  /* atomic: it waits for news, that something has passed; how often there were any */
  int listens;
  uint64_t news;
  /* of all looks; the thread's own; NULL: there was none so far */
  struct touched *touched;
  uint32_t look;
  struct failure *lost;                               /* after it all fail; the thread's own */
  struct slot slot[RING];
  struct ticket wait[SLOTS][RING];                    /* of all slots: memory that few ever touch */
};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)

/* tickets.c */
/* By slot; atomic; made at first use, never freed. */
extern struct queue *queue_table[SLOTS];
/* Atomic: the process ends; nothing runs or waits any more. */
extern int queue_closing;
/* How many queues listen; atomic. */
extern int queue_listening;
/* Tells queues that listen that something has passed. */
void queue_tell_news(void);
static inline struct queue *queue_at(int device)
{
  return __atomic_load_n(&queue_table[device_slot(device)], __ATOMIC_ACQUIRE);
}

/* All of these on the queue's own thread. */

/* overtaking.c. May this queue's tasks run out of order at all? */
static inline bool queue_is_free(const struct queue *q) { return !q->ops->finish && !q->order; }
static inline bool queue_went_early(struct queue *q, uint64_t seq)
{
  return LOAD(q->slot[(seq - 1) % RING].early) == seq;
}
/* The task to run next: the head, which may have to wait, or one behind it that need not. */
struct slot *queue_next(struct queue *q);
/* Of messages that could run now, the one that is chosen. */
struct slot *queue_choose(struct queue *q, struct slot *head);

void queue_mark_writes(struct slot *s);
/* starting: the task that failed was being started, else the device was waited for */
struct failure *queue_note_failure(struct queue *q, int code, bool starting);
/* Adds to f, where it has lost the queue's device, that nothing runs there any more; returns
** whether it has. late: f may be that of an earlier task. */
bool queue_say_lost(const struct queue *q, struct failure *f, bool late);
/* one behind the head passes; the head does, which has passed early */
void queue_pass_early(struct queue *q, struct slot *s);
void queue_pass_again(struct queue *q);
/* all that was started passes; as much as somebody waits for */
void queue_finish(struct queue *q);
void queue_finish_awaited(struct queue *q);
bool queue_has_work(struct queue *q);
/* without work: while the device is busy; until there is some */
void queue_stay_ready(struct queue *q);
void queue_sleep(struct queue *q);
