/* backlog.c - see backlog.h. */
#include <pthread.h>
#include "device/queue.h"
#include "lazy/kept.h"
#include "lazy/recording.h"

enum { MOST_CALLS = 10000 };                          /* in a backlog; TYCHO_LAZY_OPS sets it */
/* A backlog is full where its calls read more bytes than LEAST_HELD, and more than a SHARE_HELD-th
** of all bytes in use: it keeps these arrays alive. */
enum { LEAST_HELD = 64 << 20 };
enum { SHARE_HELD = 4 };

static struct backlog *backlogs;                      /* of all threads */
static _Thread_local struct backlog *own;             /* this thread's; NULL: not made yet */
static pthread_mutex_t lock;
static pthread_key_t thread_end;

void backlog_lock(void) { pthread_mutex_lock(&lock); }
void backlog_unlock(void) { pthread_mutex_unlock(&lock); }

static int enabled = -1;                              /* -1: TYCHO_LAZY was not read yet */

bool backlog_enabled(void)
{
  if (enabled < 0) enabled = env_number("TYCHO_LAZY", 1) != 0;
  return enabled;
}

bool backlog_enable(bool on)
{
  const bool before = backlog_enabled();
  enabled = on;
  return before;
}

struct backlog *backlog_own(void)
{
  if (own || !(own = NEW(struct backlog))) return own;
  pthread_setspecific(thread_end, own);
  backlog_lock();
  own->next = backlogs;
  backlogs = own;
  backlog_unlock();
  return own;
}

/* -- what a backlog reads and makes ------------------------------------------------------------ */

static bool changes_input(const struct history *h, int i)
{
  return h->call->ports.in[i].mutated;
}

static struct storage *input_storage(const struct history_input *in)
{
  return in->array ? in->array->storage : in->from->out[in->out].storage;
}

/* Marks what a call reads as awaited, and the arrays that it changes as promised. */
static void await_inputs(struct backlog *backlog, const struct history *h)
{
  for (int i = 0; i < h->nin; i++) {
    struct storage *s = input_storage(&h->in[i]);
    if (__atomic_fetch_add(&s->awaited, 1, __ATOMIC_RELAXED) == 0 && s->data)
      backlog->held += (int64_t)s->bytes;
    if (h->in[i].array && changes_input(h, i))
      __atomic_store_n(&s->source, &storage_promise, __ATOMIC_RELEASE);
  }
}

/* Undoes what await_inputs did for a call. */
static void release_inputs(struct backlog *backlog, const struct history *h)
{
  for (int i = 0; i < h->nin; i++) {
    struct storage *s = input_storage(&h->in[i]);
    if (__atomic_sub_fetch(&s->awaited, 1, __ATOMIC_RELAXED)) continue;
    if (s->data) backlog->held -= (int64_t)s->bytes;
    if (h->in[i].array && changes_input(h, i))
      __atomic_store_n(&s->source, NULL, __ATOMIC_RELEASE);
  }
}

const char *backlog_line(struct backlog *backlog, const struct cached_call *call)
{
  struct recording *r = thread_recording();
  const struct kept *latest = backlog->latest,
                    *k = backlog->n ? backlog->guess : latest ? latest->next : NULL;
  const int at = k ? k->ndone + backlog->n : 0;
  const bool same = k && at < k->ncall && cached_call_same(k->call[at], call) &&
      (backlog->n || k->where[at] == r->where);
  backlog->guess = same ? (struct kept *)k : NULL;
  r->line.missed = !same && !r->line.wanted;
  r->line.wanted = !same;
  return same ? k->where[at] : r->where;
}

void backlog_forget(const struct kept *k)
{
  for (struct backlog *t = backlogs; t; t = t->next) {
    if (t->latest == k) t->latest = NULL;
    if (t->guess == k) t->guess = NULL;
  }
}

/* Returns the bytes of a pending call's outputs that arrays have. */
static int64_t count_visible_bytes(const struct history *h)
{
  int64_t bytes = 0;
  for (int i = 0; i < h->nout && !h->view; i++) {
    const struct storage *s = h->out[i].storage;
    if (__atomic_load_n(&s->refs, __ATOMIC_RELAXED) > 1) bytes += (int64_t)s->bytes;
  }
  return bytes;
}

