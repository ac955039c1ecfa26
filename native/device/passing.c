/* passing.c - how tasks that a queue's thread has started pass, and what it does without work.
**
** A CPU's task has ended when `run` returns. Other devices have begun it by then; the thread waits
** for them as late as it may, and where each task leaves a mark, no further than somebody asks: it
** is free for what comes meanwhile, such as the next batch.
*/
#include "base/base.h"
#include "device/queue_state.h"

enum { NAP_NS = 100000 };

/* -- failures ---------------------------------------------------------------------------------- */

void queue_mark_writes(struct slot *s)
{
  for (int i = s->task.nread; i < s->task.nread + s->task.nwrite; i++)
    storage_mark(&s->list[i], s->failed);
}

bool queue_say_lost(const struct queue *q, struct failure *f, bool late)
{
  char name[32];
  if (!q->ops->lost || !q->ops->lost(q->device)) return false;
  device_name(q->device, name, sizeof name);
  if (late)
    failure_add(f, "; %s reports late: the failure is this step's or that of one before it, and "
        "TYCHO_SYNC=1 tells whose", name);
  failure_add(f, "; nothing runs on %s until the program is started again", name);
  return true;
}

/* A device that is lost fails whatever comes as it failed first: that names the culprit. */
struct failure *queue_note_failure(struct queue *q, int code, bool starting)
{
  struct failure *f = failure_take(code);
  if (!q->lost && queue_say_lost(q, f, starting)) q->lost = failure_keep(f);
  pending_add(q->device, f);
  return f;
}

/* -- passing ----------------------------------------------------------------------------------- */

/* Who waits for tasks that have passed wakes; who is not there yet says so again. */
static void wake_waiters(struct queue *q)
{
  pthread_mutex_lock(&q->lock);
  STORE(q->awaited, UINT64_MAX);
  pthread_cond_broadcast(&q->past);
  pthread_mutex_unlock(&q->lock);
}

static void let_go(struct queue *q, struct slot *s)
{
  if (s->task.done) s->task.done(s->task.context);
  for (int i = 0; i < s->task.nread + s->task.nwrite; i++) storage_free(s->list[i].storage);
  failure_drop(s->failed);
  __atomic_sub_fetch(&q->held, (int64_t)s->task.held, __ATOMIC_RELAXED);
}

static void count_pass(struct queue *q)
{
  STORE(q->done, q->done + 1);
  if (LOAD(q->waiting) && q->done >= LOAD(q->awaited)) wake_waiters(q);
  if (LOAD(queue_listening)) queue_tell_news();
}

static void pass(struct queue *q, struct slot *s)
{
  let_go(q, s);
  count_pass(q);
}

void queue_pass_early(struct queue *q, struct slot *s)
{
  uint64_t seq = q->ran + 1 + ((uint64_t)(s - q->slot) + RING - q->ran % RING) % RING;
  let_go(q, s);
  STORE(s->early, seq);
  if (LOAD(q->waiting)) wake_waiters(q);
  if (LOAD(queue_listening)) queue_tell_news();
}

void queue_pass_again(struct queue *q)
{
  STORE(q->ran, q->ran + 1);
  count_pass(q);
}

/* Behind its device's work: tasks for which the device waited have to pass as well. What became of
** them is known only then, and holds for what was made of it since. */
static void settle(struct slot *s)
{
  for (int i = 0; i < s->nwait; i++) ticket_wait(s->wait[i * RING]);
  for (int i = 0; i < s->task.nread && !s->failed; i++)
    s->failed = storage_failure_for(&s->list[i], s->reported);
  if (s->failed) queue_mark_writes(s);
}

/* Lets what was started pass. A device that reports its failures late fails all of it. */
void queue_finish(struct queue *q)
{
  if (q->done == q->ran) return;
  int code = q->ops->finish ? q->ops->finish(q->device) : TY_OK;
  struct failure *late = NULL;
  bool uncertain = false;
  if (code && q->lost)
    late = failure_keep(q->lost);
  else if (code)
    late = queue_note_failure(q, code, false);
  while (q->done < q->ran) {
    struct slot *s = &q->slot[q->done % RING];
    if (late && !s->failed) {
      s->failed = failure_keep(late);
      queue_mark_writes(s);
    }
    uncertain |= s->awaits;
    if (uncertain) settle(s);
    pass(q, s);
  }
  failure_drop(late);
}

bool queue_has_work(struct queue *q) { return LOAD(q->submitted) != q->ran || LOAD(queue_closing); }

/* What the device says of each task alone, up to number `to`: nothing went wrong, and nothing hangs
** on what other devices do. */
static bool reaches(struct queue *q, uint64_t to)
{
  if (!q->order || q->lost || to >= q->ran) return false;
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
    wake_waiters(q);
  else if (to > q->ran)
    sched_yield(); /* not started, or about to be said */
  else if (!reaches(q, to))
    queue_finish(q);
  else
    while (q->done < to) pass(q, &q->slot[q->done % RING]);
}

/* Until there is work, somebody waits, or some time has passed. */
static void nap(struct queue *q)
{
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

/* While a device works on what was started, its thread is there for what comes next. */
void queue_stay_ready(struct queue *q)
{
  while (q->order && q->done != q->ran && !queue_has_work(q)) {
    if (LOAD(q->waiting))
      queue_finish_awaited(q);
    else if (q->order->busy(q->device))
      nap(q);
    else
      return;
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
