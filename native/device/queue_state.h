/* queue_state.h - a queue from inside, for what its thread starts (queue.c) and lets pass
** (passing.c). */
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
  struct storage **list;                              /* reads, then writes */
  int cap;
  /* number k at wait[k * RING]: most tasks wait for one queue or none */
  struct ticket *wait;
  int nwait;
  bool awaits;                                        /* the device waits for some of them */
  uint64_t told;                                      /* failures, when it was submitted */
  struct failure *failed;                             /* what became of it */
};

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
  struct failure *lost;                               /* after it all fail; the thread's own */
  struct slot slot[RING];
  struct ticket wait[SLOTS][RING];                    /* of all slots: memory that few ever touch */
};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), v, __ATOMIC_SEQ_CST)

/* atomic: the process ends; nothing runs or waits any more */
extern int queue_closing;

/* All of these on the queue's own thread. */
void queue_mark_writes(struct slot *s);
struct failure *queue_note_failure(struct queue *q, int code);
/* all that was started passes; as much as somebody waits for */
void queue_finish(struct queue *q);
void queue_finish_awaited(struct queue *q);
bool queue_has_work(struct queue *q);
/* without work: while the device is busy; until there is some */
void queue_stay_ready(struct queue *q);
void queue_sleep(struct queue *q);
