/* queue.c - one thread per device that runs its tasks in the order of submission.
**
** One lock for all devices, `order`, is held during submission, while the task's tickets are noted
** in its storages. So all queues agree on one order, in which every task waits only for earlier
** ones. Nothing waits while it holds that lock. A task has completed (`done` >= its number) when it
** has run, its callback has returned and its storages are dropped; on the host it may complete
** before earlier ones (overtaking.c). A device with a `finish` (streams) may have started more
** tasks than have completed: `started` is ahead of `done` (passing.c). Devices of one kind wait for
** each other by marks that tasks leave after the work they have started; the queue's thread only
** waits until the other queue has started the task.
**
** Locks: order, then queue.lock (to wake a thread) or marks_lock (failures.c). inline_lock is held
** while TYCHO_SYNC=1 runs a task in the caller.
*/
#include <signal.h>
#include "base/parallel.h"
#include "base/system.h"
#include "base/failure.h"
#include "device/queue_state.h"

enum {
  MAX_TASKS      = 1000,     /* most tasks of a queue that have not completed */
  MAX_HELD_BYTES = 64 << 20  /* most bytes that only these keep alive */
};

void (*device_closing)(void);
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

bool device_sync(void)
{
  static int sync = -1;
  int s = __atomic_load_n(&sync, __ATOMIC_RELAXED);
  if (s < 0) __atomic_store_n(&sync, s = env_number("TYCHO_SYNC", 0) != 0, __ATOMIC_RELAXED);
  return s;
}

/* -- a queue's thread -------------------------------------------------------------------------- */

/* Runs a task, or skips it if bytes that it reads are broken. Returns false if it has to run
** again. */
static bool queue_run_task(struct queue *q, struct slot *s)
{
  s->failed = NULL;
  queue_find_broken(q, s);
  if (!s->failed && q->lost) {
    s->failed = failure_again(q->lost);
    pending_add(q->device, s->failed);
  }
  int code = s->failed ? TY_OK : s->task.run(s->task.context);
  if (code == TASK_GOES_ON) return false;
  if (code) s->failed = queue_note_failure(q, code, true);
  queue_mark_writes(s);
  return true;
}

/* Makes the device wait for another device's task. Returns false if it cannot: the caller has to
** wait. */
static bool queue_await_on_device(struct queue *q, struct ticket t)
{
  struct queue *other = queue_at(t.device);
  if (!q->order || other->order != q->order) return false;
  /* wait until the other queue has started the task */
  int64_t until = profile_now() + SPIN_NS;
  while (LOAD(other->started) < t.seq && profile_now() < until) sched_yield();
  if (LOAD(other->started) < t.seq) {
    queue_finish(q); /* the other queue may be waiting for a task of q */
    pthread_mutex_lock(&other->lock);
    __atomic_add_fetch(&other->watching, 1, __ATOMIC_SEQ_CST);
    while (LOAD(other->started) < t.seq && !LOAD(queue_closing))
      pthread_cond_wait(&other->past, &other->lock);
    __atomic_sub_fetch(&other->watching, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&other->lock);
  }
  if (LOAD(other->marked) < t.seq) return false;
  int code = q->order->await(q->device, t);
  if (code) failure_drop(failure_take(code));
  return !code;
}

/* Waits for the tasks of other queues that a task needs, or makes the device wait for them. */
static void queue_wait_others(struct queue *q, struct slot *s)
{
  s->awaits = false;
  for (int i = 0; i < s->nwait; i++) {
    struct ticket t = s->wait[i * RING];
    if (ticket_past(t)) continue;
    if (queue_await_on_device(q, t)) {
      s->awaits = true;
      continue;
    }
    queue_finish(q); /* the other queue may be waiting for a task of q */
    int64_t from = profile_is_on(TY_PROFILE_SYMBOLIC) ? profile_now() : 0;
    ticket_wait(t);
    if (from) profile_wait(q->device, t.device, from);
  }
}

