/* queue_state.h - a queue from inside, for the files that wait for its tasks (tickets.c), run them
** (queue.c), choose their order (overtaking.c) and complete them (passing.c). */
#pragma once
#include <pthread.h>
#include <sched.h>
#include "device/order.h"
#include "device/profile.h"
#include "device/queue.h"

enum {
  RING    = 1024,  /* slots of a queue */
  SPIN_NS = 50000, /* how long a waiter checks before it sleeps */
  AHEAD   = 64     /* tasks that are started before the first of them completes, at most */
};

/* A submitted task; its list stays allocated. */
struct slot {
  struct task task;                                   /* its `read` and `write` may be in `list` */
  struct access *list;                                /* reads, then writes, that were copied */
  int cap;                                            /* of `list` */
  /* Number k is at wait[k * RING]: most tasks wait for one queue or none. */
  struct ticket *wait;
  int nwait;
  bool awaits;                                        /* the device waits for some of them */
  uint64_t early;                                     /* atomic: its number, if it ran early */
  uint64_t reported;                                  /* failures, when it was submitted */
  struct failure *failed;                             /* NULL: none so far */
};

/* What the tasks that a scan has passed do with a storage (overtaking.c). */
struct noted_access {
  const struct storage *storage;
  uint32_t scan;                                      /* the scan that has made the entry */
  bool written;
};

struct queue {
  int device;
  const struct device_ops *ops;
  const struct order_ops *order;                      /* NULL: the host waits */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;                                /* under `lock`: for the queue's thread */
  /* under `lock`: for those that wait for its tasks */
  pthread_cond_t past;
  uint64_t submitted;                                 /* atomic; written under `order` */
  uint64_t done;                                      /* atomic: tasks that have completed */
  uint64_t started;                                   /* atomic; written by the thread */
  uint64_t marked;                                    /* atomic: have left a mark on the device */
  int sleeping;                                       /* atomic: the thread sleeps */
  int waiting;                                        /* atomic: threads that wait for `done` */
  int watching;                                       /* atomic: threads that wait for `started` */
  /* Smallest number any waiter needs; UINT64_MAX if none. Written under `lock`, read without. */
  uint64_t awaited;
  int64_t held;                                       /* atomic: bytes that only tasks keep alive */
  int waits_for_ready;                                /* atomic: in queue_wait_ready or about to */
  uint64_t ready_events;                              /* atomic: completions since it waits */
  /* The table of the thread's scans, NULL before the first, and the number of the last one. */
  struct noted_access *accesses;
  uint32_t scan;
  struct failure *lost;                               /* later tasks fail so; the thread's own */
  struct slot slot[RING];
  struct ticket wait[SLOTS][RING];                    /* of all slots; most is never touched */
};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)

/* -- tickets.c --------------------------------------------------------------------------------- */

/* Queues by slot, read atomically. Each is made at its first use and never freed. */
extern struct queue *queue_table[SLOTS];
/* Atomic: the process ends; nothing runs or waits any more. */
extern int queue_closing;
/* How many queues wait for a task that is ready; atomic. */
extern int queue_waiting_for_ready;
/* Wakes the queues that wait for a task that is ready: one has completed. */
void queue_notify_ready(void);
static inline struct queue *queue_at(int device)
{
  return __atomic_load_n(&queue_table[device_slot(device)], __ATOMIC_ACQUIRE);
}

/* All below are for the queue's own thread. */

/* -- overtaking.c ------------------------------------------------------------------------------ */

/* Returns whether tasks of the queue may run out of order at all. */
static inline bool queue_is_free(const struct queue *q) { return !q->ops->finish && !q->order; }
/* Returns whether task `seq` has run before those in front of it. */
static inline bool queue_went_early(struct queue *q, uint64_t seq)
{
  return LOAD(q->slot[(seq - 1) % RING].early) == seq;
}
/* Returns the task to run next: the head, which may have to wait, or a later one that need not. */
struct slot *queue_next(struct queue *q);
/* Returns the task that the head's `choose` takes of those that could run now, or the head. */
struct slot *queue_choose(struct queue *q, struct slot *head);

/* -- passing.c --------------------------------------------------------------------------------- */

/* Notes what broke the bytes that a task reads, if anything has and it has not failed yet. */
void queue_find_broken(struct queue *q, struct slot *s);
/* Marks what the task writes with its failure, or as written. */
void queue_mark_writes(struct slot *s);
/* Takes this thread's failure for device_wait, and returns it with a reference. If it has lost the
** device, all later tasks fail with it: that names the culprit. starting: the task that failed was
** being started, else the device was waited for. */
struct failure *queue_note_failure(struct queue *q, int code, bool starting);
/* Adds to f, if it has lost the queue's device, that nothing runs there any more; returns
** whether it has. late: f may be that of an earlier task. */
bool queue_add_lost(const struct queue *q, struct failure *f, bool late);
/* Completes a task that has run before the head. */
void queue_complete_early(struct queue *q, struct slot *s);
/* Counts the head as completed, which has run early. */
void queue_skip_completed(struct queue *q);
/* Completes all tasks that were started; waits for the device. */
void queue_finish(struct queue *q);
/* Completes started tasks up to the one that a thread waits for. */
void queue_finish_awaited(struct queue *q);
bool queue_has_work(struct queue *q);
/* Waits without work while the device is busy, and completes what threads wait for. */
void queue_stay_ready(struct queue *q);
/* Waits until there is work. */
void queue_sleep(struct queue *q);
