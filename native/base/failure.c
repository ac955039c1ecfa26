/* failure.c - reference-counted failures: a queue's thread passes them to the thread that waits for
** its tasks.
*/
#include <pthread.h>
#include "base/base.h"
#include "base/error_parts.h"
#include "base/failure.h"

struct failure {
  struct error_parts parts;
  int refs;
  /* Serial number of the report; 0 if not reported yet. */
  uint64_t reported;
  /* interrupt_epoch() when it happened. */
  uint64_t epoch;
  /* What `failure_anew` returned last, or NULL. Under anew_lock. */
  struct failure *anew;
};
static pthread_mutex_t anew_lock = PTHREAD_MUTEX_INITIALIZER;
/* Reports so far; atomic. */
static uint64_t nreported;
/* Used by all threads when there is no memory for another failure. */
static struct failure spare = { .refs = 1 << 30 };

struct failure *failure_take(int code)
{
  /* copied first: an allocation that fails overwrites it */
  const struct error_parts taken = *error_current();
  struct failure *f = NEW(struct failure);
  if (!f) {
    f = &spare;
    __atomic_store_n(&f->reported, 0, __ATOMIC_RELEASE);
    f->parts.code = code;
    return f;
  }
  *f = (struct failure){ .parts = taken, .refs = 1, .epoch = interrupt_epoch() };
  f->parts.code = code;
  return f;
}

void failure_add(struct failure *f, const char *format, ...)
{
  va_list a;
  size_t n = strlen(f->parts.message);
  if (f == &spare) return; /* shared, never freed */
  va_start(a, format);
  number_format(f->parts.message + n, sizeof f->parts.message - n, format, a);
  va_end(a);
}

struct failure *failure_keep(struct failure *f)
{
  if (f) __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  return f;
}

struct failure *failure_again(const struct failure *f)
{
  error_set(&f->parts);
  return failure_take(f->parts.code);
}

void failure_drop(struct failure *f)
{
  if (!f || f == &spare || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  failure_drop(f->anew);
  mem_free(f);
}

struct failure *failure_anew(struct failure *f, uint64_t moment)
{
  struct failure *old = NULL, *result;
  if (f == &spare) return failure_again(f);
  pthread_mutex_lock(&anew_lock);
  if (!f->anew || failure_reported_by(f->anew, moment)) {
    old = f->anew;
    f->anew = failure_again(f);
  }
  result = failure_keep(f->anew);
  pthread_mutex_unlock(&anew_lock);
  failure_drop(old);
  return result;
}

bool failure_is_interruption(const struct failure *f) { return f->parts.code == TY_EINTERRUPTED; }

/* Returns whether f is an interruption and the flag has been cleared since. */
static bool interruption_is_over(const struct failure *f)
{
  return failure_is_interruption(f) && f->epoch != interrupt_epoch();
}

bool failure_reported(const struct failure *f)
{
  return __atomic_load_n(&f->reported, __ATOMIC_ACQUIRE) || interruption_is_over(f);
}

uint64_t failures_reported(void) { return __atomic_load_n(&nreported, __ATOMIC_SEQ_CST); }

bool failure_reported_by(const struct failure *f, uint64_t moment)
{
  uint64_t reported = __atomic_load_n(&f->reported, __ATOMIC_ACQUIRE);
  return reported ? reported <= moment : interruption_is_over(f);
}

void failure_mark_reported(struct failure *f)
{
  if (__atomic_load_n(&f->reported, __ATOMIC_ACQUIRE)) return;
  uint64_t number = __atomic_add_fetch(&nreported, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&f->reported, number, __ATOMIC_RELEASE);
}

int failure_report(struct failure *f)
{
  struct error_parts p = f->parts;
  if (!*p.message) snprintf(p.message, sizeof p.message, "out of memory while a task failed");
  if (interruption_is_over(f)) {
    p.code = TY_ESTATE;
    snprintf(p.message, sizeof p.message,
        "the call that computes this array was interrupted, so it has no value; compute it again");
  }
  error_set(&p);
  failure_mark_reported(f);
  return p.code;
}
