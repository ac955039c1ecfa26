/* collective.c - sums and broadcasts over GPUs by NCCL (device/collective.h).
**
** Each device has a further stream for collectives. All groups share it, and all share one queue,
** so that every device runs all collectives in the order of submission. These streams wait for
** events of the queues that write the operands, and record events for those that read the results;
** the host waits only in `finish_queue`. It polls there instead of sleeping in the driver, which
** would never return if a member has died: an error reported by NCCL, or an abort by another
** thread, ends the groups.
**
** A failure ends its group, as NCCL requires, and later operations of the group fail with it. */
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include "base/system.h"
#include "cuda/collective.h"
#include "cuda/nccl.h"
#include "cuda/stamps.h"

enum { LEAST_NCCL = 21300, MARKS = 64, NAP_NS = 20000 };

struct member {
  int device;
  nccl_comm comm; /* atomic; the thread that exchanges it for NULL destroys or aborts it */
};
struct collective {
  struct collective *next;
  int n, first, size;
  bool dead;      /* it has failed, see why[]; used by the queue's thread */
  char why[512];
  struct member member[];
};
/* Per device; used by the queue's thread, except `opened`, which is atomic. */
static struct lane {
  bool opened;
  cu_stream stream;
  cu_event mark[MARKS];
  struct stamp_clock clock;
} lanes[CUDA_DEVICES];

static struct nccl_functions nccl;
static struct collective *groups;   /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int aborting;                /* atomic; number of calls of abort_all */

/* -- the library ------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int state, version;
static char reason[2048];

static int load_nccl(void)
{
  void *lib;
  NEED(!env_disabled("nccl"), TY_EDEVICE, "TYCHO_DISABLE switches NCCL off");
  TRY(cuda_library_needed(CUDA_NCCL, &lib));
#define FIND(name, symbol, arguments) \
  *(void **)&nccl.name = dlsym(lib, symbol); \
  NEED(nccl.name, TY_EDEVICE, "NCCL is too old: it has no %s", symbol);
  NCCL_FUNCTIONS(FIND)
#undef FIND
  *(void **)&nccl.GetErrorString = dlsym(lib, "ncclGetErrorString");
  *(void **)&nccl.GetLastError = dlsym(lib, "ncclGetLastError");
  NEED(!nccl.GetVersion(&version), TY_EDEVICE, "NCCL does not answer");
  NEED(version >= LEAST_NCCL, TY_EDEVICE, "this is NCCL %d.%d; at least %d.%d is needed",
      version / 10000, version / 100 % 100, LEAST_NCCL / 10000, LEAST_NCCL / 100 % 100);
  return TY_OK;
}

static void load_once(void)
{
  state = load_nccl();
  if (state) snprintf(reason, sizeof reason, "%s", ty_error());
}

static int find_nccl(char *text, size_t size)
{
  pthread_once(&once, load_once);
  if (state) return fail(state, "%s", reason);
  snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  return TY_OK;
}

static int check_nccl(int result, const char *what)
{
  if (!result) return TY_OK;
  const char *last = nccl.GetLastError ? nccl.GetLastError(NULL) : NULL;
  const char *text = nccl.GetErrorString ? nccl.GetErrorString(result) : "an error";
  return fail(TY_ERUN, "NCCL: %s: %s (%d)%s%s", what, text, result, last && *last ? "; " : "",
      last && *last ? last : "");
}

static int make_id(void *id)
{
  struct nccl_id made;
  _Static_assert(sizeof made == COLLECTIVE_ID, "ids of NCCL have 128 bytes");
  TRY(check_nccl(nccl.GetUniqueId(&made), "ncclGetUniqueId"));
  memcpy(id, &made, sizeof made);
  return TY_OK;
}

/* -- groups ------------------------------------------------------------------------------------ */

static nccl_comm take_comm(struct member *m)
{
  return __atomic_exchange_n(&m->comm, NULL, __ATOMIC_ACQ_REL);
}

static void abort_group(struct collective *c)
{
  for (int i = 0; i < c->n; i++) {
    nccl_comm comm = take_comm(&c->member[i]);
    if (comm) nccl.CommAbort(comm);
  }
}

/* Keeps this thread's failure for the group, whose later operations fail with it. Returns code. */
static int fail_group(struct collective *c, int code)
{
  if (!c->dead) snprintf(c->why, sizeof c->why, "%s", ty_error());
  c->dead = true;
  struct failure *f = failure_take(code);
  abort_group(c);
  code = failure_report(f);
  failure_drop(f);
  return code;
}

static int make_stream(int device)
{
  struct lane *l = &lanes[device_id(device)];
  if (l->opened) return TY_OK;
  TRY(cuda_enter(device));
  TRY(cuda_check(cu_api.StreamCreate(&l->stream, CU_STREAM_NON_BLOCKING), "making a stream"));
  __atomic_store_n(&l->opened, true, __ATOMIC_RELEASE);
  return TY_OK;
}

