/* comm.c - groups of ranks (ty_comm_*): sums and broadcasts of arrays as tasks.
**
** Each group has its own queue, so that messages travel while kernels run. Tickets of arrays order
** its tasks with others. All ranks run one script, and so submit the same tasks in the same order.
** Of the sums that are ready on all ranks, the one of the highest priority advances block by block,
** so that a more urgent one waits for one block at most. A process is one rank of the group over
** MPI (opened once, left when the process ends), has several ranks of a group of threads, or one
** rank per device in a group of devices. All groups of devices share a queue (device/collective.h).
*/
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include "base/system.h"
#include "comm/comm.h"
#include "device/device.h"
#include "device/profile.h"
#include "device/timing.h"
#include "tensor/tensor.h"

/* Seconds. */
enum {
  BEAT_S  = 1,  /* between two heartbeats */
  START_S = 25, /* until all ranks must have started */
  ABORT_S = 5   /* for the other ranks to end after an abort */
};

struct ty_comm {
  const struct comm_ops *ops;
  struct comm_world *world;
  int queue, refs;
  int local;                     /* ranks of this process */
  bool for_ever;                 /* it is the group over MPI, which is never freed */
  struct comm_buffer scratch[3]; /* for sums; used by the queue's thread */
  struct comm_buffer notice;     /* for message_agree; used by the queue's thread */
  int64_t number;                /* of the next message; used by the submitting thread */
  /* Statistics, atomic. */
  int64_t bytes, ns, messages;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ty_comm *mpi;                /* the group over MPI; under the lock */
static ty_comm *taken[COMM_QUEUES]; /* per queue: its group; under the lock */

/* -- messages ---------------------------------------------------------------------------------- */

struct message {
  ty_comm *comm;
  const char *name;
  int (*act)(struct message *m);
  int64_t number;
  struct comm_part *part;
  int n, dtype, wire, root, priority;
  float threshold;
  bool agreed;             /* message_agree was called, with result `code` */
  int code;                /* of message_agree */
  struct line_position at; /* progress of a sum */
  int64_t from;            /* when its first turn began */
  int64_t ns;              /* sum of the times of its turns so far */
  struct timing time;      /* from its first turn to the end of the last, for the profiler */
  bool timed;
  size_t bytes;
  char *data;              /* of a gather */
};

/* Sums one block over the ranks. */
static int message_sum(struct message *m)
{
  if (m->comm->ops->sum_arrays)
    return m->comm->ops->sum_arrays(m->comm->world, m->part, m->n, m->dtype);
  struct comm_sum s = { m->part, m->n, m->dtype, m->wire, m->threshold };
  TRY(comm_sum(m->comm->ops, m->comm->world, m->comm->scratch, &s, &m->at));
  return m->at.part < m->n ? TASK_GOES_ON : TY_OK;
}

static int message_broadcast(struct message *m)
{
  enum { MAX_BYTES = 64 << 20 }; /* bytes of one call, which counts in int */
  struct comm_world *w = m->comm->world;
  size_t size = dtype_size(m->dtype);
  if (m->comm->ops->broadcast_arrays)
    return m->comm->ops->broadcast_arrays(w, m->part, m->n, m->dtype, m->root);
  for (int i = 0; i < m->n && w->size > 1; i++) {
    size_t bytes = size * (size_t)m->part[i].n;
    for (size_t at = 0; at < bytes; at += MAX_BYTES)
      if (!m->comm->ops->broadcast(w, m->part[i].to + at, MIN(bytes - at, MAX_BYTES), m->root))
        return comm_failed(w, "a broadcast");
  }
  return TY_OK;
}

static int message_gather(struct message *m)
{
  struct comm_world *w = m->comm->world;
  size_t part[COMM_RANKS];
  if (!m->bytes) return TY_OK; /* a barrier: agreeing was enough */
  for (int i = 0; i < w->size; i++) part[i] = m->bytes;
  return m->comm->ops->gather(w, m->data, part) ? TY_OK : comm_failed(w, "a gathering");
}

/* What a rank tells the others before it runs a message. */
struct notice {
  int64_t number, bytes;
  int32_t dtype, wire, root;
  char name[12];
  uint64_t ready; /* bit i: message `number` + i is ready */
};
enum { READY_BITS = 64 };

static int message_fail_parted(const struct notice *a, const struct notice *b, int other)
{
  return fail(TY_ESTATE,
      "ranks have parted: message %lld is a %s of %lld bytes (%s) on rank 0, a %s of %lld bytes "
      "(%s) on rank %d",
      (long long)a->number, a->name, (long long)a->bytes, dtype_name(a->dtype), b->name,
      (long long)b->bytes, dtype_name(b->dtype), other);
}

/* Returns whether ranks have to agree on each message. */
static bool comm_needs_agreement(const ty_comm *c) { return c->world->size > 1 && c->ops->gather; }

/* Exchanges notices of what the ranks are about to do, and fails on all of them if these differ:
** otherwise they would deadlock, or add arrays that do not belong together. *ready: bits of the
** messages that are ready on all ranks. */
static int message_agree(struct message *m, uint64_t *ready)
{
  ty_comm *c = m->comm;
  struct comm_world *w = c->world;
  size_t part[COMM_RANKS];
  NEED(comm_reserve(&c->notice, sizeof(struct notice) * (size_t)w->size), TY_EMEMORY,
      "out of memory: what %d ranks do", w->size);
  struct notice *all = (struct notice *)c->notice.data, *own = &all[w->rank];
  *own = (struct notice){ m->number, (int64_t)m->bytes, m->dtype, m->wire, m->root, "", *ready };
  snprintf(own->name, sizeof own->name, "%s", m->name);
  for (int i = 0; i < w->size; i++) part[i] = sizeof *own;
  if (!c->ops->gather(w, c->notice.data, part)) return comm_failed(w, m->name);
  for (int i = 1; i < w->size; i++)
    if (memcmp(&all[0], &all[i], offsetof(struct notice, ready)))
      return message_fail_parted(&all[0], &all[i], i);
  for (int i = 0; i < w->size; i++) *ready &= all[i].ready;
  return TY_OK;
}

/* The `choose` function of sums: returns the first one of the highest priority among those that are
** ready on all ranks; all ranks return the same one. Ranks wait for each other here, as in a
** message. That ends, since the head becomes ready everywhere at some time. */
static int message_choose(void *const *context, int n)
{
  struct message *first = context[0], *best = first;
  int chosen = 0;
  uint64_t ready = 0;
  for (int i = 0; i < n; i++) {
    int64_t at = ((struct message *)context[i])->number - first->number;
    if (at < READY_BITS) ready |= (uint64_t)1 << at;
  }
  first->code = comm_needs_agreement(first->comm) ? message_agree(first, &ready) : TY_OK;
  first->agreed = true;
  for (int i = 1; i < n && !first->code; i++) {
    struct message *m = context[i];
    int64_t at = m->number - first->number;
    if (at >= READY_BITS || !(ready >> at & 1) || m->priority <= best->priority) continue;
    best = m;
    chosen = i;
  }
  if (best != first) first->agreed = false;
  return chosen;
}

/* Returns the device whose time is measured: the queue, plus the number of the first device for a
** group of devices, all of which take part in each sum. */
static int comm_timed_device(const ty_comm *c)
{
  return c->queue + (c->ops == &comm_devices ? device_id(comm_devices_at(c->world, 0)) : 0);
}

/* The `run` function of a message's task. */
static int message_run(void *context)
{
  struct message *m = context;
  int64_t from = ty_profile_now();
  uint64_t ready = 0;
  bool agreed = m->agreed || m->from || !comm_needs_agreement(m->comm);
  if (!m->from && profile_is_on(TY_PROFILE_SYMBOLIC)) {
    timing_begin(comm_timed_device(m->comm), &m->time);
    m->timed = true;
  }
  int code = m->agreed ? m->code : agreed ? TY_OK : message_agree(m, &ready);
  if (!code) code = m->act(m);
  int64_t to = ty_profile_now();
  m->agreed = false;
  m->ns += to - from;
  if (!m->from) m->from = from;
  if (code == TASK_GOES_ON) return code;
  __atomic_add_fetch(&m->comm->bytes, (int64_t)m->bytes, __ATOMIC_RELAXED);
  __atomic_add_fetch(&m->comm->ns, m->ns, __ATOMIC_RELAXED);
  __atomic_add_fetch(&m->comm->messages, 1, __ATOMIC_RELAXED);
  if (m->timed) timing_end(&m->time);
  return code;
}

/* The `done` function of a message's task. */
static void message_drop(void *context)
{
  struct message *m = context;
  struct profile_label label = { .category = "comm", .name = m->name };
  if (m->timed && timing_read(&m->time))
    profile_span(&label, m->comm->queue, (int64_t)m->bytes, m->time.from, m->time.to);
  ty_comm_free(m->comm);
  mem_free(m->part);
  mem_free(m);
}

static ty_comm *comm_keep(ty_comm *c)
{
  __atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
  return c;
}

static int comm_check_device(const ty_comm *c, const ty_tensor *x, int i, const char *func)
{
  char name[32], want[32];
  device_name(x->d.device, name, sizeof name);
  if (c->ops != &comm_devices) {
    NEED(device_kind(x->d.device) != TY_GPU, TY_EDEVICE,
        "%s: array %d is on %s; messages start on a CPU", func, i, name);
    return TY_OK;
  }
  int device = comm_devices_at(c->world, i % c->local);
  NEED(x->d.device == device, TY_EDEVICE, "%s: array %d is on %s; expected %s", func, i, name,
      device_name(device, want, sizeof want));
  return TY_OK;
}

static int comm_check_arrays(const ty_comm *c, ty_tensor *const *x, int n, const char *func)
{
  NEED(c && x && n > 0, TY_ETYPE, "%s: the group or the arrays are missing", func);
  NEED(n % c->local == 0, TY_EVALUE, "%s: %d arrays for %d devices", func, n, c->local);
  for (int i = 0; i < n; i++) {
    NEED(x[i], TY_ETYPE, "%s: array %d is missing", func, i);
    TRY(storage_load(x[i]->storage));
    TRY(comm_check_device(c, x[i], i, func));
    NEED(desc_count(&x[i]->d) == desc_count(&x[i - i % c->local]->d), TY_ESHAPE,
        "%s: array %d has %lld elements, that of the first device %lld", func, i,
        (long long)desc_count(&x[i]->d), (long long)desc_count(&x[i - i % c->local]->d));
    NEED(x[i]->d.dtype == x[0]->d.dtype, TY_EDTYPE, "%s: array %d is %s, the first one %s", func, i,
        dtype_name(x[i]->d.dtype), dtype_name(x[0]->d.dtype));
  }
  return TY_OK;
}

/* Queues a copy of message `like`, which reads the arrays `from` and writes the arrays `to`. */
static int message_submit(struct message like, ty_tensor *const *from, ty_tensor *const *to, int n)
{
  struct message *m = NEW(struct message);
  struct access *list = NEWS(struct access, 2 * (size_t)n);
  like.part = NEWS(struct comm_part, n);
  if (!m || !list || !like.part) {
    mem_free(m);
    mem_free(list);
    mem_free(like.part);
    return fail(TY_EMEMORY, "out of memory: a message");
  }
  for (int i = 0; i < n; i++) {
    like.part[i] = (struct comm_part){ tensor_at(from[i]), tensor_at(to[i]),
      desc_count(&to[i]->d) };
    like.bytes += desc_bytes(&to[i]->d);
    list[i] = tensor_access(from[i]);
    list[n + i] = tensor_access(to[i]);
    list[n + i].in_place = from[i]->storage == to[i]->storage;
  }
  *m = like;
  m->n = n;
  m->number = m->comm->number++;
  comm_keep(m->comm);
  struct task t = { .run = message_run,
    .done = message_drop,
    .context = m,
    .read = list,
    .write = list + n,
    .nread = n,
    .nwrite = n,
    .choose = like.act == message_sum ? message_choose : NULL };
  int code = device_submit(m->comm->queue, &t, NULL);
  mem_free(list);
  return code;
}

int ty_comm_sum(ty_comm *c, ty_tensor *const *from, ty_tensor *const *to, int n, int wire,
    double threshold, int priority)
{
  TRY(comm_check_arrays(c, from, n, "ty_comm_sum"));
  TRY(comm_check_arrays(c, to, n, "ty_comm_sum"));
  for (int i = 0; i < n; i++)
    NEED(desc_count(&from[i]->d) == desc_count(&to[i]->d), TY_ESHAPE,
        "ty_comm_sum: array %d has %lld elements, its sum %lld", i,
        (long long)desc_count(&from[i]->d), (long long)desc_count(&to[i]->d));
  NEED(from[0]->d.dtype == to[0]->d.dtype, TY_EDTYPE, "ty_comm_sum: arrays of %s, sums of %s",
      dtype_name(from[0]->d.dtype), dtype_name(to[0]->d.dtype));
  NEED(wire >= TY_WIRE_FULL && wire <= TY_WIRE_2BIT, TY_EVALUE, "ty_comm_sum: no way of sending %d",
      wire);
  NEED(wire == TY_WIRE_FULL || c->ops != &comm_devices, TY_EVALUE,
      "ty_comm_sum: between devices numbers travel as they are");
  NEED(wire == TY_WIRE_FULL || to[0]->d.dtype == TY_F32, TY_EDTYPE,
      "ty_comm_sum: only float32 is sent as a shorter type, not %s", dtype_name(to[0]->d.dtype));
  struct message m = { .comm = c,
    .name = "sum",
    .act = message_sum,
    .dtype = to[0]->d.dtype,
    .wire = wire,
    .priority = priority,
    .threshold = (float)threshold };
  return message_submit(m, from, to, n);
}

int ty_comm_broadcast(ty_comm *c, ty_tensor *const *x, int n, int root)
{
  TRY(comm_check_arrays(c, x, n, "ty_comm_broadcast"));
  NEED(root >= 0 && root < c->world->size, TY_EVALUE,
      "ty_comm_broadcast: there is no rank %d of %d", root, c->world->size);
  struct message m = {
    .comm = c, .name = "broadcast", .act = message_broadcast, .dtype = x[0]->d.dtype, .root = root
  };
  return message_submit(m, x, x, n);
}

int ty_comm_gather(ty_comm *c, const void *own, size_t bytes, void *all)
{
  NEED(c && (own || !bytes) && (all || !bytes), TY_ETYPE, "ty_comm_gather: an argument is missing");
  NEED(c->ops->gather, TY_ESTATE, "ty_comm_gather: devices exchange no bytes of the host");
  NEED(bytes <= (1 << 20), TY_EVALUE, "ty_comm_gather: %zu bytes; at most a megabyte", bytes);
  if (bytes) memcpy((char *)all + bytes * (size_t)c->world->rank, own, bytes);
  struct message *m = NEW(struct message);
  NEED(m, TY_EMEMORY, "out of memory: a message");
  *m = (struct message){
    .comm = comm_keep(c), .name = "gather", .act = message_gather, .bytes = bytes, .data = all
  };
  m->number = c->number++;
  struct task t = { .run = message_run, .done = message_drop, .context = m };
  struct storage *mark;
  int code = storage_new(TY_CPU, 1, &mark); /* a failure of the task marks it */
  if (code) return message_drop(m), code;
  const struct access write = access_all(mark);
  t.write = &write;
  t.nwrite = 1;
  code = device_submit(c->queue, &t, NULL);
  if (!code) code = storage_wait(&write, 0);
  storage_free(mark);
  return code;
}

/* -- ends of processes ------------------------------------------------------------------------- */

static char notes[2][512]; /* texts about the last two checkpoints */
static int noted = -1;     /* atomic: which of them is the last */

int ty_comm_note(const char *text)
{
  int next = __atomic_load_n(&noted, __ATOMIC_RELAXED) == 0;
  snprintf(notes[next], sizeof notes[next], "%s", text ? text : "");
  __atomic_store_n(&noted, next, __ATOMIC_RELEASE);
  return TY_OK;
}

/* Writes to stderr why this rank ends, and the last checkpoint. Safe in a signal handler. */
static void comm_log_exit(const char *what)
{
  char text[1200];
  int which = __atomic_load_n(&noted, __ATOMIC_ACQUIRE);
  const char *note = which >= 0 && notes[which][0] ? notes[which] : "none was written";
  int n = snprintf(text, sizeof text, "tycho: rank %d of %d: %s; the last checkpoint: %s\n",
      mpi->world->rank, mpi->world->size, what, note);
  sys_tell(text, MIN((size_t)MAX(n, 0), sizeof text - 1));
  comm_leaves();
}

/* Handles SIGTERM, with which a launcher ends the ranks of a broken group: leaving MPI in order is
** not possible any more. */
static void comm_handle_term(int number)
{
  comm_log_exit("asked to end (SIGTERM)");
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

/* Thread: ends the process if aborting the ranks has not done so in time. */
static void *comm_exit_delayed(void *context)
{
  nanosleep(&(struct timespec){ ABORT_S, 0 }, NULL);
  sys_exit(1);
}

/* Ends all ranks of the group with an exit status. */
static void comm_abort_all(const ty_comm *c, int status)
{
  comm_devices_abort();
  sys_before_end();
  c->ops->abort(c->world, status);
}

/* Sends and checks a heartbeat. If a rank is silent, ends all ranks, or at least this one. */
static void comm_check_heartbeat(const ty_comm *c, double patience)
{
  char what[200];
  pthread_t thread;
  int silent = c->ops->beat(c->world, patience);
  if (silent == COMM_ALL_ALIVE) return;
  if (silent == COMM_NO_END) {
    int stopped = comm_stopped_rank();
    snprintf(what, sizeof what, "the ranks are done, but rank %d does not end: it is stopped",
        stopped);
    comm_log_exit(stopped < 0 ? "the ranks are done, but one of them does not end" : what);
    sys_exit(1);
  }
  snprintf(what, sizeof what, "rank %d has been silent for %.0f s, so all ranks end", silent,
      patience);
  comm_log_exit(what);
  if (sys_thread(&thread, comm_exit_delayed, NULL)) sys_exit(1);
  comm_abort_all(c, 1);
}

static int opening; /* atomic: the group over MPI is being opened */

/* Ends this process because other ranks have not started. */
static void comm_end_unstarted(double seconds)
{
  char text[200], why[64] = "is one stopped, or its host gone?";
  int stopped = comm_stopped_rank();
  if (stopped >= 0) snprintf(why, sizeof why, "rank %d is stopped", stopped);
  int n = snprintf(text, sizeof text, "tycho: not all ranks have started within %.0f s: %s\n",
      seconds, why);
  sys_tell(text, (size_t)n);
  comm_leaves();
  sys_exit(1);
}

/* Thread: checks that all ranks start and stay alive. */
static void *comm_watch(void *context)
{
  double patience = (double)env_number("TYCHO_COMM_PATIENCE", 15);
  double start = MAX(patience, START_S), waited = 0;
  for (;;) {
    nanosleep(&(struct timespec){ BEAT_S, 0 }, NULL);
    const ty_comm *c = __atomic_load_n(&mpi, __ATOMIC_ACQUIRE);
    if (c)
      comm_check_heartbeat(c, patience);
    else if (!__atomic_load_n(&opening, __ATOMIC_ACQUIRE))
      return NULL;
    else if ((waited += BEAT_S) > start)
      comm_end_unstarted(start);
  }
}

/* Exit handler. If the script has failed, ends the other ranks, which would wait for this one; else
** waits for them. */
static void comm_leave(int status, void *context)
{
  ty_comm *c = context;
  if (status && c->world->size > 1) {
    comm_log_exit("the script failed");
    comm_abort_all(c, status);
  }
  device_wait(c->queue);
  c->ops->close(c->world);
}

/* Starts the thread of comm_watch, with all signals blocked. */
static int comm_begin_watch(void)
{
  pthread_t thread;
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  int code = sys_thread(&thread, comm_watch, NULL);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  NEED(!code, TY_EMEMORY, "cannot start a thread: %s", strerror(code));
  pthread_detach(thread);
  return TY_OK;
}

/* -- groups ------------------------------------------------------------------------------------ */

/* Set as device_closing: ends all waits of this process's ranks for other ranks. */
static void comm_end_threads(void)
{
  for (int i = 0; i < COMM_QUEUES; i++) {
    ty_comm *c = __atomic_load_n(&taken[i], __ATOMIC_ACQUIRE);
    if (c && c->ops == &comm_threads) c->ops->abort(c->world, 0);
  }
  comm_devices_abort();
}

/* Makes a rank's handle and takes a queue for it. w is the caller's if it fails. */
static int comm_make_group(const struct comm_ops *ops, struct comm_world *w, ty_comm **out)
{
  int id = 0;
  while (id < COMM_QUEUES && __atomic_load_n(&taken[id], __ATOMIC_ACQUIRE)) id++;
  NEED(id < COMM_QUEUES, TY_EDEVICE, "a process has at most %d ranks", COMM_QUEUES);
  ty_comm *c = NEW(ty_comm);
  NEED(c, TY_EMEMORY, "out of memory: a group of ranks");
  *c = (ty_comm){ .ops = ops, .world = w, .queue = COMM_QUEUE + id, .refs = 1, .local = 1 };
  __atomic_store_n(&taken[id], c, __ATOMIC_RELEASE);
  device_closing = comm_end_threads;
  *out = c;
  return TY_OK;
}

static int comm_open_threads(int size, ty_comm **out)
{
  struct comm_world *world[COMM_QUEUES];
  NEED(size >= 1 && size <= COMM_QUEUES, TY_EVALUE, "a group of %d ranks in one process: 1 to %d",
      size, COMM_QUEUES);
  NEED(!device_sync(), TY_ESTATE, "ranks of one process need queues: TYCHO_SYNC=1 has none");
  TRY(comm_threads_open(size, world));
  for (int i = 0; i < size; i++) {
    int code = comm_make_group(&comm_threads, world[i], &out[i]);
    if (!code) continue;
    for (int k = i; k < size; k++) comm_threads.close(world[k]);
    while (i > 0) ty_comm_free(out[--i]);
    return code;
  }
  return TY_OK;
}

static int comm_open_mpi(ty_comm **out)
{
  const struct comm_ops *ops;
  struct comm_world *w;
  if (!mpi) {
    ty_comm *c;
    TRY(comm_mpi_open(&ops, &w));
    TRY(comm_make_group(ops, w, &c));
    c->for_ever = true;
    __atomic_store_n(&mpi, c, __ATOMIC_RELEASE);
    struct sigaction old;
    sys_on_exit(comm_leave, c);
    if (!sigaction(SIGTERM, NULL, &old) && old.sa_handler != SIG_IGN)
      signal(SIGTERM, comm_handle_term);
  }
  *out = comm_keep(mpi);
  return TY_OK;
}

int ty_comm_open(const char *kind, int size, ty_comm **out)
{
  NEED(kind && out, TY_ETYPE, "ty_comm_open: the kind or out is missing");
  bool threads = !strcmp(kind, "threads");
  NEED(threads || !strcmp(kind, "mpi"), TY_EVALUE, "no group of ranks is of kind '%s'", kind);
  pthread_mutex_lock(&lock);
  int code = TY_OK;
  if (threads)
    code = comm_open_threads(size, out);
  else { /* start watching first, since MPI waits for all ranks to start */
    __atomic_store_n(&opening, 1, __ATOMIC_RELEASE);
    if (!mpi) comm_watch_ranks();
    if (!mpi) code = comm_begin_watch();
    if (!code) code = comm_open_mpi(out);
    __atomic_store_n(&opening, 0, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return code;
}

int ty_comm_open_devices(const int *device, int n, ty_comm *ranks, ty_comm **out)
{
  NEED(out, TY_ETYPE, "ty_comm_open_devices: out is missing");
  TRY(comm_devices_check(device, n));
  int size = ranks ? ty_comm_size(ranks) : 1, own = ranks ? ty_comm_rank(ranks) : 0;
  struct comm_handshake mine, *all = NEWS(struct comm_handshake, (size_t)size);
  ty_comm *c = NEW(ty_comm);
  int code = all && c ? TY_OK : fail(TY_EMEMORY, "out of memory: a group of devices");
  if (!code) {
    *c = (ty_comm){ .ops = &comm_devices, .queue = COLLECTIVE_QUEUE, .refs = 1, .local = n };
    comm_devices_offer(&mine, n, own == 0);
    all[0] = mine;
    if (ranks) code = ty_comm_gather(ranks, &mine, sizeof mine, all);
  }
  if (!code) code = comm_devices_open(device, n, all, size, own, &c->world);
  mem_free(all);
  if (code) return mem_free(c), code;
  device_closing = comm_end_threads;
  *out = c;
  return TY_OK;
}

void ty_comm_free(ty_comm *c)
{
  if (!c || mem_kept() || __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) || c->for_ever) return;
  if (c->queue != COLLECTIVE_QUEUE)
    __atomic_store_n(&taken[c->queue - COMM_QUEUE], NULL, __ATOMIC_RELEASE);
  c->ops->close(c->world);
  for (int i = 0; i < COUNT(c->scratch); i++) mem_free(c->scratch[i].block);
  mem_free(c->notice.block);
  mem_free(c);
}

int ty_comm_rank(const ty_comm *c) { return c->world->rank; }
int ty_comm_size(const ty_comm *c) { return c->world->size; }

int ty_comm_abort(ty_comm *c, const char *text)
{
  NEED(c, TY_ETYPE, "ty_comm_abort: the group is missing");
  if (c != mpi) return c->ops->abort(c->world, 1), TY_OK;
  comm_log_exit(text ? text : "ended by the script");
  comm_abort_all(c, 1);
  return TY_OK;
}

int ty_comm_stats(const ty_comm *c, int64_t *messages, int64_t *bytes, int64_t *ns)
{
  NEED(c && messages && bytes && ns, TY_ETYPE, "ty_comm_stats: an argument is missing");
  *messages = __atomic_load_n(&c->messages, __ATOMIC_RELAXED);
  *bytes = __atomic_load_n(&c->bytes, __ATOMIC_RELAXED);
  *ns = __atomic_load_n(&c->ns, __ATOMIC_RELAXED);
  return TY_OK;
}
