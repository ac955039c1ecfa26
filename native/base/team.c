/* team.c - see team.h. An idle thread polls for work for a while, then yields its core between
** polls, then sleeps.
*/
#include <limits.h>
#include <sched.h>
#include <time.h>
#include "base/base.h"
#include "base/system.h"
#include "base/team.h"

/* Measured on virtual machines of two cores (Intel, Zen 4), 2026-11: most steps of a network follow
** the previous one within these times, and waking a thread takes 20 to 60 us. */
enum {
  SPIN_NS  = 20000,  /* an idle thread polls with pause instructions */
  YIELD_NS = 200000, /* then it polls and yields the core in between */
  POLLS    = 16      /* polls between two readings of the clock */
};

/* bit of `entry`: threads may begin; its other bits count the threads at work */
#define OPEN (1u << 31)

struct helper { struct team *team; pthread_t thread; int member; };

struct team {
  team_fn body;
  void *context;
  int members;
  int started;                  /* threads; fewer than members - 1 if the system refused more */
  int closing;                  /* atomic */
  _Alignas(64) uint32_t posted; /* atomic: calls of team_run so far; threads sleep on this word */
  int sleeping;                 /* atomic: threads that sleep, or are about to */
  uint32_t call;                /* number of the call that `entry` is of; written when no thread is
                                   at work */
  _Alignas(64) uint32_t entry;  /* atomic */
  int owner_sleeps;             /* atomic: on `entry` */
  struct helper helpers[];
};

#define LOAD(x)     __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)

static void cpu_relax(void)
{
#if defined __x86_64__
  __builtin_ia32_pause();
#elif defined __aarch64__
  __asm__ volatile("yield");
#endif
}

static int64_t clock_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Polls *word for up to SPIN_NS + YIELD_NS. Returns whether its value has changed. */
static bool watch_word(const uint32_t *word, uint32_t value)
{
  int64_t begin = 0, now = 0;
  for (;;) {
    for (int i = 0; i < POLLS; i++) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return true;
      cpu_relax();
    }
    now = clock_ns();
    if (!begin) begin = now;
    if (now - begin > SPIN_NS + YIELD_NS) return false;
    if (now - begin > SPIN_NS) sched_yield();
  }
}

void team_meet(uint32_t *missing)
{
  enum { SPINS = 500, YIELDS = 400 };                   /* polls */
  __atomic_sub_fetch(missing, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < SPINS + YIELDS && __atomic_load_n(missing, __ATOMIC_ACQUIRE); i++)
    if (i < SPINS)
      cpu_relax();
    else
      sched_yield();
}

/* -- the team's threads ------------------------------------------------------------------------ */

/* Waits for a call of team_run after number `seen`. Returns the number of the newest one. */
static uint32_t helper_wait(struct team *t, uint32_t seen)
{
  if (!watch_word(&t->posted, seen)) {
    __atomic_add_fetch(&t->sleeping, 1, __ATOMIC_SEQ_CST);
    while (LOAD(t->posted) == seen) sys_sleep_on(&t->posted, seen);
    __atomic_sub_fetch(&t->sleeping, 1, __ATOMIC_SEQ_CST);
  }
  return __atomic_load_n(&t->posted, __ATOMIC_ACQUIRE);
}

/* Joins the current call of team_run. Returns false if it takes no more threads. */
static bool helper_enter(struct team *t)
{
  uint32_t entry = __atomic_load_n(&t->entry, __ATOMIC_RELAXED);
  do
    if (!(entry & OPEN)) return false;
  while (!__atomic_compare_exchange_n(
      &t->entry, &entry, entry + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
  return true;
}

static void helper_leave(struct team *t)
{
  if (!__atomic_sub_fetch(&t->entry, 1, __ATOMIC_SEQ_CST) && LOAD(t->owner_sleeps))
    sys_wake(&t->entry, 1);
}

/* Runs as a thread of a team. A thread that is interrupted after helper_wait may enter a later call
** than the one it was waiting for, before `posted` announces that call. `served` keeps it from
** entering the same call again. */
static void *helper_serve(void *context)
{
  const struct helper *h = context;
  struct team *t = h->team;
  for (uint32_t seen = 0, served = 0; !LOAD(t->closing);) {
    seen = helper_wait(t, seen);
    if (!helper_enter(t)) continue;
    if (t->call != served) t->body(h->member, t->context);
    served = t->call;
    helper_leave(t);
  }
  return NULL;
}

/* -- the owner --------------------------------------------------------------------------------- */

struct team *team_new(int most)
{
  struct team *t = sys_aligned(_Alignof(struct team), sizeof *t + most * sizeof t->helpers[0]);
  if (t) *t = (struct team){ .members = 1 };
  return t;
}

/* Ends the threads. No call of team_run is in progress. */
static void team_dismiss(struct team *t)
{
  STORE(t->closing, 1);
  __atomic_add_fetch(&t->posted, 1, __ATOMIC_SEQ_CST);
  sys_wake(&t->posted, INT_MAX);
  for (int i = 0; i < t->started; i++) sys_join(t->helpers[i].thread);
  t->started = 0;
  t->members = 1;
  STORE(t->closing, 0);
}

/* Starts the threads of a team of `members`, or as many as the system allows. */
static void team_recruit(struct team *t, int members)
{
  if (t->members > 1) team_dismiss(t);
  t->members = members;
  t->posted = 0;
  while (t->started < members - 1) {
    struct helper *h = &t->helpers[t->started];
    h->team = t;
    h->member = t->started + 1;
    if (sys_thread(&h->thread, helper_serve, h)) return;
    t->started++;
  }
}

/* Waits until no thread is at work. */
static void team_wait(struct team *t)
{
  uint32_t entry;
  while ((entry = __atomic_load_n(&t->entry, __ATOMIC_ACQUIRE))) {
    if (watch_word(&t->entry, entry)) continue;
    STORE(t->owner_sleeps, 1);
    while ((entry = LOAD(t->entry))) sys_sleep_on(&t->entry, entry);
    STORE(t->owner_sleeps, 0);
  }
}

void team_run(struct team *t, int members, int helpers, team_fn body, void *context)
{
  if (t->members != members) team_recruit(t, members);
  if (t->started) {
    t->body = body;
    t->context = context;
    t->call++;
    __atomic_store_n(&t->entry, OPEN, __ATOMIC_RELEASE);
    __atomic_add_fetch(&t->posted, 1, __ATOMIC_SEQ_CST);
    if (LOAD(t->sleeping)) sys_wake(&t->posted, helpers);
  }
  body(0, context);
  if (t->started && __atomic_and_fetch(&t->entry, ~OPEN, __ATOMIC_ACQ_REL)) team_wait(t);
}

void team_free(struct team *t)
{
  if (!t) return;
  team_dismiss(t);
  free(t);
}