static int make_comms(struct collective *c, const void *id)
{
  struct nccl_id given;
  memcpy(&given, id, sizeof given);
  TRY(check_nccl(nccl.GroupStart(), "ncclGroupStart"));
  int code = TY_OK;
  for (int i = 0; i < c->n && !code; i++) {
    code = cuda_enter(c->member[i].device);
    if (!code)
      code = check_nccl(nccl.CommInitRank(&c->member[i].comm, c->size, given, c->first + i),
          "ncclCommInitRank");
  }
  int ended = nccl.GroupEnd();
  return code ? code : check_nccl(ended, "opening a group of GPUs");
}

static int open_group(
    const void *id, const int *device, int n, int first, int size, struct collective **out)
{
  struct collective *c = mem_new(sizeof *c + sizeof(struct member) * (size_t)n);
  NEED(c, TY_EMEMORY, "out of memory: a group of GPUs");
  c->n = n;
  c->first = first;
  c->size = size;
  pthread_mutex_lock(&lock);
  int code = TY_OK;
  for (int i = 0; i < n && !code; i++) {
    c->member[i].device = device[i];
    code = make_stream(device[i]);
  }
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < n && !code; i++)
    for (int k = 0; k < i; k++) cuda_connect(device[i], device[k]); /* NCCL may read arrays there */
  if (!code) code = make_comms(c, id);
  if (code) {
    code = fail_group(c, code);
    mem_free(c);
    return code;
  }
  pthread_mutex_lock(&lock);
  c->next = groups;
  groups = c;
  pthread_mutex_unlock(&lock);
  *out = c;
  return TY_OK;
}

/* Leaves a group and frees it. If all members are in this process, they leave together. Else each
** process leaves when it no longer needs the group, and must not wait for others. */
static void close_group(struct collective *c)
{
  pthread_mutex_lock(&lock);
  struct collective **at = &groups;
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  pthread_mutex_unlock(&lock);
  if (c->n == c->size && !nccl.GroupStart()) {
    for (int i = 0; i < c->n; i++) {
      nccl_comm comm = take_comm(&c->member[i]);
      if (comm) nccl.CommDestroy(comm);
    }
    nccl.GroupEnd();
  }
  abort_group(c);
  mem_free(c);
}

static void abort_all(void)
{
  __atomic_add_fetch(&aborting, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&lock);
  for (struct collective *c = groups; c; c = c->next) abort_group(c);
  pthread_mutex_unlock(&lock);
}

/* -- starting ---------------------------------------------------------------------------------- */

static int type_of(int dtype)
{
  switch (dtype) {
  case TY_F32: return NCCL_F32;
  case TY_F64: return NCCL_F64;
  case TY_F16: return NCCL_F16;
  case TY_BF16: return NCCL_BF16;
  case TY_I8: return NCCL_I8;
  case TY_I32: return NCCL_I32;
  case TY_I64: return NCCL_I64;
  default: return NCCL_U8; /* also TY_BOOL */
  }
}

/* Starts a part of a message. root -1: a sum; bools are or-ed. */
static int start_part(
    struct collective *c, const struct collective_part *p, int dtype, int root)
{
  struct member *m = &c->member[p->member];
  nccl_comm comm = __atomic_load_n(&m->comm, __ATOMIC_ACQUIRE);
  cu_stream stream = lanes[device_id(m->device)].stream;
  int type = type_of(dtype), op = dtype == TY_BOOL ? NCCL_MAX : NCCL_SUM;
  NEED(comm, TY_ERUN, "NCCL: the group was ended");
  if (!p->n) return TY_OK;
  TRY(cuda_enter(m->device));
  if (root < 0)
    return check_nccl(nccl.AllReduce(p->from, p->to, (size_t)p->n, type, op, comm, stream),
        "ncclAllReduce");
  return check_nccl(
      nccl.Broadcast(p->from, p->to, (size_t)p->n, type, root, comm, stream), "ncclBroadcast");
}

static int start_parts(
    struct collective *c, const struct collective_part *part, int n, int dtype, int root)
{
  if (c->dead) return fail(TY_ERUN, "the group of GPUs has ended: %s", c->why);
  int code = check_nccl(nccl.GroupStart(), "ncclGroupStart");
  if (code) return fail_group(c, code);
  for (int i = 0; i < n && !code; i++) code = start_part(c, &part[i], dtype, root);
  struct failure *f = code ? failure_take(code) : NULL;
  int ended = nccl.GroupEnd();
  if (f) {
    code = failure_report(f);
    failure_drop(f);
  }
  else {
    code = check_nccl(ended, root < 0 ? "a sum over GPUs" : "a broadcast to GPUs");
  }
  for (int i = 0; i < n; i++) cuda_count(c->member[part[i].member].device, 1, 0);
  return code ? fail_group(c, code) : TY_OK;
}

static int sum_parts(struct collective *c, const struct collective_part *part, int n, int dtype)
{
  return start_parts(c, part, n, dtype, -1);
}

static int broadcast_parts(
    struct collective *c, const struct collective_part *part, int n, int dtype, int root)
{
  return start_parts(c, part, n, dtype, root);
}

/* -- order and completion of work -------------------------------------------------------------- */

