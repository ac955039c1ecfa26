/* mpi_shim.c - the transport over MPI, a separate library (libtycho_mpi.so). MPI's binary interface
** differs between implementations, so it is built by the mpicc of the one that will start the
** processes, and loaded only when a script asks for other processes.
**
** A lock serialises calls of MPI, which both the queue's thread and the thread of heartbeats make.
** Waiting is done by polling and sleeping in between, since MPI's own waits would keep a core busy
** that kernels need. sched_yield would give kernels on the same core a whole time slice, some
** milliseconds, whatever arrives meanwhile; a sleeping thread wakes at once. */
#include <mpi.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#include "comm/comm.h"

enum { SPINS = 64 };               /* polls before the first sleep */
enum { ALIVE = 1, LEAVING = 2 };   /* values of a heartbeat */
/* Seconds. */
static const double PATIENCE = 15; /* with a rank that has left, and with MPI_Finalize */
static const double MIN_NAP = 20e-6, MAX_NAP = 500e-6;
static const double LEAVING_NAP = 2e-3; /* longest sleep once this rank is leaving */

struct mpi_world {
  struct comm_world world;
  MPI_Comm data;                             /* for messages */
  MPI_Comm pulse;                            /* for heartbeats */
  int count[COMM_RANKS], offset[COMM_RANKS]; /* in bytes, which fit in int: blocks are small */
  int recv_count[COMM_RANKS], recv_offset[COMM_RANKS];
  int beat_in;              /* last heartbeat of the rank before this one */
  double heard_at;          /* when it arrived */
  double left_at;           /* when LEAVING first arrived; 0: not yet */
  int beat_out;             /* heartbeat being sent */
  MPI_Request beat_request; /* of beat_out */
  bool leaving;
  double ending;            /* atomic: when MPI_Finalize began; 0: not yet */
};

/* The group of all ranks. Groups within it have no heartbeats. */
static struct mpi_world all;

static pthread_mutex_t mpi_lock = PTHREAD_MUTEX_INITIALIZER;

static double mpi_get_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns whether code is MPI_SUCCESS; if not, writes its text to `why`. */
static bool mpi_check_code(int code)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  if (code == MPI_SUCCESS) return true;
  MPI_Error_string(code, text, &n);
  snprintf(all.world.why, sizeof all.world.why, "MPI: %.480s", text);
  return false;
}

/* -- waiting ----------------------------------------------------------------------------------- */

/* Returns whether the previous rank has left so long ago that all it has sent must have arrived.
** Call under the lock. */
static bool mpi_has_peer_left(double since)
{
  struct mpi_world *m = &all;
  if (m->leaving || m->beat_in != LEAVING || mpi_get_seconds() - MAX(m->left_at, since) < PATIENCE)
    return false;
  snprintf(m->world.why, sizeof m->world.why, "rank %d has ended and sends nothing any more",
      (m->world.rank + m->world.size - 1) % m->world.size);
  return true;
}

/* Sleeps for an eighth of the wait so far. So waiting for a late rank leaves the core to kernels,
** and ends soon after its message has arrived. */
static void mpi_nap(double waited)
{
  prctl(PR_SET_TIMERSLACK, 1UL); /* ns: by default the system adds 50 us to sleeps */
  double s = MIN(MAX(waited / 8, MIN_NAP), all.leaving ? LEAVING_NAP : MAX_NAP);
  nanosleep(&(struct timespec){ 0, (long)(1e9 * s) }, NULL);
}

/* Waits until a request is done. code: result of the call that began it. Returns false if it fails
** or the sender has left. */
static bool mpi_wait_request(int code, MPI_Request *request)
{
  int done = 0;
  double since = mpi_get_seconds();
  if (!mpi_check_code(code)) return false;
  for (int64_t i = 0;; i++) {
    pthread_mutex_lock(&mpi_lock);
    code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    bool peer_left = !done && i % SPINS == 0 && mpi_has_peer_left(since);
    pthread_mutex_unlock(&mpi_lock);
    if (peer_left || !mpi_check_code(code)) return false;
    if (done) return true;
    if (i >= SPINS) mpi_nap(mpi_get_seconds() - since);
  }
}

#define CALL(request, call)                                             \
  (pthread_mutex_lock(&mpi_lock), all.world.why[0] = 0, code_ = (call), \
      pthread_mutex_unlock(&mpi_lock), mpi_wait_request(code_, request))

/* -- moving bytes ------------------------------------------------------------------------------ */

static void mpi_lay_out_parts(
    const struct mpi_world *m, const size_t *part, int *count, int *offset)
{
  size_t at = 0;
  for (int i = 0; i < m->world.size; i++) {
    count[i] = (int)part[i];
    offset[i] = (int)at;
    at += part[i];
  }
}

static bool mpi_exchange(struct comm_world *w, const char *send, char *recv, const size_t *part)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  mpi_lay_out_parts(m, part, m->count, m->offset);
  for (int i = 0; i < w->size; i++) {
    m->recv_count[i] = (int)part[w->rank];
    m->recv_offset[i] = i * (int)part[w->rank];
  }
  m->count[w->rank] = m->recv_count[w->rank] = 0;
  return CALL(&request,
      MPI_Ialltoallv(send, m->count, m->offset, MPI_BYTE, recv, m->recv_count, m->recv_offset,
          MPI_BYTE, m->data, &request));
}

static bool mpi_gather(struct comm_world *w, char *data, const size_t *part)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  mpi_lay_out_parts(m, part, m->count, m->offset);
  return CALL(&request,
      MPI_Iallgatherv(
          MPI_IN_PLACE, 0, MPI_BYTE, data, m->count, m->offset, MPI_BYTE, m->data, &request));
}