/* Counts the head as started and leaves a mark, for which others may wait. If that fails, it waits
** for the device at once. */
static void queue_count_started(struct queue *q)
{
  uint64_t seq = q->started + 1;
  int code = q->order ? q->order->mark(q->device, seq) : TY_OK;
  if (q->order && !code) STORE(q->marked, seq);
  STORE(q->started, seq);
  if (code) {
    failure_drop(failure_take(code));
    queue_finish(q);
  }
  if (!LOAD(q->watching)) return;
  pthread_mutex_lock(&q->lock);
  pthread_cond_broadcast(&q->past);
  pthread_mutex_unlock(&q->lock);
}

/* Runs as the thread of a queue. */
static void *queue_serve(void *context)
{
  struct queue *q = context;
  if (device_kind(q->device) == TY_CPU) parallel_queue(true);
  if (q->ops->enter) q->ops->enter(q->device);
  for (;;) {
    if (!queue_has_work(q)) queue_stay_ready(q);
    if (!queue_has_work(q)) {
      queue_finish(q);
      queue_sleep(q);
    }
    if (LOAD(queue_closing)) return NULL;
    if (queue_went_early(q, q->started + 1)) {
      queue_skip_completed(q);
      continue;
    }
    struct slot *head = &q->slot[q->started % RING], *s = queue_next(q);
    queue_wait_others(q, s);
    if (LOAD(queue_closing)) return NULL;
    if (s == head) s = queue_choose(q, head);
    if (!queue_run_task(q, s)) continue;
    if (s != head) {
      queue_complete_early(q, s);
      continue;
    }
    queue_count_started(q);
    if (!q->ops->finish || q->started - q->done >= AHEAD)
      queue_finish(q);
    else if (LOAD(q->waiting))
      queue_finish_awaited(q);
  }
}

/* -- opening and closing ----------------------------------------------------------------------- */

