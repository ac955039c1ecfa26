/* interrupt.c - see interrupt.h. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include "base/base.h"

static int interrupt, watchers;
static uint64_t epoch; /* atomic: how often the flag has been cleared */
static struct sigaction before;
static pthread_mutex_t watch = PTHREAD_MUTEX_INITIALIZER;

bool interrupt_pending(void) { return __atomic_load_n(&interrupt, __ATOMIC_RELAXED); }

uint64_t interrupt_epoch(void) { return __atomic_load_n(&epoch, __ATOMIC_ACQUIRE); }

int ty_interrupt(int set)
{
  int was = __atomic_exchange_n(&interrupt, set != 0, __ATOMIC_ACQ_REL);
  if (was && !set) __atomic_add_fetch(&epoch, 1, __ATOMIC_ACQ_REL);
  return TY_OK;
}

static void handle_signal(int number)
{
  (void)number;
  __atomic_store_n(&interrupt, 1, __ATOMIC_RELAXED);
}

int ty_interrupt_watch(int on)
{
  int code = 0;
  pthread_mutex_lock(&watch);
  struct sigaction ours = { .sa_handler = handle_signal, .sa_flags = SA_RESTART };
  sigemptyset(&ours.sa_mask);
  if (on && watchers++ == 0) code = sigaction(SIGINT, &ours, &before);
  if (!on && watchers > 0 && --watchers == 0) code = sigaction(SIGINT, &before, NULL);
  pthread_mutex_unlock(&watch);
  NEED(!code, TY_EINTERNAL, "cannot set the handler of SIGINT: %s", strerror(errno));
  return TY_OK;
}
