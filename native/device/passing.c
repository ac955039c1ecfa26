/* passing.c - completes started tasks; what a queue's thread does while there is no task to start.
**
** A CPU's task has ended when `run` returns. On other devices it has only been started; the queue's
** thread waits for them as late as possible and, if tasks leave marks, only up to the task that a
** waiter needs. Until then it starts further tasks, such as those of the next batch.
*/
#include "base/base.h"
#include "base/failure.h"
#include "device/queue_state.h"

enum { NAP_NS = 100000 };                             /* between two checks of a busy device */

/* -- failures ---------------------------------------------------------------------------------- */

/* Returns whether a task changes a lasting storage in place. If it is skipped, the storage keeps
** its old value, which counts as valid again once the failure is reported. */
static bool slot_changes_lasting(const struct slot *s)
{
  for (int i = 0; i < s->task.nwrite; i++) {
    const struct access *a = &s->task.write[i];
    if (a->in_place && __atomic_load_n(&a->storage->lasting, __ATOMIC_RELAXED)) return true;
  }
  return false;
}

void queue_find_broken(struct queue *q, struct slot *s)
{
  if (!storage_ever_failed()) return;
  for (int i = 0; i < s->task.nread && !s->failed; i++)
    s->failed = storage_failure_for(&s->task.read[i], s->reported);
  struct failure *f = s->failed;
  if (!f || !failure_reported_by(f, s->reported) || failure_is_interruption(f) ||
      !slot_changes_lasting(s))
    return;
  /* f was reported before, but not that this task is skipped */
  s->failed = failure_anew(f, s->reported);
  failure_drop(f);
  pending_add(q->device, s->failed);
}

void queue_mark_writes(struct slot *s)
{
  for (int i = 0; i < s->task.nwrite; i++) storage_mark(&s->task.write[i], s->failed);
}

bool queue_add_lost(const struct queue *q, struct failure *f, bool late)
{
  char name[32];
  if (!q->ops->lost || !q->ops->lost(q->device)) return false;
  device_name(q->device, name, sizeof name);
  if (late)
    failure_add(f, "; %s reports late: the failure is this step's or that of one before it, and "
        "TYCHO_SYNC=1 shows which", name);
  failure_add(f, "; nothing runs on %s until the program is started again", name);
  return true;
}

struct failure *queue_note_failure(struct queue *q, int code, bool starting)
{
  struct failure *f = failure_take(code);
  if (!q->lost && queue_add_lost(q, f, starting)) q->lost = failure_keep(f);
  pending_add(q->device, f);
  return f;
}

/* -- completion -------------------------------------------------------------------------------- */

/* Wakes all waiters. Those whose task has not completed set `awaited` again. */
static void queue_wake_waiters(struct queue *q)
{
  pthread_mutex_lock(&q->lock);
  STORE(q->awaited, UINT64_MAX);
  pthread_cond_broadcast(&q->past);
  pthread_mutex_unlock(&q->lock);
}

/* Calls the task's `done` and drops the queue's references. */
static void queue_release_task(struct queue *q, struct slot *s)
{
  const struct task *t = &s->task;
  if (t->done && !t->lasting) t->done(t->context);
  for (int i = 0; i < t->nread; i++) storage_free(t->read[i].storage);
  for (int i = 0; i < t->nwrite; i++) storage_free(t->write[i].storage);
  if (t->done && t->lasting) t->done(t->context);
  failure_drop(s->failed);
  __atomic_sub_fetch(&q->held, (int64_t)s->task.held, __ATOMIC_RELAXED);
}

/* Counts the head as completed, and wakes threads that wait for it. */
static void queue_count_completed(struct queue *q)
{
  STORE(q->done, q->done + 1);
  if (LOAD(q->waiting) && q->done >= LOAD(q->awaited)) queue_wake_waiters(q);
  if (LOAD(queue_waiting_for_ready)) queue_notify_ready();
}

