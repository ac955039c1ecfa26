/* parallel.c - regions of the queue threads' teams; the only file that uses OpenMP (and does
** without under TY_NO_OPENMP, for ThreadSanitizer, which cannot see into the OpenMP runtime).
**
** A queue thread calls parallel_queue once. Its regions then have cores / CPU queues opened
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

static __thread bool queue_thread;                    /* parallel_queue has said so */
static __thread bool inside;                          /* this thread is a member of a region */
static __thread int member, members = 1;
static int chosen;                                    /* threads; 0: not decided yet */

static int count_cores(void)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : MAX(CPU_COUNT(&set), 1);
}

/* Returns whether the launcher gave this process fewer cores than it has itself. */
static bool is_bound(int own)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return !sched_getaffinity(getppid(), sizeof set, &set) && CPU_COUNT(&set) > own;
}

/* Returns how many of the process's own cores it uses: ranks of MPI that no launcher has bound
** divide their host's cores. The variables of OpenMPI, MPICH and Slurm begin with the number of
** ranks on this host. */
static int share_cores(int own)
{
  static const char *const variables[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE" };
  for (int i = 0; i < COUNT(variables); i++) {
    long ranks = strtol(env_text(variables[i], "0"), NULL, 10);
    if (ranks > 0) return ranks == 1 || is_bound(own) ? own : (int)MAX(own / ranks, 1);
  }
  return own;
}

static int choose_threads(void)
{
  int64_t n = env_number("TYCHO_THREADS", 0);
  if (n <= 0)
    n = strtol(env_text("OMP_NUM_THREADS", "0"), NULL, 10); /* "4,2": threads of the outer level */
  return n > 0 ? (int)MIN(n, 1024) : share_cores(count_cores());
}

/* Returns the most threads that this process may ever use, by which scratch per member is sized. */
static int max_threads(void)
{
  static int most;
  int n = __atomic_load_n(&most, __ATOMIC_RELAXED);
  if (n) return n;
  n = MAX(choose_threads(), count_cores());
  __atomic_store_n(&most, n, __ATOMIC_RELAXED);
  return n;
}

static int get_threads(void)
{
  int n = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (n) return n;
  n = choose_threads();
  __atomic_store_n(&chosen, n, __ATOMIC_RELAXED);
  return n;
}

int ty_threads(int n)
{
  if (n > 0) __atomic_store_n(&chosen, MIN(n, max_threads()), __ATOMIC_RELAXED);
  return get_threads();
}

void parallel_queue(bool on) { queue_thread = on; }

static int queues; /* of CPUs, opened so far */

void parallel_add_queue(void) { __atomic_add_fetch(&queues, 1, __ATOMIC_RELAXED); }

/* Returns the members that a region of this thread has. */
static int team_threads(void)
{
  return MAX(1, get_threads() / MAX(1, __atomic_load_n(&queues, __ATOMIC_RELAXED)));
}

int parallel_threads(void)
{
  if (inside) return members;
  return queue_thread ? team_threads() : max_threads();
}

int parallel_index(void) { return inside ? member : 0; }

/* -- regions ----------------------------------------------------------------------------------- */

/* Runs a body as the only member of a region. */
static void run_alone(void (*body)(int, int, void *), void *context)
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

struct serial_call { int (*run)(void *); void *context; int code; };

static void serial_run(int index, int count, void *context)
{
  struct serial_call *l = context;
  l->code = l->run(l->context);
}

int parallel_alone(int (*run)(void *), void *context)
{
  struct serial_call l = { run, context, 0 };
  run_alone(serial_run, &l);
  return l.code;
}

#ifndef TY_NO_OPENMP
/* Members wait for each other at the end of a region before OpenMP's own barrier: that one ends in
** a system call after some microseconds, and to be woken from it takes longer than most regions. */
enum {
  SPINS  = 500, /* looks at the counter that only pause the core */
  YIELDS = 400  /* looks after these that give it to other threads */
};

static void cpu_relax(void)
{
#  if defined __x86_64__
  __builtin_ia32_pause();
#  elif defined __aarch64__
  __asm__ volatile("yield");
#  endif
}

static void barrier_wait(int *arrived, int count)
{
  __atomic_add_fetch(arrived, 1, __ATOMIC_RELEASE);
  for (int i = 0; i < SPINS + YIELDS && __atomic_load_n(arrived, __ATOMIC_ACQUIRE) < count; i++)
    if (i < SPINS)
      cpu_relax();
    else
      sched_yield();
}
#endif

void parallel_team(void (*body)(int, int, void *), void *context)
{
  int n = queue_thread && !inside ? team_threads() : 1;
  if (n == 1) {
    run_alone(body, context);
    return;
  }
#ifdef TY_NO_OPENMP
  run_alone(body, context);
#else
  int arrived = 0;
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
    barrier_wait(&arrived, members);
  }
#endif
}

int parallel_most(void) { return max_threads(); }

void parallel_library_set(int threads)
{
#ifndef TY_NO_OPENMP
  omp_set_num_threads(threads);
#endif
}

void parallel_library(void) { parallel_library_set(queue_thread && !inside ? team_threads() : 1); }

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

static void share_run(struct loop *l, struct share *s)
{
  for (int64_t i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->end;) {
    if (l->stoppable && stop_wanted()) return;
    l->body(i * l->grain, MIN(l->n, (i + 1) * l->grain), l->context);
  }
}

static void loop_work(int index, int count, void *context)
{
  struct loop *l = context;
  for (int i = 0; i < l->count; i++) share_run(l, &l->share[(index + i) % l->count]);
}

static void loop_split(struct loop *l, int team_size)
{
  l->count = MIN(team_size, SHARES);
  int64_t each = l->chunks / l->count, more = l->chunks % l->count, at = 0;
  for (int i = 0; i < l->count; i++) {
    l->share[i].next = at;
    l->share[i].end = at += each + (i < more);
  }
}

static void loop_run_serial(const struct loop *l)
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
  if (l.chunks == 1 || !queue_thread || inside || team_threads() == 1) {
    loop_run_serial(&l);
    return;
  }
  loop_split(&l, team_threads());
  parallel_team(loop_work, &l);
}

/* Returns the units of ns nanoseconds that make a chunk of n. A quotient that is whole but for its
** last bits counts as whole. */
static int64_t loop_grain(int64_t n, double ns)
{
  const double grain = PARALLEL_CHUNK_NS / ns + 1e-9;
  return grain < (double)n ? (int64_t)grain : n;
}

void parallel_for(int64_t n, double ns, parallel_fn body, void *context)
{
  loop_run(n, loop_grain(n, ns), body, context, false);
}

void parallel_for_stoppable(int64_t n, double ns, parallel_fn body, void *context)
{
  loop_run(n, loop_grain(n, ns), body, context, true);
}

void parallel_chunks(int64_t n, int64_t grain, parallel_fn body, void *context)
{
  loop_run(n, grain, body, context, false);
}

void parallel_chunks_stoppable(int64_t n, int64_t grain, parallel_fn body, void *context)
{
  loop_run(n, grain, body, context, true);
}
