/* queue.c - one thread per device that runs its tasks in the order of submission.
**
** Submission happens under one lock for all devices: it notes the task's tickets in its
** storages, and so all queues agree on one order, in which every task waits only for earlier
** ones. That lock is never held while anything waits. A task has passed (`done` >= its number)
** when it has run, its callback has returned and its storages are dropped; on the host it may pass
** before those in front of it (overtaking.c). Devices with a
** `finish` (streams) may have started more tasks than have passed: `ran` runs ahead of `done`
** (passing.c). Two of one kind wait for each other themselves, by marks that tasks leave behind
** what they have started: a thread waits only until the other has started its task.
**
** Locks, none taken inside another except as listed: order > queue.lock (to wake) and marks
** (failures.c), inline_lock (TYCHO_SYNC=1: everything runs
** under it, in the caller).
*/
#include <signal.h>
#include "base/parallel.h"
#include "base/system.h"
#include "base/failure.h"
#include "device/queue_state.h"

enum { DEEP = 1000, HELD = 64 << 20 };

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

/* Whether that is all of it. */
static bool start(struct queue *q, struct slot *s)
{
  s->failed = NULL;
  for (int i = 0; i < s->task.nread && !s->failed; i++)
    s->failed = storage_failure_for(&s->list[i], s->reported);
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

/* Until the other queue has started its task. */
static void wait_started(struct queue *q, struct queue *other, uint64_t seq)
{
  for (int64_t until = profile_now() + SPIN_NS; profile_now() < until; sched_yield())
    if (LOAD(other->ran) >= seq) return;
  queue_finish(q); /* the other queue may be waiting for one of ours */
  pthread_mutex_lock(&other->lock);
  __atomic_add_fetch(&other->watching, 1, __ATOMIC_SEQ_CST);
  while (LOAD(other->ran) < seq && !LOAD(queue_closing))
    pthread_cond_wait(&other->past, &other->lock);
  __atomic_sub_fetch(&other->watching, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&other->lock);
}

/* Has our device been told to wait for the other's? */
static bool device_waits(struct queue *q, struct ticket t)
{
  struct queue *other = queue_at(t.device);
  if (!q->order || other->order != q->order) return false;
  wait_started(q, other, t.seq);
  if (LOAD(other->marked) < t.seq) return false;
  int code = q->order->await(q->device, t);
  if (code) failure_drop(failure_take(code));
  return !code;
}

static void wait_others(struct queue *q, struct slot *s)
{
  s->awaits = false;
  for (int i = 0; i < s->nwait; i++) {
    struct ticket t = s->wait[i * RING];
    if (ticket_past(t)) continue;
    if (device_waits(q, t)) {
      s->awaits = true;
      continue;
    }
    queue_finish(q); /* the other queue may be waiting for one of ours */
    int64_t from = profiling(TY_PROFILE_SYMBOLIC) ? profile_now() : 0;
    ticket_wait(t);
    if (from) profile_wait(q->device, t.device, from);
  }
}

/* The next task has been started. It leaves a mark, for which others may have to wait; where it
** cannot, it passes at once. */
static void count_start(struct queue *q)
{
  uint64_t seq = q->ran + 1;
  int code = q->order ? q->order->mark(q->device, seq) : TY_OK;
  if (q->order && !code) STORE(q->marked, seq);
  STORE(q->ran, seq);
  if (code) {
    failure_drop(failure_take(code));
    queue_finish(q);
  }
  if (!LOAD(q->watching)) return;
  pthread_mutex_lock(&q->lock);
  pthread_cond_broadcast(&q->past);
  pthread_mutex_unlock(&q->lock);
}

static void *serve(void *context)
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
    if (queue_went_early(q, q->ran + 1)) {
      queue_pass_again(q);
      continue;
    }
    struct slot *head = &q->slot[q->ran % RING], *s = queue_next(q);
    wait_others(q, s);
    if (LOAD(queue_closing)) return NULL;
    if (s == head) s = queue_choose(q, head);
    if (!start(q, s)) continue;
    if (s != head) {
      queue_pass_early(q, s);
      continue;
    }
    count_start(q);
    if (!q->ops->finish || q->ran - q->done >= AHEAD)
      queue_finish(q);
    else if (LOAD(q->waiting))
      queue_finish_awaited(q);
  }
}

/* -- opening and closing ----------------------------------------------------------------------- */

/* Signals are for the host's threads: a queue's, and the team that it will start, block all. */
static int start_thread(struct queue *q)
{
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int code = device_sync() ? 0 : sys_thread(&q->thread, serve, q);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  NEED(!code, TY_EMEMORY, "cannot start the thread of a device: %s", strerror(code));
  return TY_OK;
}

