/* mpi_shim.c - the way to other processes by MPI, a library of its own (libtycho_mpi.so): MPI's
** binary interface differs between implementations, so it is built by the mpicc of the one that
** will start the processes, and loaded only when a store asks for other processes.
**
** One lock keeps MPI's calls apart, since the thread that says that this rank is alive calls
** between those of the queue. Waiting is done here, by looking: MPI's own would hold a core that
** the kernels need. Between looks it naps. sched_yield would hand kernels on the same core a whole
** slice of the scheduler, some milliseconds, whatever comes in meanwhile; a sleeper wakes at once.
*/
#include <mpi.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#include "comm/comm.h"

enum { LOOKS = 64, ALIVE = 1, LEAVING = 2 };
/* s */
static const double PATIENCE = 15; /* for one that has left, and for MPI's own end */
static const double LEAST_NAP = 20e-6, MOST_NAP = 500e-6, LEAVING_NAP = 2e-3;

struct mpi_world {
  struct comm_world world;
  MPI_Comm data, pulse;
  int count[COMM_RANKS], offset[COMM_RANKS]; /* in bytes: blocks are small */
  int recv_count[COMM_RANKS], recv_offset[COMM_RANKS];
  /* the rank before this one: what it last said and when, in seconds, and since when it leaves; and
  ** what we say */
  int heard, saying;
  double last, left;
  MPI_Request said;
  bool leaving;
  double ending; /* atomic: since when MPI ends, 0: not yet */
};

/* The group over all ranks; the others lie in it and have no signs of life of their own. */
static struct mpi_world all;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool explain(int code)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  if (code == MPI_SUCCESS) return true;
  MPI_Error_string(code, text, &n);
  snprintf(all.world.why, sizeof all.world.why, "MPI: %.480s", text);
  return false;
}

/* -- waiting ----------------------------------------------------------------------------------- */

/* Has the rank before this one ended, long enough ago for all that it sent to be here? */
static bool is_left_alone(double since)
{
  struct mpi_world *m = &all;
  if (m->leaving || m->heard != LEAVING || now() - MAX(m->left, since) < PATIENCE) return false;
  snprintf(m->world.why, sizeof m->world.why, "rank %d has ended and sends nothing any more",
      (m->world.rank + m->world.size - 1) % m->world.size);
  return true;
}

/* An eighth of the wait so far: whoever waits for a rank that is late leaves the core to its
** kernels, and goes on soon after. */
static void nap(double waited)
{
  prctl(PR_SET_TIMERSLACK, 1UL); /* ns, of this thread: the system adds 50 us otherwise */
  double s = MIN(MAX(waited / 8, LEAST_NAP), all.leaving ? LEAVING_NAP : MOST_NAP);
  nanosleep(&(struct timespec){ 0, (long)(1e9 * s) }, NULL);
}

static bool wait_for(int code, MPI_Request *request)
{
  int done = 0;
  double since = now();
  if (!explain(code)) return false;
  for (int64_t i = 0;; i++) {
    pthread_mutex_lock(&turn);
    code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    bool alone = !done && i % LOOKS == 0 && is_left_alone(since);
    pthread_mutex_unlock(&turn);
    if (alone || !explain(code)) return false;
    if (done) return true;
    if (i >= LOOKS) nap(now() - since);
  }
}

#define CALL(request, call)                                                                      \
  (pthread_mutex_lock(&turn), all.world.why[0] = 0, code_ = (call), pthread_mutex_unlock(&turn), \
      wait_for(code_, request))

/* -- moving bytes ------------------------------------------------------------------------------ */

static void lay_out(const struct mpi_world *m, const size_t *part, int *count, int *offset)
{
  size_t at = 0;
  for (int i = 0; i < m->world.size; i++) {
    count[i] = (int)part[i];
    offset[i] = (int)at;
    at += part[i];
  }
}

static bool exchange(struct comm_world *w, const char *send, char *recv, const size_t *part)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  lay_out(m, part, m->count, m->offset);
  for (int i = 0; i < w->size; i++) {
    m->recv_count[i] = (int)part[w->rank];
    m->recv_offset[i] = i * (int)part[w->rank];
  }
  m->count[w->rank] = m->recv_count[w->rank] = 0;
  return CALL(&request,
      MPI_Ialltoallv(send, m->count, m->offset, MPI_BYTE, recv, m->recv_count, m->recv_offset,
          MPI_BYTE, m->data, &request));
}

static bool gather(struct comm_world *w, char *data, const size_t *part)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  lay_out(m, part, m->count, m->offset);
  return CALL(&request,
      MPI_Iallgatherv(
          MPI_IN_PLACE, 0, MPI_BYTE, data, m->count, m->offset, MPI_BYTE, m->data, &request));
}

static bool broadcast(struct comm_world *w, void *data, size_t bytes, int root)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  return CALL(&request, MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, m->data, &request));
}

/* -- signs of life ----------------------------------------------------------------------------- */

