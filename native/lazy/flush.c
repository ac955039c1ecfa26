/* flush.c - submits backlogs: when a storage is read or written, when a pending call loses its
** last reference, when a thread ends, and when a front end asks for it. */
#include "lazy/flush.h"
#include "lazy/trace.h"

int backlog_run(void)
{
  int code = TY_OK;
  backlog_lock();
  for (struct backlog *t = backlog_first(); t && !code; t = t->next)
    if (t->n) code = trace_run_backlog(t);
  backlog_unlock();
  return code;
}

/* Serves as history_drop_pending. */
static bool drop_pending(struct history *h)
{
  bool needed = false;                                /* an array has an output of the call */
  backlog_lock();
  for (int i = 0; i < h->nout && !h->view; i++)
    needed |= __atomic_load_n(&h->out[i].storage->refs, __ATOMIC_ACQUIRE) > 1;
  if (!needed) {
    backlog_remove(h);
    backlog_unlock();
    return true;
  }
  h->refs = 1;
  const int code = backlog_run();
  if (code) failure_drop(failure_take(code)); /* a reader of the promised value tries again */
  if (h->backlog) backlog_remove(h);
  backlog_unlock();
  history_drop(h);
  return false;
}

/* Serves as storage_settle: submits all backlogs, and computes the value of s again if it was not
** kept. s may be NULL. */
static int settle_storage(struct storage *s)
{
  backlog_lock();
  int code = backlog_run();
  if (!code && s && s->source == &storage_promise) code = trace_run_again(s);
  backlog_unlock();
  return code;
}

/* Serves as storage_settle_reads: submits the calls that read s before s is written. Fails where a
** call that reads it waits for a late value, unless a run is being submitted, which writes
** in order. */
static int settle_reads(struct storage *s)
{
  backlog_lock();
  int code = backlog_run();
  const bool awaited = __atomic_load_n(&s->awaited, __ATOMIC_RELAXED) > 0;
  if (!code && awaited && !trace_submitting) code = backlog_fail_waiting("writing to an array");
  backlog_unlock();
  return code;
}

/* Submits and frees the backlog of a thread that ends, since others may need its results. */
static void end_thread(void *backlog)
{
  struct backlog *t = backlog;
  backlog_lock();
  int code = t->n ? trace_run_backlog(t) : TY_OK;
  if (code) failure_drop(failure_take(code));
  backlog_free(t);
  backlog_unlock();
}

int ty_lazy_enable(int on)
{
  const int code = on ? TY_OK : backlog_run();
  if (code) failure_drop(failure_take(code));
  return backlog_enable(on != 0);
}

int ty_lazy_run(void) { return backlog_run(); }

__attribute__((constructor)) static void register_backlogs(void)
{
  backlog_begin(end_thread);
  history_drop_pending = drop_pending;
  storage_settle = settle_storage;
  storage_settle_reads = settle_reads;
}
