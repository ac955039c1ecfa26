/* failures.c - failures of tasks: a list of those not reported yet, for device_wait, and marks on
** the bytes that failed tasks should have written.
**
** A storage has one mark: the newest failure, and one range that covers all broken bytes. A write
** at an end of the range shortens it, so that neighbouring arrays in a storage can be broken or
** valid independently.
*/
#include <pthread.h>
#include "base/failure.h"
#include "device/queue.h"

/* Guards the list and all marks. */
static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;

/* Most failures kept for device_wait; further ones are dropped. */
enum { MAX_PENDING = 64 };
/* In order of occurrence. */
static struct { int device; struct failure *failure; } pending[MAX_PENDING];
static int npending;

/* Removes entry i from the list. Call under the lock. */
static void pending_forget(int i)
{
  failure_drop(pending[i].failure);
  memmove(&pending[i], &pending[i + 1], sizeof pending[0] * (size_t)(--npending - i));
}

void pending_add(int device, struct failure *f)
{
  bool known = false;
  pthread_mutex_lock(&marks_lock);
  for (int i = npending - 1; i >= 0; i--)
    if (failure_reported(pending[i].failure))
      pending_forget(i);
    else
      known |= pending[i].failure == f;
  if (npending < MAX_PENDING && !known) {
    pending[npending].device = device;
    pending[npending++].failure = failure_keep(f);
  }
  pthread_mutex_unlock(&marks_lock);
}

int pending_report(int device)
{
  int code = TY_OK;
  pthread_mutex_lock(&marks_lock);
  for (int i = 0; i < npending;) {
    struct failure *f = pending[i].failure;
    if (device >= 0 && pending[i].device != device) {
      i++;
      continue;
    }
    if (!failure_reported(f)) {
      if (code)
        failure_mark_reported(f);
      else
        code = failure_report(f);
    }
    pending_forget(i);
  }
  pthread_mutex_unlock(&marks_lock);
  return code;
}

/* -- marks ------------------------------------------------------------------------------------- */

/* Returns where an access ends; one of no bytes counts as one byte. */
static size_t access_get_end(const struct access *a) { return MAX(a->end, a->begin + 1); }

/* Removes written bytes from the broken range. Returns the failure, for the caller to drop, if the
** range is empty now; else NULL. Call under the lock. */
static struct failure *storage_clear_failed(struct storage *s, const struct access *a)
{
  struct failure *f = s->failed;
  const bool front = a->begin <= s->failed_begin, back = access_get_end(a) >= s->failed_end;
  if (front && back) {
    __atomic_store_n(&s->failed, NULL, __ATOMIC_RELEASE);
    return f;
  }
  if (front) s->failed_begin = MAX(s->failed_begin, access_get_end(a));
  if (back) s->failed_end = MIN(s->failed_end, a->begin);
  return NULL;
}

/* Widens the broken range to cover an access that failed with f. Call under the lock. */
static void storage_widen_failed(struct storage *s, const struct access *a, const struct failure *f)
{
  const bool lasting = __atomic_load_n(&s->lasting, __ATOMIC_RELAXED);
  const bool once = a->in_place && (lasting || failure_is_interruption(f));
  const bool counts = s->failed && !(s->failed_once && failure_reported(s->failed));
  s->failed_once = once && (!counts || s->failed_once);
  s->failed_begin = counts ? MIN(s->failed_begin, a->begin) : a->begin;
  s->failed_end = counts ? MAX(s->failed_end, access_get_end(a)) : access_get_end(a);
}

static bool ever_failed;                              /* atomic */

bool storage_ever_failed(void) { return __atomic_load_n(&ever_failed, __ATOMIC_ACQUIRE); }

void storage_mark(const struct access *a, struct failure *f)
{
  struct storage *s = a->storage;
  if (f) __atomic_store_n(&ever_failed, true, __ATOMIC_RELEASE);
  if (!f && !__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&marks_lock);
  struct failure *old = s->failed;
  if (f) {
    storage_widen_failed(s, a, f);
    __atomic_store_n(&s->failed, failure_keep(f), __ATOMIC_RELEASE);
  }
  else if (old)
    old = storage_clear_failed(s, a);
  pthread_mutex_unlock(&marks_lock);
  failure_drop(old);
}

struct failure *storage_failure_for(const struct access *a, uint64_t reported)
{
  const struct storage *s = a->storage;
  if (!__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) return NULL;
  pthread_mutex_lock(&marks_lock);
  struct failure *f = s->failed;
  if (f && (a->begin >= s->failed_end || access_get_end(a) <= s->failed_begin)) f = NULL;
  if (f && s->failed_once && failure_reported_by(f, reported)) f = NULL;
  failure_keep(f);
  pthread_mutex_unlock(&marks_lock);
  return f;
}

struct failure *storage_failure(const struct access *a)
{
  return storage_failure_for(a, UINT64_MAX);
}

bool storage_failed(const struct access *a)
{
  struct failure *f = storage_failure(a);
  failure_drop(f);
  return f != NULL;
}
