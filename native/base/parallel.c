/* parallel.c - regions of the queue threads' teams; the only file that spells OpenMP (and does
** without under TY_NO_OPENMP, for ThreadSanitizer, which cannot see into the OpenMP runtime).
**
** A queue thread says so once (parallel_queue). Its regions then have cores / CPU queues opened
** members, always; any other thread, and a member of a region that asks again, does all the work
** itself. The OpenMP runtime keeps one set of threads per queue thread, which spin for a moment
** between regions; oneDNN uses the same ones.
*/
#include <sched.h>
#include <unistd.h>
#include "base/base.h"
#include "base/parallel.h"
#include "base/stop.h"
#ifndef TY_NO_OPENMP
#include <omp.h>
#endif

static __thread bool queue_thread, inside;            /* inside: a member of a region */
static __thread int member, members = 1;
static int chosen;                                    /* 0: not decided yet */

static int affinity(void)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : MAX(CPU_COUNT(&set), 1);
}

/* Has a launcher given this process fewer cores than it has itself? */
static bool is_bound(int own)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return !sched_getaffinity(getppid(), sizeof set, &set) && CPU_COUNT(&set) > own;
}

/* Ranks of MPI that no launcher has bound divide their host's cores. What OpenMPI, MPICH and Slurm
** tell of ranks on this host begins with their number. */
static int share(int own)
{
  static const char *const told[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE" };
  for (int i = 0; i < COUNT(told); i++) {
    long ranks = strtol(env_text(told[i], "0"), NULL, 10);
    if (ranks > 0) return ranks == 1 || is_bound(own) ? own : (int)MAX(own / ranks, 1);
  }
  return own;
}

static int first_choice(void)
{
  int64_t n = env_number("TYCHO_THREADS", 0);
  if (n <= 0)
    n = strtol(env_text("OMP_NUM_THREADS", "0"), NULL, 10); /* "4,2": threads of the outer level */
  return n > 0 ? (int)MIN(n, 1024) : share(affinity());
}

/* The most threads that this process may ever use: what scratch memory per member is sized by. */
static int capacity(void)
{
  static int most;
  int n = __atomic_load_n(&most, __ATOMIC_RELAXED);
  if (n) return n;
  n = MAX(first_choice(), affinity());
  __atomic_store_n(&most, n, __ATOMIC_RELAXED);
  return n;
}

static int cores(void)
{
  int n = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (n) return n;
  n = first_choice();
  __atomic_store_n(&chosen, n, __ATOMIC_RELAXED);
  return n;
}

int ty_threads(int n)
{
  if (n > 0) __atomic_store_n(&chosen, MIN(n, capacity()), __ATOMIC_RELAXED);
  return cores();
}

void parallel_queue(bool on) { queue_thread = on; }

static int queues; /* of CPUs, opened so far */

void parallel_add_queue(void) { __atomic_add_fetch(&queues, 1, __ATOMIC_RELAXED); }

static int team(void)
{
  return MAX(1, cores() / MAX(1, __atomic_load_n(&queues, __ATOMIC_RELAXED)));
}

int parallel_threads(void)
{
  if (inside) return members;
  return queue_thread ? team() : capacity();
}

int parallel_index(void) { return inside ? member : 0; }

/* -- regions ----------------------------------------------------------------------------------- */

static void alone(void (*body)(int, int, void *), void *context)
{
  int old_member = member, old_members = members;
  bool old = inside;
  inside = true;
  member = 0;
  members = 1;
  body(0, 1, context);
  inside = old;
  member = old_member;
  members = old_members;
}

struct lone { int (*run)(void *); void *context; int code; };

static void run_lone(int index, int count, void *context)
{
  struct lone *l = context;
  l->code = l->run(l->context);
}

int parallel_alone(int (*run)(void *), void *context)
{
  struct lone l = { run, context, 0 };
  alone(run_lone, &l);
  return l.code;
}

#ifndef TY_NO_OPENMP
/* Members meet at the end of a region before OpenMP lets them go: its own wait ends in a system
** call after some microseconds, and to be woken from that takes longer than most regions. Who is
** early looks for a while, then offers the core to others. */
enum { LOOKS = 500, OFFERS = 400 };

static void look_again(void)
{
#  if defined __x86_64__
  __builtin_ia32_pause();
#  elif defined __aarch64__
  __asm__ volatile("yield");
#  endif
}

static void meet(int *there, int count)
{
  __atomic_add_fetch(there, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < LOOKS + OFFERS && __atomic_load_n(there, __ATOMIC_ACQUIRE) < count; i++)
    if (i < LOOKS)
      look_again();
    else
      sched_yield();
}
#endif

void parallel_team(void (*body)(int, int, void *), void *context)
{
  int n = queue_thread && !inside ? team() : 1;
  if (n == 1) {
    alone(body, context);
    return;
  }
#ifdef TY_NO_OPENMP
  alone(body, context);
#else
  int there = 0;
  struct stop *stop = stop_now();
#  pragma omp parallel num_threads(n)
  {
    inside = true;
    member = omp_get_thread_num();
    members = omp_get_num_threads();
    struct stop *before = stop_set(stop);
    body(member, members, context);
    stop_set(before);
    inside = false;
    meet(&there, members);
  }
#endif
}

int parallel_most(void) { return capacity(); }

void parallel_library_of(int threads)
{
#ifndef TY_NO_OPENMP
  omp_set_num_threads(threads);
#endif
}

void parallel_library(void) { parallel_library_of(queue_thread && !inside ? team() : 1); }

/* A member goes through its share of the chunks in order, then helps others with theirs: a core
** may be slow, or busy. */
enum { SHARES = 64 };
struct share { _Alignas(64) int64_t next; int64_t end; };
struct loop {
  int64_t n, grain, chunks;
  parallel_fn body;
  void *context;
  bool stoppable;
  int count;
  struct share share[SHARES];
};

static void go(struct loop *l, struct share *s)
{
  for (int64_t i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->end;) {
    if (l->stoppable && stop_wanted()) return;
    l->body(i * l->grain, MIN(l->n, (i + 1) * l->grain), l->context);
  }
}

static void work(int index, int count, void *context)
{
  struct loop *l = context;
  for (int i = 0; i < l->count; i++) go(l, &l->share[(index + i) % l->count]);
}

static void deal(struct loop *l, int team_size)
{
  l->count = MIN(team_size, SHARES);
  int64_t each = l->chunks / l->count, more = l->chunks % l->count, at = 0;
  for (int i = 0; i < l->count; i++) {
    l->share[i].next = at;
    l->share[i].end = at += each + (i < more);
  }
}

static void all(const struct loop *l)
{
  for (int64_t i = 0; i < l->chunks && !(l->stoppable && stop_wanted()); i++)
    l->body(i * l->grain, MIN(l->n, (i + 1) * l->grain), l->context);
}

static void loop_run(int64_t n, int64_t grain, parallel_fn body, void *context, bool stoppable)
{
  if (n <= 0) return;
  grain = MAX(grain, 1);
  struct loop l;
  l.n = n, l.grain = grain, l.chunks = (n - 1) / grain + 1, l.body = body, l.context = context;
  l.stoppable = stoppable;
  if (l.chunks == 1 || !queue_thread || inside || team() == 1) {
    all(&l);
    return;
  }
  deal(&l, team());
  parallel_team(work, &l);
}

void parallel_for(int64_t n, int64_t grain, parallel_fn body, void *context)
{
  loop_run(n, grain, body, context, false);
}

void parallel_for_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context)
{
  loop_run(n, grain, body, context, true);
}
