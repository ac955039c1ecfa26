/* queue_state.h - the state of a queue, for the files that wait for its tasks (tickets.c), run them
** (queue.c), choose their order (overtaking.c) and complete them (passing.c). */
#pragma once
#include <pthread.h>
#include <sched.h>
#include "device/order.h"
#include "device/profile.h"
#include "device/queue.h"

enum {
  RING    = 1024,  /* slots of a queue; more than MAX_TASKS */
  SPIN_NS = 50000, /* how long a waiter polls before it sleeps */
  AHEAD   = 64     /* most tasks started before the first of them completes */
};

/* A submitted task. `list` is reused by later tasks of the slot. */
struct slot {
  struct task task;                                   /* `read` and `write` may point into `list` */
  struct access *list;                                /* copies of the reads, then of the writes */
  int cap;                                            /* of `list` */
  /* What it waits for; number k is at wait[k * RING], so that the first ones of all slots, which
  ** are all that most tasks need, are adjacent. */
  struct ticket *wait;
  int nwait;
  /* the device, not the thread, waits for some */
  bool awaits;
  uint64_t early;                                     /* atomic: its number if it has overtaken */
  uint64_t reported;                                  /* failures_reported() at submission */
  struct failure *failed;                             /* NULL: none so far */
};

/* What the tasks passed by a scan do with a storage (overtaking.c). */
struct noted_access {
  const struct storage *storage;
  uint32_t scan;                                      /* the scan that made this entry */
  bool written;
};

struct queue {
  int device;
  const struct device_ops *ops;
  const struct order_ops *order;                      /* NULL: the host waits */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;                                /* wakes the queue's thread; with `lock` */
  /* wakes threads that wait for tasks; with `lock` */
  pthread_cond_t past;
  /* atomic; written under the lock of submission */
  uint64_t submitted;
  uint64_t done;                                      /* atomic: tasks that have completed */
  uint64_t started;                                   /* atomic; written by the thread */
  uint64_t marked;                                    /* atomic: tasks that have left a mark */
  int sleeping;                                       /* atomic: the thread sleeps */
  int waiting;                                        /* atomic: threads that wait for `done` */
  int watching;                                       /* atomic: threads that wait for `started` */
  /* Smallest number any waiter needs; UINT64_MAX if none. Written under `lock`, read without. */
  uint64_t awaited;
  int64_t held;                                       /* atomic: sum of the tasks' `held` */
  int waits_for_ready;                                /* atomic: it is in queue_wait_ready */
  /* atomic: completed tasks of any queue since then */
  uint64_t ready_events;
  /* The table of the thread's scans, NULL before the first, and the number of the last one. */
  struct noted_access *accesses;
  uint32_t scan;
  /* the device is lost: why later tasks fail. For its thread only */
  struct failure *lost;
  struct slot slot[RING];
  struct ticket wait[SLOTS][RING];                    /* see slot.wait; most is never touched */
};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)

/* -- tickets.c --------------------------------------------------------------------------------- */

/* Queues by slot, read atomically. A queue is made at its first use and never freed. */
extern struct queue *queue_table[SLOTS];
/* Atomic: the process is ending; queues run nothing more and waits return. */
extern int queue_closing;
/* Atomic: how many queues wait until a task is ready. */
extern int queue_waiting_for_ready;
/* Tells the queues that wait until a task is ready that a task has completed. */
void queue_notify_ready(void);
static inline struct queue *queue_at(int device)
{
  return __atomic_load_n(&queue_table[device_slot(device)], __ATOMIC_ACQUIRE);
}

/* All functions below are called by the queue's own thread. */

/* -- overtaking.c ------------------------------------------------------------------------------ */

/* Returns whether tasks of the queue may run out of order at all. */
static inline bool queue_is_free(const struct queue *q) { return !q->ops->finish && !q->order; }
/* Returns whether task `seq` has overtaken the tasks before it. */
static inline bool queue_went_early(struct queue *q, uint64_t seq)
{
  return LOAD(q->slot[(seq - 1) % RING].early) == seq;
}
/* Returns the task to run next: the head, for which the caller may have to wait, or a later one
** that is ready. */
struct slot *queue_next(struct queue *q);
/* Returns the task that the head's `choose` selects among those that could run now, or the head. */
struct slot *queue_choose(struct queue *q, struct slot *head);

/* -- passing.c --------------------------------------------------------------------------------- */

/* Sets s->failed, unless it is set, if bytes that the task reads are broken. */
void queue_find_broken(struct queue *q, struct slot *s);
/* Marks the writes of a task as broken by its failure, or as written. */
void queue_mark_writes(struct slot *s);
/* Queues this thread's failure for device_wait, and returns it with a reference. If it has lost the
** device, all later tasks fail with it, so that errors name the culprit. starting: a task failed
** while it was started; else while the device was waited for. */
struct failure *queue_note_failure(struct queue *q, int code, bool starting);
/* If the queue's device is lost, appends to the text of f that nothing runs there any more, and
** returns true. late: the failure may be that of an earlier task. */
bool queue_add_lost(const struct queue *q, struct failure *f, bool late);
/* Completes a task that has overtaken the head. */
void queue_complete_early(struct queue *q, struct slot *s);
/* Counts the head, which was completed early, as completed. */
void queue_skip_completed(struct queue *q);
/* Waits for the device, and completes all started tasks. */
void queue_finish(struct queue *q);
/* Completes started tasks up to the one for which a thread waits. */
void queue_finish_awaited(struct queue *q);
/* Returns whether there is a task to start. */
bool queue_has_work(struct queue *q);
/* Waits for a task while the device is busy, and completes those that threads wait for. */
void queue_stay_ready(struct queue *q);
/* Sleeps until there is a task to start. */
void queue_sleep(struct queue *q);