/* Each rank tells the next one, and hears the one before; also while it waits for the others to be
** done. MPI's own end hangs where a rank stops in it. */
static int beat(struct comm_world *w, double patience)
{
  struct mpi_world *m = (struct mpi_world *)w;
  int before = (w->rank + w->size - 1) % w->size, after = (w->rank + 1) % w->size;
  int done = 1, more = 1;
  double ending;
  __atomic_load(&m->ending, &ending, __ATOMIC_ACQUIRE);
  if (w->size == 1) return COMM_ALL_ALIVE;
  if (ending != 0) return now() - ending > PATIENCE ? COMM_NO_END : COMM_ALL_ALIVE;
  pthread_mutex_lock(&turn);
  __atomic_load(&m->ending, &ending, __ATOMIC_ACQUIRE);
  if (ending != 0) {
    pthread_mutex_unlock(&turn);
    return COMM_ALL_ALIVE;
  }
  if (m->said != MPI_REQUEST_NULL) MPI_Test(&m->said, &done, MPI_STATUS_IGNORE);
  if (done) {
    m->saying = m->leaving ? LEAVING : ALIVE;
    MPI_Isend(&m->saying, 1, MPI_INT, after, 0, m->pulse, &m->said);
  }
  while (MPI_Iprobe(before, 0, m->pulse, &more, MPI_STATUS_IGNORE) == MPI_SUCCESS && more) {
    MPI_Recv(&m->heard, 1, MPI_INT, before, 0, m->pulse, MPI_STATUS_IGNORE);
    m->last = now();
    if (m->heard == LEAVING && m->left == 0) m->left = m->last;
  }
  bool silent = now() - m->last > patience;
  pthread_mutex_unlock(&turn);
  return silent ? before : COMM_ALL_ALIVE;
}

static void end(struct comm_world *w, int status) { MPI_Abort(MPI_COMM_WORLD, status); }

/* Takes what was said to this rank and not heard, so that MPI can end. */
static void hear_the_rest(struct mpi_world *m)
{
  int before = (m->world.rank + m->world.size - 1) % m->world.size, more = 1;
  while (MPI_Iprobe(before, 0, m->pulse, &more, MPI_STATUS_IGNORE) == MPI_SUCCESS && more)
    MPI_Recv(&m->heard, 1, MPI_INT, before, 0, m->pulse, MPI_STATUS_IGNORE);
}

/* Waits for the others, who may have long to go, and tells them that it sends nothing any more. */
static void leave(struct comm_world *w)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  pthread_mutex_lock(&turn);
  m->leaving = true;
  pthread_mutex_unlock(&turn);
  CALL(&request, MPI_Ibarrier(m->data, &request));
  pthread_mutex_lock(&turn);
  double ending = now();
  __atomic_store(&m->ending, &ending, __ATOMIC_RELEASE);
  hear_the_rest(m);
  MPI_Finalize();
  pthread_mutex_unlock(&turn);
}

__attribute__((visibility("default"))) extern const struct comm_ops tycho_mpi;
const struct comm_ops tycho_mpi = {
  .name = "mpi",
  .size = sizeof(struct comm_ops),
  .exchange = exchange,
  .gather = gather,
  .broadcast = broadcast,
  .beat = beat,
  .abort = end,
  .close = leave,
};

/* -- hosts ------------------------------------------------------------------------------------- */

static void name_group(struct mpi_world *m, MPI_Comm group)
{
  m->data = group;
  m->world.whole = &all.world;
  MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group, &m->world.rank);
  MPI_Comm_size(group, &m->world.size);
}

/* Groups for sums inside the hosts and across them, where all hosts have as many ranks. */
static void find_hosts(int per_host)
{
  static struct mpi_world host, across;
  MPI_Comm group;
  if (per_host <= 0)
    MPI_Comm_split_type(all.data, MPI_COMM_TYPE_SHARED, all.world.rank, MPI_INFO_NULL, &group);
  else
    MPI_Comm_split(all.data, all.world.rank / per_host, all.world.rank, &group);
  name_group(&host, group);
  int most[2] = { host.world.size, -host.world.size };
  MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, all.data);
  if (most[0] != -most[1] || most[0] == 1 || most[0] == all.world.size) return;
  MPI_Comm_split(all.data, host.world.rank, all.world.rank, &group);
  name_group(&across, group);
  all.world.host = &host.world;
  all.world.across = &across.world;
}

/* The world of the process, made once; NULL and why[] otherwise. */
__attribute__((visibility("default"))) struct comm_world *tycho_mpi_open(
    int per_host, char *why, size_t size)
{
  int given = 0, begun = 0;
  MPI_Initialized(&begun);
  if (begun && all.world.size) return &all.world;
  if (!begun && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given) != MPI_SUCCESS) {
    snprintf(why, size, "MPI does not start");
    return NULL;
  }
  if (begun) MPI_Query_thread(&given);
  if (given < MPI_THREAD_SERIALIZED) {
    snprintf(why, size, "this MPI is built without support for threads");
    return NULL;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &all.data);
  MPI_Comm_dup(MPI_COMM_WORLD, &all.pulse);
  MPI_Comm_set_errhandler(all.data, MPI_ERRORS_RETURN);
  MPI_Comm_rank(all.data, &all.world.rank);
  MPI_Comm_size(all.data, &all.world.size);
  if (all.world.size > COMM_RANKS) {
    snprintf(why, size, "%d ranks are too many: at most %d", all.world.size, COMM_RANKS);
    return NULL;
  }
  find_hosts(per_host);
  all.said = MPI_REQUEST_NULL;
  all.last = now();
  return &all.world;
}