static int make_queue(int device, struct queue **out)
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
  int code = start_thread(q);
  if (code) return mem_free(q), code;
  if (device_kind(q->device) == TY_CPU) parallel_add_queue();
  __atomic_store_n(&queue_table[device_slot(device)], q, __ATOMIC_RELEASE);
  *out = q;
  return TY_OK;
}

static int queue_of(int device, struct queue **out)
{
  static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
  if (has_memory(device)) TRY(device_open(device));
  if ((*out = queue_at(device))) return TY_OK;
  pthread_mutex_lock(&making);
  *out = queue_at(device);
  int code = *out ? TY_OK : make_queue(device, out);
  pthread_mutex_unlock(&making);
  return code;
}

static void stop_threads(void)
{
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

/* At exit, or when the library is unloaded: each queue ends its current task and no other. */
__attribute__((destructor)) static void close_queues(void)
{
  STORE(queue_closing, 1);
  if (!device_sync() && !sys_forked()) stop_threads();
  profile_close();
}

/* -- submission -------------------------------------------------------------------------------- */

/* Of one queue: the later one has passed first, perhaps. */
static struct ticket both_of(struct ticket a, struct ticket b)
{
  return (struct ticket){ a.device, MAX(a.seq, b.seq), a.whole || b.whole || a.seq != b.seq };
}

static void add_wait(struct slot *s, int own, struct ticket t)
{
  if (!t.seq || t.device == own || ticket_past(t)) return;
  for (int i = 0; i < s->nwait; i++) {
    struct ticket *w = &s->wait[i * RING];
    if (w->device != t.device) continue;
    *w = both_of(*w, t);
    return;
  }
  s->wait[s->nwait++ * RING] = t;
}

/* One place per reading device; when all are taken, the new reader waits for one of the others
** and stands for it. */
static void note_read(struct slot *s, struct storage *x, struct ticket own)
{
  add_wait(s, own.device, x->write);
  int at = -1;
  for (int i = 0; i < COUNT(x->read); i++)
    if (x->read[i].seq && x->read[i].device == own.device) at = i;
  for (int i = 0; at < 0 && i < COUNT(x->read); i++)
    if (ticket_past(x->read[i])) at = i;
  if (at < 0) add_wait(s, own.device, x->read[at = 0]);
  bool another = x->read[at].device == own.device && !ticket_past(x->read[at]);
  x->read[at] = another ? both_of(x->read[at], own) : own;
}

static void note_write(struct slot *s, struct storage *x, struct ticket own)
{
  add_wait(s, own.device, x->write);
  for (int i = 0; i < COUNT(x->read); i++) {
    add_wait(s, own.device, x->read[i]);
    x->read[i].seq = 0; /* who waits for this write waits for them */
  }
  x->write = own;
  __atomic_add_fetch(&x->version, 1, __ATOMIC_RELAXED);
}

static bool fill(struct slot *s, const struct task *t)
{
  int n = t->nread + t->nwrite;
  while (s->cap < n)
    if (!GROW(s->list, s->cap, s->cap)) return false;
  for (int i = 0; i < t->nread; i++) s->list[i] = t->read[i];
  for (int i = 0; i < t->nwrite; i++) s->list[t->nread + i] = t->write[i];
  for (int i = 0; i < n; i++) storage_keep(s->list[i].storage);
  s->task = *t;
  s->reported = failures_reported();
  s->nwait = 0;
  return true;
}

static void note(struct slot *s, const struct task *t, struct ticket own)
{
  for (int i = 0; i < t->nread; i++) note_read(s, t->read[i].storage, own);
  for (int i = 0; i < t->nwrite; i++) note_write(s, t->write[i].storage, own);
  for (int i = 0; i < t->nafter; i++) add_wait(s, own.device, t->after[i]);
}

/* Which task must pass before one more that holds so many bytes is taken; 0: none. A full queue
** is let run half empty: who waits then sleeps once for many tasks. */
static uint64_t too_much(struct queue *q, size_t held)
{
  uint64_t done = LOAD(q->done);
  if (q->submitted - done >= DEEP) return q->submitted - DEEP / 2;
  int64_t now = __atomic_load_n(&q->held, __ATOMIC_RELAXED);
  return now > 0 && now + (int64_t)held > HELD && q->submitted > done ? done + 1 : 0;
}

static int refuse(const struct task *t, int code)
{
  struct failure *f = failure_take(code); /* the callback may fail on its own */
  if (t->done) t->done(t->context);
  failure_report(f);
  failure_drop(f);
  return code;
}

static void wake_up(struct queue *q)
{
  if (!LOAD(q->sleeping)) return;
  pthread_mutex_lock(&q->lock);
  pthread_cond_signal(&q->wake);
  pthread_mutex_unlock(&q->lock);
}

/* held while a task of TYCHO_SYNC=1 runs in its caller's thread */
static pthread_mutex_t inline_lock;
static void make_inline_lock(void)
{
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&inline_lock, &a);
  pthread_mutexattr_destroy(&a);
}

