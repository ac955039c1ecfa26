/* failures.c - what failed in tasks and was not told yet: the list of it, for device_wait, and the
** marks that failed tasks leave on what they should have written. */
#include <pthread.h>
#include "base/failure.h"
#include "device/queue.h"

/* of the list, and of all marks */
static pthread_mutex_t marks = PTHREAD_MUTEX_INITIALIZER;

enum { PENDING = 64 };
/* in order of occurrence, for device_wait */
static struct { int device; struct failure *failure; } pending[PENDING];
static int npending;

static void forget(int i)
{
  failure_drop(pending[i].failure);
  memmove(&pending[i], &pending[i + 1], sizeof pending[0] * (size_t)(--npending - i));
}

/* beyond 64 that nobody asks for, the first ones say enough */
void pending_add(int device, struct failure *f)
{
  pthread_mutex_lock(&marks);
  for (int i = npending - 1; i >= 0; i--)
    if (failure_told(pending[i].failure)) forget(i);
  if (npending < PENDING) {
    pending[npending].device = device;
    pending[npending++].failure = failure_keep(f);
  }
  pthread_mutex_unlock(&marks);
}

/* Tells the first failure of the device (-1: any) and forgets its later ones: one wait, one
** error. */
int pending_tell(int device)
{
  int code = TY_OK;
  pthread_mutex_lock(&marks);
  for (int i = 0; i < npending;) {
    struct failure *f = pending[i].failure;
    if (device >= 0 && pending[i].device != device) {
      i++;
      continue;
    }
    if (!failure_told(f)) {
      if (code)
        failure_void(f);
      else
        code = failure_tell(f);
    }
    forget(i);
  }
  pthread_mutex_unlock(&marks);
  return code;
}

void storage_mark(struct storage *s, struct failure *f) /* NULL: unmark */
{
  if (!f && !__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) return;
  pthread_mutex_lock(&marks);
  struct failure *old = s->failed;
  __atomic_store_n(&s->failed, failure_keep(f), __ATOMIC_RELEASE);
  pthread_mutex_unlock(&marks);
  failure_drop(old);
}

struct failure *storage_marked_for(const struct storage *s, uint64_t told)
{
  if (!__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) return NULL;
  pthread_mutex_lock(&marks);
  bool counts = s->failed && !failure_told_by(s->failed, told);
  struct failure *f = counts ? failure_keep(s->failed) : NULL;
  pthread_mutex_unlock(&marks);
  return f;
}

struct failure *storage_marked(const struct storage *s)
{
  return storage_marked_for(s, UINT64_MAX);
}

bool storage_failed(const struct storage *s)
{
  struct failure *f = storage_marked(s);
  failure_drop(f);
  return f != NULL;
}