/* Makes the queue of a device and starts its thread. */
static int queue_new(int device, struct queue **out)
{
  struct queue *q = NEW(struct queue);
  NEED(q, TY_EMEMORY, "out of memory");
  q->device = slot_device(device_slot(device));
  q->ops = queue_ops(device);
  q->order = queue_order_ops(device);
  q->awaited = UINT64_MAX;
  for (int i = 0; i < RING; i++) q->slot[i].wait = &q->wait[0][i];
  pthread_mutex_init(&q->lock, NULL);
  pthread_cond_init(&q->wake, NULL);
  pthread_cond_init(&q->past, NULL);
  /* Signals go to the program's own threads: this one, and the team that it will start, block
  ** all. */
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int code = device_sync() ? 0 : sys_thread(&q->thread, queue_serve, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (code) {
    mem_free(q);
    return fail(TY_EMEMORY, "cannot start the thread of a device: %s", strerror(code));
  }
  if (device_kind(q->device) == TY_CPU) parallel_add_queue();
  __atomic_store_n(&queue_table[device_slot(device)], q, __ATOMIC_RELEASE);
  *out = q;
  return TY_OK;
}

/* Finds the queue of a device, or makes it. */
static int queue_get(int device, struct queue **out)
{
  static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
  if (has_memory(device)) TRY(device_open(device));
  if ((*out = queue_at(device))) return TY_OK;
  pthread_mutex_lock(&making);
  *out = queue_at(device);
  int code = *out ? TY_OK : queue_new(device, out);
  pthread_mutex_unlock(&making);
  return code;
}

/* Lets each queue finish only its current task. Runs at exit, or when the library is unloaded. */
__attribute__((destructor)) static void queue_close_all(void)
{
  STORE(queue_closing, 1);
  if (!device_sync() && !sys_forked()) {
    if (device_closing) device_closing();
    ty_interrupt(1);
    for (int i = 0; i < SLOTS; i++) {
      struct queue *q = queue_table[i];
      if (!q) continue;
      pthread_mutex_lock(&q->lock);
      pthread_cond_broadcast(&q->wake);
      pthread_cond_broadcast(&q->past);
      pthread_mutex_unlock(&q->lock);
    }
    for (int i = 0; i < SLOTS; i++)
      if (queue_table[i] && !pthread_equal(queue_table[i]->thread, pthread_self()))
        sys_join(queue_table[i]->thread);
  }
  parallel_close();
  profile_close();
}

/* -- submission -------------------------------------------------------------------------------- */

/* Returns a ticket that waits for two tasks of one queue, of which the later one may complete
** first. */
static struct ticket ticket_join(struct ticket a, struct ticket b)
{
  return (struct ticket){ a.device, MAX(a.seq, b.seq), a.whole || b.whole || a.seq != b.seq };
}

/* Makes a task of queue `own` wait for a ticket as well. */
static void slot_add_wait(struct slot *s, int own, struct ticket t)
{
  if (!t.seq || t.device == own || ticket_past(t)) return;
  for (int i = 0; i < s->nwait; i++) {
    struct ticket *w = &s->wait[i * RING];
    if (w->device != t.device) continue;
    *w = ticket_join(*w, t);
    return;
  }
  s->wait[s->nwait++ * RING] = t;
}

/* Notes task `own` as a reader of a storage. A storage has few entries, one per reading device; if
** all are taken, the new reader waits for one of the others and takes its entry. */
static void slot_note_read(struct slot *s, struct storage *x, struct ticket own)
{
  slot_add_wait(s, own.device, x->write);
  int at = -1;
  for (int i = 0; i < COUNT(x->read); i++)
    if (x->read[i].seq && x->read[i].device == own.device) at = i;
  for (int i = 0; at < 0 && i < COUNT(x->read); i++)
    if (ticket_past(x->read[i])) at = i;
  if (at < 0) slot_add_wait(s, own.device, x->read[at = 0]);
  bool another = x->read[at].device == own.device && !ticket_past(x->read[at]);
  x->read[at] = another ? ticket_join(x->read[at], own) : own;
}

/* Notes task `own` as the writer of a storage. */
static void slot_note_write(struct slot *s, struct storage *x, struct ticket own)
{
  slot_add_wait(s, own.device, x->write);
  for (int i = 0; i < COUNT(x->read); i++) {
    slot_add_wait(s, own.device, x->read[i]);
    x->read[i].seq = 0; /* waiting for this write includes waiting for them */
  }
  x->write = own;
  __atomic_add_fetch(&x->version, 1, __ATOMIC_RELAXED);
}

/* Copies a task into a slot, and adds references to its storages. Returns false if out of memory.
** Lasting lists are not copied: for a deep network that would take longer than the rest of the
** submission. */
static bool slot_fill(struct slot *s, const struct task *t)
{
  int n = t->lasting ? 0 : t->nread + t->nwrite;
  while (s->cap < n)
    if (!GROW(s->list, s->cap, s->cap)) return false;
  s->task = *t;
  if (!t->lasting) {
    for (int i = 0; i < t->nread; i++) s->list[i] = t->read[i];
    for (int i = 0; i < t->nwrite; i++) s->list[t->nread + i] = t->write[i];
    s->task.read = s->list;
    s->task.write = s->list + t->nread;
  }
  for (int i = 0; i < t->nread; i++) storage_keep(t->read[i].storage);
  for (int i = 0; i < t->nwrite; i++) storage_keep(t->write[i].storage);
  s->reported = failures_reported();
  s->nwait = 0;
  return true;
}

/* Returns the task that must complete before another one, which holds `held` bytes, is accepted; 0:
** none. A full queue has to become half empty, so that the submitter sleeps once for many tasks. */
static uint64_t queue_find_obstacle(struct queue *q, size_t held)
{
  uint64_t done = LOAD(q->done);
  if (q->submitted - done >= MAX_TASKS) return q->submitted - MAX_TASKS / 2;
  int64_t now = __atomic_load_n(&q->held, __ATOMIC_RELAXED);
  return now > 0 && now + (int64_t)held > MAX_HELD_BYTES && q->submitted > done ? done + 1 : 0;
}

/* Calls `done` of a task that is not accepted, and returns code with its failure set. */
static int task_reject(const struct task *t, int code)
{
  struct failure *f = failure_take(code); /* the callback may set another failure */
  if (t->done) t->done(t->context);
  failure_report(f);
  failure_drop(f);
  return code;
}

/* Held while a task runs in its caller's thread under TYCHO_SYNC=1. Recursive. */
static pthread_mutex_t inline_lock;
static void inline_lock_init(void)
{
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&inline_lock, &a);
  pthread_mutexattr_destroy(&a);
}