static bool is_open(int id) { return __atomic_load_n(&lanes[id].opened, __ATOMIC_ACQUIRE); }

int collective_mark(uint64_t seq)
{
  for (int id = 0; id < CUDA_DEVICES; id++) {
    if (!is_open(id)) continue;
    cu_event *e = &lanes[id].mark[seq % MARKS];
    TRY(cuda_enter(TY_GPU + id));
    if (!*e) TRY(cuda_check(cu_api.EventCreate(e, CU_EVENT_DISABLE_TIMING), "making an event"));
    TRY(cuda_check(cu_api.EventRecord(*e, lanes[id].stream), "marking the end of a sum"));
  }
  return TY_OK;
}

int collective_await(cu_event e)
{
  for (int id = 0; id < CUDA_DEVICES; id++) {
    if (!is_open(id)) continue;
    TRY(cuda_enter(TY_GPU + id));
    TRY(cuda_check(cu_api.StreamWaitEvent(lanes[id].stream, e, 0), "waiting for a GPU's queue"));
  }
  return TY_OK;
}

int collective_awaited(cu_stream stream, uint64_t seq)
{
  for (int id = 0; id < CUDA_DEVICES; id++) {
    cu_event e = is_open(id) ? lanes[id].mark[seq % MARKS] : NULL;
    if (e) TRY(cuda_check(cu_api.StreamWaitEvent(stream, e, 0), "waiting for a sum over GPUs"));
  }
  return TY_OK;
}

/* Places a stamp on the collectives' stream of a GPU. */
static int leave_stamp(int device, void **made)
{
  struct lane *l = &lanes[device_id(device)];
  TRY(cuda_enter(TY_GPU + device_id(device)));
  return stamp_leave(&l->clock, l->stream, made);
}

static bool read_stamps(int device, void *first, void *last, int64_t *from, int64_t *to)
{
  int id = device_id(device);
  return !cuda_enter(TY_GPU + id) && stamp_read(&lanes[id].clock, first, last, from, to);
}

/* Asks NCCL for failures of the groups; a failure ends its group. */
static int check_groups(void)
{
  int code = TY_OK;
  pthread_mutex_lock(&lock);
  for (struct collective *c = groups; c && !code; c = c->next)
    for (int i = 0; i < c->n && !c->dead && !code; i++) {
      nccl_comm comm = __atomic_load_n(&c->member[i].comm, __ATOMIC_ACQUIRE);
      int late = 0;
      if (!comm || nccl.CommGetAsyncError(comm, &late) || late == NCCL_IN_PROGRESS) continue;
      code = check_nccl(late, "a sum or broadcast over GPUs");
      if (code) code = fail_group(c, code);
    }
  pthread_mutex_unlock(&lock);
  return code;
}

static bool has_late_failure(void)
{
  bool found = false;
  pthread_mutex_lock(&lock);
  for (struct collective *c = groups; c && !found; c = c->next)
    for (int i = 0; i < c->n && !found; i++) {
      nccl_comm comm = __atomic_load_n(&c->member[i].comm, __ATOMIC_ACQUIRE);
      int late = 0;
      found = comm && !nccl.CommGetAsyncError(comm, &late) && late && late != NCCL_IN_PROGRESS;
    }
  pthread_mutex_unlock(&lock);
  return found;
}

bool collective_busy(void)
{
  bool busy = false;
  for (int id = 0; id < CUDA_DEVICES && !busy; id++)
    busy = is_open(id) && !cuda_enter(TY_GPU + id) &&
        cu_api.StreamQuery(lanes[id].stream) == CU_NOT_READY;
  return busy && !has_late_failure();
}

static int drain_lane(int id)
{
  int before = __atomic_load_n(&aborting, __ATOMIC_SEQ_CST);
  TRY(cuda_enter(TY_GPU + id));
  for (;;) {
    int result = cu_api.StreamQuery(lanes[id].stream);
    if (result != CU_NOT_READY) return cuda_check(result, "a sum or broadcast over GPUs");
    TRY(check_groups());
    NEED(before == __atomic_load_n(&aborting, __ATOMIC_SEQ_CST), TY_ERUN,
        "NCCL: the groups of GPUs were ended");
    nanosleep(&(struct timespec){ 0, NAP_NS }, NULL);
  }
}

static int finish_queue(int device)
{
  int code = TY_OK;
  for (int id = 0; id < CUDA_DEVICES && !code; id++)
    if (is_open(id)) code = drain_lane(id);
  return code ? code : check_groups();
}

/* -- registering ------------------------------------------------------------------------------- */

void cuda_collective_register(const struct order_ops *order)
{
  static const struct device_ops queue = { .name = "collective", .finish = finish_queue,
    .stamp = leave_stamp, .stamped = read_stamps };
  static struct collective_ops ops = {
    .name = "nccl",
    .queue = &queue,
    .find = find_nccl,
    .make_id = make_id,
    .open = open_group,
    .sum = sum_parts,
    .broadcast = broadcast_parts,
    .abort = abort_all,
    .close = close_group,
  };
  ops.order = order;
  collective_register(&ops);
}