static void queue_complete_task(struct queue *q, struct slot *s)
{
  queue_release_task(q, s);
  queue_count_completed(q);
}

void queue_complete_early(struct queue *q, struct slot *s)
{
  uint64_t seq =
      q->started + 1 + ((uint64_t)(s - q->slot) + RING - q->started % RING) % RING;
  queue_release_task(q, s);
  STORE(s->early, seq);
  if (LOAD(q->waiting)) queue_wake_waiters(q);
  if (LOAD(queue_waiting_for_ready)) queue_notify_ready();
}

void queue_skip_completed(struct queue *q)
{
  STORE(q->started, q->started + 1);
  queue_count_completed(q);
}

void queue_finish(struct queue *q)
{
  if (q->done == q->started) return;
  int code = q->ops->finish ? q->ops->finish(q->device) : TY_OK;
  struct failure *late = NULL;
  bool uncertain = false;
  if (code && q->lost)
    late = failure_keep(q->lost);
  else if (code)
    late = queue_note_failure(q, code, false);
  while (q->done < q->started) {
    struct slot *s = &q->slot[q->done % RING];
    if (late && !s->failed) { /* the failing task is not known: all started ones fail */
      s->failed = failure_keep(late);
      queue_mark_writes(s);
    }
    uncertain |= s->awaits;
    if (uncertain) {
      /* The device itself waited for other queues' tasks. Wait for those to complete; if one
      ** failed, mark this task's outputs as failed, and those of the tasks that read them. */
      for (int i = 0; i < s->nwait; i++) ticket_wait(s->wait[i * RING]);
      queue_find_broken(q, s);
      if (s->failed) queue_mark_writes(s);
    }
    queue_complete_task(q, s);
  }
  failure_drop(late);
}

bool queue_has_work(struct queue *q)
{
  return LOAD(q->submitted) != q->started || LOAD(queue_closing);
}

/* Returns whether the marks alone tell that all tasks up to number `to` have completed: none of
** them failed or depends on other devices. */
static bool queue_reaches_mark(struct queue *q, uint64_t to)
{
  if (!q->order || q->lost || to >= q->started) return false;
  for (uint64_t k = q->done; k < to; k++)
    if (q->slot[k % RING].awaits || q->slot[k % RING].failed) return false;
  int code = q->order->reach(q->device, to);
  if (code) failure_drop(failure_take(code));
  return !code;
}

void queue_finish_awaited(struct queue *q)
{
  uint64_t to = LOAD(q->awaited);
  if (to <= q->done)
    queue_wake_waiters(q);
  else if (to > q->started)
    sched_yield(); /* the task has not started, or `awaited` is not yet set */
  else if (!queue_reaches_mark(q, to))
    queue_finish(q);
  else
    while (q->done < to) queue_complete_task(q, &q->slot[q->done % RING]);
}

/* -- without work ------------------------------------------------------------------------------ */

void queue_stay_ready(struct queue *q)
{
  while (q->order && q->done != q->started && !queue_has_work(q)) {
    if (LOAD(q->waiting)) {
      queue_finish_awaited(q);
      continue;
    }
    if (!q->order->busy(q->device)) return;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NAP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&q->lock);
    STORE(q->sleeping, 1);
    if (!queue_has_work(q) && !LOAD(q->waiting)) pthread_cond_timedwait(&q->wake, &q->lock, &until);
    STORE(q->sleeping, 0);
    pthread_mutex_unlock(&q->lock);
  }
}

void queue_sleep(struct queue *q)
{
  for (int64_t until = profile_now() + SPIN_NS; profile_now() < until; sched_yield())
    if (queue_has_work(q)) return;
  pthread_mutex_lock(&q->lock);
  STORE(q->sleeping, 1);
  while (!queue_has_work(q)) pthread_cond_wait(&q->wake, &q->lock);
  STORE(q->sleeping, 0);
  pthread_mutex_unlock(&q->lock);
}