/* Runs a task in the caller's thread and waits until the device has completed it. Fails if bytes
** that it reads are broken, with the cause. */
static int task_run_to_end(struct queue *q, const struct task *t)
{
  struct failure *f = NULL;
  for (int i = 0; i < t->nread && !f; i++) f = storage_failure(&t->read[i]);
  if (f) {
    int broken = failure_report(f);
    failure_drop(f);
    return broken;
  }
  if (device_kind(q->device) == TY_CPU) parallel_queue(true);
  int code = q->ops->enter ? q->ops->enter(q->device) : TY_OK;
  if (!code)
    do code = t->run(t->context);
    while (code == TASK_GOES_ON);
  if (!code && q->ops->finish) code = q->ops->finish(q->device);
  parallel_queue(false);
  return code;
}

/* Marks the writes of a task as broken by f, or with NULL as written, and counts them. */
static void task_mark_written(const struct task *t, struct failure *f)
{
  for (int i = 0; i < t->nwrite; i++) {
    storage_mark(&t->write[i], f);
    storage_written(t->write[i].storage);
  }
}

/* Runs a task at once in the caller's thread, and returns its failure. */
static int queue_run_inline(struct queue *q, const struct task *t, struct ticket *out)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, inline_lock_init);
  pthread_mutex_lock(&inline_lock);
  int code = task_run_to_end(q, t);
  struct failure *f = code ? failure_take(code) : NULL;
  if (f) queue_add_lost(q, f, false);
  task_mark_written(t, f);
  STORE(q->submitted, q->submitted + 1);
  STORE(q->done, q->submitted);
  if (out) *out = (struct ticket){ q->device, q->submitted, false };
  if (t->done) t->done(t->context); /* may set another failure */
  if (f) code = failure_report(f);
  failure_drop(f);
  pthread_mutex_unlock(&inline_lock);
  return code;
}

/* Returns whether the queue is empty and no task uses the storages of t. Call under `order`. */
static bool queue_is_idle_for(struct queue *q, const struct task *t)
{
  if (q->ops->finish || LOAD(q->done) != q->submitted || LOAD(queue_closing)) return false;
  for (int i = 0; i < t->nafter; i++)
    if (!ticket_past(t->after[i])) return false;
  for (int i = 0; i < t->nread; i++)
    if (!ticket_past(t->read[i].storage->write) || storage_failed(&t->read[i])) return false;
  for (int i = 0; i < t->nwrite; i++) {
    const struct storage *x = t->write[i].storage;
    if (!ticket_past(x->write)) return false;
    for (int k = 0; k < COUNT(x->read); k++)
      if (!ticket_past(x->read[k])) return false;
  }
  return true;
}

/* Runs a small task in the caller's thread, since waking a thread would take longer. Call under
** `order`, which is held meanwhile, so that no task is submitted. Returns false if the task has to
** be queued; else `order` is released. */
static bool queue_try_small(struct queue *q, const struct task *t, struct ticket *out)
{
  if (!queue_is_idle_for(q, t)) return false;
  int code = parallel_alone(t->run, t->context);
  struct failure *f = code ? failure_take(code) : NULL;
  if (f) pending_add(q->device, f);
  task_mark_written(t, f);
  failure_drop(f);
  pthread_mutex_unlock(&order);
  if (t->done) t->done(t->context);
  if (out) *out = (struct ticket){ 0 };
  return true;
}