static bool mpi_broadcast(struct comm_world *w, void *data, size_t bytes, int root)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  return CALL(&request, MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, m->data, &request));
}

/* -- heartbeats -------------------------------------------------------------------------------- */

/* Sends a heartbeat to the next rank and receives that of the previous one. This goes on while
** ranks wait for each other to leave, since MPI_Finalize hangs if a rank stops in it. */
static int mpi_beat(struct comm_world *w, double patience)
{
  struct mpi_world *m = (struct mpi_world *)w;
  int before = (w->rank + w->size - 1) % w->size, after = (w->rank + 1) % w->size;
  int done = 1, more = 1;
  double ending;
  __atomic_load(&m->ending, &ending, __ATOMIC_ACQUIRE);
  if (w->size == 1) return COMM_ALL_ALIVE;
  if (ending != 0) return mpi_get_seconds() - ending > PATIENCE ? COMM_NO_END : COMM_ALL_ALIVE;
  pthread_mutex_lock(&mpi_lock);
  __atomic_load(&m->ending, &ending, __ATOMIC_ACQUIRE);
  if (ending != 0) {
    pthread_mutex_unlock(&mpi_lock);
    return COMM_ALL_ALIVE;
  }
  if (m->beat_request != MPI_REQUEST_NULL) MPI_Test(&m->beat_request, &done, MPI_STATUS_IGNORE);
  if (done) {
    m->beat_out = m->leaving ? LEAVING : ALIVE;
    MPI_Isend(&m->beat_out, 1, MPI_INT, after, 0, m->pulse, &m->beat_request);
  }
  while (MPI_Iprobe(before, 0, m->pulse, &more, MPI_STATUS_IGNORE) == MPI_SUCCESS && more) {
    MPI_Recv(&m->beat_in, 1, MPI_INT, before, 0, m->pulse, MPI_STATUS_IGNORE);
    m->heard_at = mpi_get_seconds();
    if (m->beat_in == LEAVING && m->left_at == 0) m->left_at = m->heard_at;
  }
  bool silent = mpi_get_seconds() - m->heard_at > patience;
  pthread_mutex_unlock(&mpi_lock);
  return silent ? before : COMM_ALL_ALIVE;
}

static void mpi_abort(struct comm_world *w, int status) { MPI_Abort(MPI_COMM_WORLD, status); }

/* Receives pending heartbeats, so that MPI can end. */
static void mpi_drain_heartbeats(struct mpi_world *m)
{
  int before = (m->world.rank + m->world.size - 1) % m->world.size, more = 1;
  while (MPI_Iprobe(before, 0, m->pulse, &more, MPI_STATUS_IGNORE) == MPI_SUCCESS && more)
    MPI_Recv(&m->beat_in, 1, MPI_INT, before, 0, m->pulse, MPI_STATUS_IGNORE);
}

/* Waits for the other ranks, possibly for long, and ends MPI. Meanwhile heartbeats say that this
** rank is leaving and sends nothing more. */
static void mpi_leave(struct comm_world *w)
{
  struct mpi_world *m = (struct mpi_world *)w;
  MPI_Request request;
  int code_;
  pthread_mutex_lock(&mpi_lock);
  m->leaving = true;
  pthread_mutex_unlock(&mpi_lock);
  CALL(&request, MPI_Ibarrier(m->data, &request));
  pthread_mutex_lock(&mpi_lock);
  double ending = mpi_get_seconds();
  __atomic_store(&m->ending, &ending, __ATOMIC_RELEASE);
  mpi_drain_heartbeats(m);
  MPI_Finalize();
  pthread_mutex_unlock(&mpi_lock);
}

__attribute__((visibility("default"))) extern const struct comm_ops tycho_mpi;
const struct comm_ops tycho_mpi = {
  .name = "mpi",
  .size = sizeof(struct comm_ops),
  .exchange = mpi_exchange,
  .gather = mpi_gather,
  .broadcast = mpi_broadcast,
  .beat = mpi_beat,
  .abort = mpi_abort,
  .close = mpi_leave,
};

/* -- hosts ------------------------------------------------------------------------------------- */

/* Sets up a group within that of all ranks. */
static void mpi_init_group(struct mpi_world *m, MPI_Comm group)
{
  m->data = group;
  m->world.parent = &all.world;
  MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group, &m->world.rank);
  MPI_Comm_size(group, &m->world.size);
}

/* Makes the groups for sums within hosts and between them, if all hosts have the same number of
** ranks. */
static void mpi_find_hosts(int per_host)
{
  static struct mpi_world host, across;
  MPI_Comm group;
  if (per_host <= 0)
    MPI_Comm_split_type(all.data, MPI_COMM_TYPE_SHARED, all.world.rank, MPI_INFO_NULL, &group);
  else
    MPI_Comm_split(all.data, all.world.rank / per_host, all.world.rank, &group);
  mpi_init_group(&host, group);
  int most[2] = { host.world.size, -host.world.size };
  MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, all.data);
  if (most[0] != -most[1] || most[0] == 1 || most[0] == all.world.size) return;
  MPI_Comm_split(all.data, host.world.rank, all.world.rank, &group);
  mpi_init_group(&across, group);
  all.world.intra_host = &host.world;
  all.world.inter_host = &across.world;
}

/* Returns the group over MPI, made at the first call; NULL: failed, with the reason in why[]. */
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
  mpi_find_hosts(per_host);
  all.beat_request = MPI_REQUEST_NULL;
  all.heard_at = mpi_get_seconds();
  return &all.world;
}