/* Fails with what broke the bytes that a task reads. */
static int check_reads(const struct task *t)
{
  struct failure *f = NULL;
  for (int i = 0; i < t->nread && !f; i++) f = storage_failure(&t->read[i]);
  int code = f ? failure_report(f) : TY_OK;
  failure_drop(f);
  return code;
}

static int run_to_end(struct queue *q, const struct task *t)
{
  TRY(check_reads(t));
  if (device_kind(q->device) == TY_CPU) parallel_queue(true);
  int code = q->ops->enter ? q->ops->enter(q->device) : TY_OK;
  if (!code)
    do code = t->run(t->context);
    while (code == TASK_GOES_ON);
  if (!code && q->ops->finish) code = q->ops->finish(q->device);
  parallel_queue(false);
  return code;
}

/* Marks what a task has written, or not, and counts the writes. */
static void mark_written(const struct task *t, struct failure *f)
{
  for (int i = 0; i < t->nwrite; i++) {
    storage_mark(&t->write[i], f);
    storage_written(t->write[i].storage);
  }
}

/* Runs a task at once, in the caller's thread, which gets its failure. */
static int run_inline(struct queue *q, const struct task *t, struct ticket *out)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_inline_lock);
  pthread_mutex_lock(&inline_lock);
  int code = run_to_end(q, t);
  struct failure *f = code ? failure_take(code) : NULL;
  if (f) queue_say_lost(q, f, false);
  mark_written(t, f);
  STORE(q->submitted, q->submitted + 1);
  STORE(q->done, q->submitted);
  if (out) *out = (struct ticket){ q->device, q->submitted, false };
  if (t->done) t->done(t->context); /* may fail on its own */
  if (f) code = failure_report(f);
  failure_drop(f);
  pthread_mutex_unlock(&inline_lock);
  return code;
}

/* Under `order`: is the queue empty, and nothing else at work on the task's arrays? */
static bool nothing_before(struct queue *q, const struct task *t)
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

/* In the caller's thread, under `order`: nothing of any device begins meanwhile. Waking a thread
** would take longer. */
static void run_here(struct queue *q, const struct task *t)
{
  int code = parallel_alone(t->run, t->context);
  struct failure *f = code ? failure_take(code) : NULL;
  if (f) pending_add(q->device, f);
  mark_written(t, f);
  failure_drop(f);
}

static bool ran_here(struct queue *q, const struct task *t, struct ticket *out)
{
  if (!nothing_before(q, t)) return false;
  run_here(q, t);
  pthread_mutex_unlock(&order);
  if (t->done) t->done(t->context);
  if (out) *out = (struct ticket){ 0 };
  return true;
}

static int load_storages(const struct task *t)
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
  if (!code) code = load_storages(t);
  if (!code) code = queue_of(device, &q);
  if (code) return refuse(t, code);
  if (device_sync()) return run_inline(q, t, out);
  pthread_mutex_lock(&order);
  if (t->small && ran_here(q, t, out)) return TY_OK;
  for (uint64_t until; (until = too_much(q, t->held));) {
    pthread_mutex_unlock(&order);
    ticket_wait((struct ticket){ q->device, until, true });
    pthread_mutex_lock(&order);
  }
  struct slot *s = &q->slot[q->submitted % RING];
  if (LOAD(queue_closing) || !fill(s, t)) {
    pthread_mutex_unlock(&order);
    return refuse(t, LOAD(queue_closing) ? fail(TY_ESTATE, "the process is ending") : TY_EMEMORY);
  }
  struct ticket own = { q->device, q->submitted + 1, false };
  note(s, t, own);
  __atomic_add_fetch(&q->held, (int64_t)t->held, __ATOMIC_RELAXED);
  STORE(q->submitted, own.seq);
  wake_up(q);
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

static int drain(struct queue *q)
{
  const struct ticket last = { q->device, LOAD(q->submitted), true };
  ticket_wait(last);
  return ticket_past(last) ? TY_OK : sys_have_threads();
}

int device_wait(int device)
{
  if (device >= 0) {
    if (has_memory(device)) TRY(device_open(device));
    if (queue_at(device)) TRY(drain(queue_at(device)));
    return pending_report(slot_device(device_slot(device)));
  }
  for (int i = 0; i < SLOTS; i++)
    if (queue_at(slot_device(i))) TRY(drain(queue_at(slot_device(i))));
  return pending_report(-1);
}