/* Loads the storages of a task, and submits pending work that has to precede its writes. */
static int task_load_storages(const struct task *t)
{
  for (int i = 0; i < t->nread; i++) TRY(storage_load(t->read[i].storage));
  for (int i = 0; i < t->nwrite; i++) {
    TRY(storage_load(t->write[i].storage));
    TRY(storage_before_write(t->write[i].storage));
  }
  return TY_OK;
}

int device_submit(int device, const struct task *t, struct ticket *out)
{
  struct queue *q;
  int code = sys_have_threads();
  if (!code) code = task_load_storages(t);
  if (!code) code = queue_get(device, &q);
  if (code) return task_reject(t, code);
  if (device_sync()) return queue_run_inline(q, t, out);
  pthread_mutex_lock(&order);
  if (t->small && queue_try_small(q, t, out)) return TY_OK;
  for (uint64_t until; (until = queue_find_obstacle(q, t->held));) {
    pthread_mutex_unlock(&order);
    ticket_wait((struct ticket){ q->device, until, true });
    pthread_mutex_lock(&order);
  }
  struct slot *s = &q->slot[q->submitted % RING];
  if (LOAD(queue_closing) || !slot_fill(s, t)) {
    pthread_mutex_unlock(&order);
    return task_reject(
        t, LOAD(queue_closing) ? fail(TY_ESTATE, "the process is ending") : TY_EMEMORY);
  }
  struct ticket own = { q->device, q->submitted + 1, false };
  for (int i = 0; i < t->nread; i++) slot_note_read(s, t->read[i].storage, own);
  for (int i = 0; i < t->nwrite; i++) slot_note_write(s, t->write[i].storage, own);
  for (int i = 0; i < t->nafter; i++) slot_add_wait(s, own.device, t->after[i]);
  __atomic_add_fetch(&q->held, (int64_t)t->held, __ATOMIC_RELAXED);
  STORE(q->submitted, own.seq);
  if (LOAD(q->sleeping)) {
    pthread_mutex_lock(&q->lock);
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
  }
  pthread_mutex_unlock(&order);
  if (out) *out = own;
  return TY_OK;
}

/* -- waiting ----------------------------------------------------------------------------------- */

void storage_wait_quiet(struct storage *s, int for_write)
{
  struct ticket t[1 + COUNT(s->read)];
  pthread_mutex_lock(&order);
  t[0] = s->write;
  memcpy(t + 1, s->read, sizeof s->read);
  pthread_mutex_unlock(&order);
  for (int i = 0; i < (for_write ? COUNT(t) : 1); i++) ticket_wait(t[i]);
}

int storage_wait(const struct access *a, int for_write)
{
  struct storage *s = a->storage;
  TRY(storage_load(s));
  if (for_write) TRY(storage_before_write(s));
  int64_t from = profile_begin();
  storage_wait_quiet(s, for_write);
  profile_call(for_write ? "wait_to_write" : "wait_to_read", from);
  if (!ticket_past(s->write)) TRY(sys_have_threads());
  struct failure *f = storage_failure(a);
  if (!f) return TY_OK;
  int code = failure_report(f);
  failure_drop(f);
  return code;
}

void storage_written(struct storage *s)
{
  __atomic_add_fetch(&s->version, 1, __ATOMIC_RELAXED);
}

/* Waits until all tasks of a queue have completed. */
static int queue_drain(struct queue *q)
{
  const struct ticket last = { q->device, LOAD(q->submitted), true };
  ticket_wait(last);
  return ticket_past(last) ? TY_OK : sys_have_threads();
}

int device_wait(int device)
{
  if (device >= 0) {
    if (has_memory(device)) TRY(device_open(device));
    if (queue_at(device)) TRY(queue_drain(queue_at(device)));
    return pending_report(slot_device(device_slot(device)));
  }
  for (int i = 0; i < SLOTS; i++)
    if (queue_at(slot_device(i))) TRY(queue_drain(queue_at(slot_device(i))));
  return pending_report(-1);
}