bool backlog_other_mode(const struct backlog *backlog, bool training)
{
  return backlog->n &&
      (backlog->training != training || backlog->precision != precision_now());
}

void backlog_set_mode(struct backlog *backlog, bool training)
{
  backlog->training = training;
  backlog->precision = precision_now();
}

void backlog_add(struct backlog *backlog, struct history *h)
{
  h->backlog = backlog;
  h->before = backlog->last;
  if (backlog->last) backlog->last->after = h;
  else backlog->first = h;
  backlog->last = h;
  backlog->n++;
  backlog->late += h->late;
  await_inputs(backlog, h);
  if (h->changes) history_keep(h); /* it has to run even if all of its results are dropped */
}

void backlog_remove(struct history *h)
{
  struct backlog *backlog = h->backlog;
  release_inputs(backlog, h);
  if (!--backlog->n) backlog->held = 0;
  backlog->late -= h->late;
  if (h->before) h->before->after = h->after;
  else backlog->first = h->after;
  if (h->after) h->after->before = h->before;
  else backlog->last = h->before;
  h->backlog = NULL;
  h->before = h->after = NULL;
  if (h->changes) history_drop(h);
}

bool backlog_full(const struct backlog *backlog)
{
  static int64_t most_calls = -1;
  if (most_calls < 0) most_calls = MAX(1, env_number("TYCHO_LAZY_OPS", MOST_CALLS));
  if (backlog->late) return false; /* submitting it would leave the calls that wait */
  return backlog->n >= most_calls ||
      (backlog->held > LEAST_HELD && backlog->held > *ty_live_at("bytes") / SHARE_HELD);
}

/* Returns whether an input reads bytes that a failure has broken, or the result of a pending call
** that is marked as broken. */
static bool reads_broken(const struct history_input *in)
{
  struct storage *s = input_storage(in);
  if (!in->array && in->from->backlog && in->from->broken) return true;
  if (!__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) return false;
  const struct access all = access_all(s);
  return storage_failed(&all);
}

bool backlog_mark_broken(struct backlog *backlog)
{
  bool any = false;
  bool ordered = false;                               /* some call changes an input */
  if (!storage_ever_failed()) return false;
  for (struct history *h = backlog->first; h; h = h->after) {
    h->broken = false;
    for (int i = 0; i < h->nin; i++) h->broken |= reads_broken(&h->in[i]);
    any |= h->broken;
    ordered |= h->changes;
  }
  return any && !ordered;
}

bool backlog_reads_waiting(const struct history *h)
{
  bool waits = false;
  for (int i = 0; i < h->nin; i++) {
    const struct history *from = h->in[i].array ? NULL : h->in[i].from;
    waits |= from && from->backlog && from->waits;
  }
  return waits;
}

bool backlog_mark_waiting(struct backlog *backlog)
{
  if (!backlog->late) return false;
  for (struct history *h = backlog->first; h; h = h->after)
    h->waits = h->late || backlog_reads_waiting(h);
  return true;
}

int backlog_fail_waiting(const char *what)
{
  return fail(TY_ESTATE,
      "%s: recorded calls wait for a value of another device, which was not given yet; make the "
      "calls of all devices first", what);
}

bool backlog_elsewhere(const struct backlog *backlog)
{
  for (const struct backlog *t = backlogs; t; t = t->next)
    if (t != backlog && t->n) return true;
  return false;
}

struct backlog *backlog_first(void) { return backlogs; }

void backlog_free(struct backlog *backlog)
{
  struct backlog **at = &backlogs;
  while (backlog->first) backlog_remove(backlog->first);
  while (*at != backlog) at = &(*at)->next;
  *at = backlog->next;
  mem_free(backlog);
}

int64_t ty_lazy_bytes(void)
{
  const struct backlog *t = backlog_own();
  int64_t bytes = 0;
  backlog_lock();
  for (const struct history *h = t ? t->first : NULL; h; h = h->after)
    bytes += count_visible_bytes(h);
  backlog_unlock();
  return bytes;
}

void backlog_begin(void (*end_thread)(void *backlog))
{
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
  pthread_key_create(&thread_end, end_thread);
}
