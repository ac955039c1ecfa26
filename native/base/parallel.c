/* parallel.c - loops over the cores of the queue threads' teams; the only file that uses OpenMP
** (and does without under TY_NO_OPENMP, for ThreadSanitizer, which cannot see into that runtime).
**
** A queue's thread calls parallel_queue once. Its regions then have (cores / CPU queues opened)
** members. Any other thread, and a member that opens a region inside another, does all the work
** itself.
**
** Members are threads of our own (team.h): a loop does not wait for them to begin. oneDNN uses
** OpenMP's threads. Threads of both kinds would compete for the cores, so after a queue has let
** oneDNN use several, its own regions run on OpenMP's threads for a while, too.
*/
#include <sched.h>
#include <unistd.h>
#include "base/base.h"
#include "base/parallel.h"
#include "base/stop.h"
#include "base/system.h"
#include "base/team.h"
#ifndef TY_NO_OPENMP
#include <omp.h>
#endif

static __thread bool queue_thread;                    /* set by parallel_queue */
static __thread bool inside;                          /* this thread is a member of a region */
static __thread int member, members = 1;
/* cores of this process; 0: not decided yet */
static int chosen;

static int count_cores(void)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) ? 1 : MAX(CPU_COUNT(&set), 1);
}

/* Returns whether the launcher has bound this process to fewer cores than it itself may use. */
static bool is_bound(int own)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  return !sched_getaffinity(getppid(), sizeof set, &set) && CPU_COUNT(&set) > own;
}

/* Returns how many of its cores the process uses: MPI ranks that their launcher has not bound share
** those of the host. OpenMPI, MPICH and Slurm set variables that begin with the number of ranks on
** this host. */
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

/* Returns the most threads that this process may ever use; scratch per member is sized by it. */
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

/* -- teams ------------------------------------------------------------------------------------- */

/* A team outlives its thread, and another thread reuses it. */
struct kept_team { struct team *team; struct kept_team *next; bool taken; };
static struct kept_team *teams;
static pthread_mutex_t teams_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct kept_team *own;

/* Gives this thread a team, unless it has one. Returns false if there is no memory for it. */
static bool team_take(void)
{
  if (own) return true;
  pthread_mutex_lock(&teams_lock);
  for (own = teams; own && own->taken;) own = own->next;
  if (!own) {
    own = sys_aligned(ALIGN, sizeof *own);
    struct team *team = own ? team_new(max_threads()) : NULL;
    if (team) {
      *own = (struct kept_team){ .team = team, .next = teams };
      teams = own;
    } else {
      free(own);
      own = NULL;
    }
  }
  if (own) own->taken = true;
  pthread_mutex_unlock(&teams_lock);
  return own != NULL;
}

static void team_give_back(void)
{
  if (!own) return;
  pthread_mutex_lock(&teams_lock);
  own->taken = false;
  pthread_mutex_unlock(&teams_lock);
  own = NULL;
}

void parallel_queue(bool on)
{
  queue_thread = on;
  if (!on) team_give_back();
}

void parallel_close(void)
{
  pthread_mutex_lock(&teams_lock);
  while (teams) {
    struct kept_team *next = teams->next;
    team_free(teams->team);
    free(teams);
    teams = next;
  }
  pthread_mutex_unlock(&teams_lock);
}

static int queues; /* of CPUs, opened so far */

void parallel_add_queue(void) { __atomic_add_fetch(&queues, 1, __ATOMIC_RELAXED); }

/* Returns how many members a region of this thread has. */
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

int parallel_alone(int (*run)(void *), void *context)
{
  const int old_member = member, old_members = members;
  const bool old_inside = inside;
  inside = true;
  member = 0;
  members = 1;
  int code = run(context);
  inside = old_inside;
  member = old_member;
  members = old_members;
  return code;
}

int parallel_most(void) { return max_threads(); }

/* Regions that run on OpenMP's threads after a call of oneDNN that used several: more than a
** network has between two such calls. */
enum { LIBRARY_REGIONS = 256 };
static __thread int library_regions;                  /* of these, still to come */

void parallel_library_set(int threads)
{
#ifndef TY_NO_OPENMP
  omp_set_num_threads(threads);
#endif
}

void parallel_library(void)
{
  const int threads = queue_thread && !inside ? team_threads() : 1;
  parallel_library_set(threads);
#ifndef TY_NO_OPENMP
  if (threads > 1) library_regions = LIBRARY_REGIONS;
#endif
}

/* A member runs its share of the chunks in order, and then chunks of other members' shares, whose
** cores may be slow or busy. */
enum { SHARES = 64 };
struct share { _Alignas(64) int64_t next; int64_t end; };
struct loop {
  int64_t n, grain, chunks;
  parallel_fn body;
  void *context;
  bool stoppable;
  int members;
  struct stop *stop;
  int count;                                          /* of shares */
  struct share share[SHARES];
};

static void share_run(struct loop *l, struct share *s)
{
  for (int64_t i; (i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->end;) {
    if (l->stoppable && stop_wanted()) return;
    l->body(i * l->grain, MIN(l->n, (i + 1) * l->grain), l->context);
  }
}

/* Runs as each member of a loop. */
static void loop_work(int index, void *context)
{
  struct loop *l = context;
  inside = true;
  member = index;
  members = l->members;
  struct stop *before = stop_set(l->stop);
  for (int i = 0; i < l->count; i++) share_run(l, &l->share[(index + i) % l->count]);
  stop_set(before);
  inside = false;
  member = 0;
  members = 1;
}

static void loop_split(struct loop *l, int team_size)
{
  l->members = team_size;
  l->count = MIN(team_size, SHARES);
  int64_t each = l->chunks / l->count, more = l->chunks % l->count, at = 0;
  for (int i = 0; i < l->count; i++) {
    l->share[i].next = at;
    l->share[i].end = at += each + (i < more);
  }
}

/* Runs a loop on OpenMP's threads. They wait for each other before OpenMP's own barrier, which
** sleeps in the system after some microseconds: waking up takes longer than most regions. */
static void library_run(struct loop *l)
{
#ifndef TY_NO_OPENMP
  uint32_t missing = (uint32_t)l->members;
  library_regions--;
#  pragma omp parallel num_threads(l->members)
  {
    loop_work(omp_get_thread_num(), l);
    team_meet(&missing);
  }
#endif
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
  const int count = l.chunks == 1 || !queue_thread || inside ? 1 : team_threads();
  if (count == 1 || !team_take()) {
    loop_run_serial(&l);
    return;
  }
  l.stop = stop_now();
  loop_split(&l, count);
  if (library_regions)
    library_run(&l);
  else
    team_run(own->team, count, (int)MIN(l.chunks, count) - 1, loop_work, &l);
}

/* Returns how many of n units, of ns nanoseconds each, make a chunk. A quotient that differs from a
** whole number only in its last bits counts as whole. */
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
