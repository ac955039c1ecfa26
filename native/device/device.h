/* device.h - devices as ordered queues, and the storages their tasks touch.
**
** A device runs its tasks in the order of submission. `device_submit` looks at the tickets of
** the storages a task reads and writes: where another device's task is still under way (read
** after write, write after read, write after write), the new task waits for it before it runs.
** Then the task's own ticket is noted in the storages. A task that fails marks the bytes it
** writes; a task that reads marked bytes is skipped and marks its own. Order of calls:
** device_submit any number of times; device_wait or storage_wait where a value is needed on the
** host. Nothing here knows a CPU: what a kind of device does stands behind struct device_ops.
**
** Two queues of the host run a task before others that stand in front of it, where it needs nothing
** of theirs and they nothing of it, so that results are those of the order of submission
** (overtaking.c): one whose head waits for a message, and that of messages.
*/
#pragma once
#include "base/base.h"

/* seq 0: none; whole: that task and all before it in its queue */
struct ticket { int32_t device; uint64_t seq; bool whole; };

/* Bytes on a device. Reference counted. `version` counts writes in the order of submission, from a
** number of the storage's own: two storages that have the same address one after the other never
** have the same version. It grows when a task that writes is submitted, and with each write by the
** host. Who caches by version (packed weights) must note it when it submits its task, not when the
** task runs: by then it may already count later writes. */
struct storage {
  void    *data;
  size_t   bytes;
  int32_t  device;
  int32_t  refs;
  uint64_t version;                                   /* +1 for each write, modulo 2^64; atomic */
  /* Recorded calls that need this version, and the line of the script that wrote the bytes last
  ** while there were some (interned; NULL: not known). Atomic. */
  int32_t  watchers;
  const char *written_at;
  struct ticket write;                                /* the last task that writes it */
  struct ticket read[4];                              /* the last reads, one per device */
  /* What broke the bytes failed_begin .. failed_end - 1; NULL: nothing. Reads of them fail until
  ** they are written. */
  struct failure *failed;
  size_t failed_begin, failed_end;
  /* The bytes are good again once the failure is reported: what failed was a change in place. */
  bool failed_once;
  /* Atomic. Weights, optimizer states and their like: a change in place that fails leaves the old
  ** value, which is good again once the failure is reported. */
  bool lasting;
  void   (*release)(void *owner, void *data);         /* gives the bytes back; NULL: not ours */
  void    *owner;
  struct storage_source *source;                      /* atomic; NULL: the bytes are there */
  /* Calls that read these bytes and are not submitted yet (lazy/backlog.c). Atomic. */
  int32_t  awaited;
  /* The bytes may change without a task or a call: their address is known outside. Atomic. */
  bool     exposed;
  /* The walk over many storages that has met this one last, and its index there. */
  uint64_t seen;
  int32_t  index;
};

/* Where the bytes of a storage come from when they are first needed. Each use tries again where it
** fails. `drop` is called once: after the bytes are there, or with the storage. */
struct storage_source {
  int (*load)(void *context, void *to, size_t bytes);
  void (*drop)(void *context);
  void *context;
};
/* Source of a storage that work not submitted yet will fill. Its bytes may be missing. */
extern struct storage_source storage_promise;
/* Submits work that is not submitted yet: what fills s, or with s NULL all of it. */
extern int (*storage_settle)(struct storage *s);
/* Makes a storage without bytes, on any device, whose source is storage_promise. */
int  storage_promised(int device, size_t bytes, struct storage **out);
/* Gives a promised storage its bytes, undefined; it is as any other from then on. */
int  storage_fulfil(struct storage *s);
/* Takes them away: it is promised again. */
void storage_unfulfil(struct storage *s);
/* Has the work done that reads the bytes before somebody else writes them. */
static inline int storage_before_write(struct storage *s)
{
  return __atomic_load_n(&s->awaited, __ATOMIC_RELAXED) ? storage_settle(NULL) : TY_OK;
}
/* uninitialised, 64-byte aligned */
int  storage_new(int device, size_t bytes, struct storage **out);
int  storage_zeros(int device, size_t bytes, struct storage **out);        /* on a CPU */
/* Makes a storage of a CPU that takes no memory before its bytes are needed. Where it fails,
** `source` is still the caller's. */
int  storage_lazy(int device, size_t bytes, struct storage_source source, struct storage **out);
int  storage_load_now(struct storage *s);
/* Has the bytes there: tasks and the host's reads and writes do so; who takes the address of bytes
** before either does it first. */
static inline int storage_load(struct storage *s)
{
  return __atomic_load_n(&s->source, __ATOMIC_ACQUIRE) ? storage_load_now(s) : TY_OK;
}
int storage_wrap(int device, void *data, size_t bytes, void (*release)(void *, void *), void *owner,
    struct storage **out);
struct storage *storage_keep(struct storage *s);
/* drops one reference; queued tasks hold theirs */
void storage_free(struct storage *s);
/* Bytes begin .. end - 1 of a storage that a task reads or writes. */
struct access {
  struct storage *storage;
  size_t begin, end;
  /* of a write: it changes the old bytes, which stay as they are where the task does not run */
  bool in_place;
};
static inline struct access access_all(struct storage *s)
{
  return (struct access){ s, 0, SIZE_MAX, false };
}

/* Waits until the host may read (write) the storage. Fails with what broke the bytes, each time,
** until something writes them. */
int  storage_wait(const struct access *a, int for_write);

static inline void storage_watch(struct storage *s)
{
  __atomic_add_fetch(&s->watchers, 1, __ATOMIC_RELAXED);
}
static inline void storage_unwatch(struct storage *s)
{
  __atomic_sub_fetch(&s->watchers, 1, __ATOMIC_RELAXED);
}
static inline uint64_t storage_version(const struct storage *s)
{
  return __atomic_load_n(&s->version, __ATOMIC_RELAXED);
}
/* Waits likewise, but reports no failure. */
void storage_wait_quiet(struct storage *s, int for_write);
static inline void storage_set_lasting(struct storage *s)
{
  __atomic_store_n(&s->lasting, true, __ATOMIC_RELAXED);
}
/* Counts a write by the host. */
void storage_written(struct storage *s);
/* Marks the bytes as broken by f, which it keeps, or with f NULL as written. */
void storage_mark(const struct access *a, struct failure *f);
/* Returns what broke some of the bytes, with a reference; NULL: nothing. */
struct failure *storage_failure(const struct access *a);
bool storage_failed(const struct access *a);

/* A task: run on the queue's thread; `done` always runs after it (also when skipped), there too.
** A small one may run on the caller's, before device_submit returns; it fails as others do, when
** somebody waits for what it wrote. run returns TY_OK or an error code with this thread's
** failure set. The queue holds a reference to each storage. A task never submits, and never
** waits for its own device. When device_submit itself fails, `done` has run as well. On a queue of
** messages `run` may return TASK_GOES_ON: it runs again, perhaps behind others. */
enum { TASK_GOES_ON = -1 };
/* bytes that a small one reads and writes, at most */
enum { SMALL_TASK = 32 << 10 };
struct task {
  int  (*run)(void *context);
  void (*done)(void *context);                        /* may be NULL */
  void  *context;
  const struct access *read, *write;                  /* copied by device_submit */
  int    nread, nwrite;
  const struct ticket *after;                         /* further tickets to wait for */
  int nafter;
  /* bytes that only the queue keeps alive (back-pressure) */
  size_t held;
  /* some microseconds of work: done at once, by the caller, where nothing stands before it */
  bool   small;
  /* goes before none of its queue that say so too, whatever they touch */
  bool   in_order;
  /* On the queue's thread: which of n tasks that say `choose` and could run now goes first. Their
  ** contexts, in the order of submission; the first one is the head's. NULL: the head goes */
  int  (*choose)(void *const *context, int n);
};
int  device_submit(int device, const struct task *t, struct ticket *out);  /* out may be NULL */
/* TY_EDEVICE with the reason; opens on first use */
int  device_open(int device);
/* drains; -1: all; tells the first pending failure */
int  device_wait(int device);
bool ticket_past(struct ticket t);
void ticket_wait(struct ticket t);
bool device_sync(void);                               /* TYCHO_SYNC=1: device_submit runs inline */
const char *device_name(int device, char *buffer, size_t size);            /* "cpu(0)" */
int  device_parse(const char *text, int *device);     /* "gpu(1)" -> TY_GPU + 1 */

/* The random state of a device: every draw (a call of an operator or a run of an executor that
** needs random numbers) takes the next counter. */
struct rng_state { uint64_t seed, counter; };
struct rng_state device_next_rng(int device);

/* Ranges that grow: reserved address space, committed as needed; a range that cannot grow in
** place moves. */
struct range { int32_t device; char *base; size_t bytes, reserved; };
int  range_new(int device, struct range *out);
int  range_grow(struct range *r, size_t bytes, bool *moved);               /* contents are kept */
void range_trim(struct range *r, size_t bytes);
void range_free(struct range *r);

/* What a kind of device does. A plugin fills one of these and registers it; the core calls
** nothing else on a device. alloc and range_* may fail with NULL or false (out of memory), the
** others with a code and a failure. copy: either side may be a CPU; it has ended when it
** returns, except on the device's own queue thread, where it may merely have been started like
** any other work of a task. */
struct device_ops {
  const char *name;                                   /* "gpu" */
  int   (*count)(void);
  int   (*open)(int device);                          /* TY_EDEVICE with the reason */
  /* first thing on the queue's thread; may be NULL */
  int   (*enter)(int device);
  /* waits for what tasks have started; NULL: run waits itself */
  int   (*finish)(int device);
  /* behind a failure, on the queue's thread: it will never do anything again; may be NULL */
  bool  (*lost)(int device);
  void *(*alloc)(int device, size_t bytes);           /* 64-byte aligned */
  /* so many bytes and more come from alloc as zeros; 0: none do */
  size_t  blank;
  /* zeros, in a block of alloc's; only where there is storage_zeros */
  void  (*clear)(void *data, size_t bytes);
  void  (*release)(int device, void *data, size_t bytes);
  int   (*copy)(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
  /* each byte = value, in the order of the queue as a kernel is; called on its thread */
  int   (*fill)(int device, void *data, int value, size_t bytes);
  /* memory of the host that copies to and from the device like best, on the queue's thread; one
  ** block, good until the next call. The CPU has none */
  int   (*stage)(int device, size_t bytes, void **out);
  int   (*convert)(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
  bool  (*range_grow)(struct range *r, size_t bytes, bool *moved);
  void  (*range_trim)(struct range *r, size_t bytes);
  void  (*range_free)(struct range *r);
  int64_t (*memory)(int device);                      /* bytes in all */
  /* what it was given so far: kernels and calls of libraries, those of what is replayed each time;
  ** copies and fills; NULL: it counts nothing */
  void  (*work)(int device, int64_t *launches, int64_t *copies);
  int64_t (*available)(int device);                   /* of these now; -1: unknown; may be NULL */
  /* "its model, what it can, " of an open one; may be NULL */
  void  (*describe)(int device, struct text *t);
  /* On the queue's thread: what is started from here on is recorded, not done; that ends, with all
  ** of it in *made (NULL: it is dropped); all of it is started. forget: any thread. NULL: the
  ** device cannot */
  int   (*record)(int device);
  int   (*recorded)(int device, void **made);
  int   (*replay)(int device, void *made);
  void  (*forget)(int device, void *made);
  /* On the queue's thread. stamp: the time when all that was started so far has ended, in *made;
  ** stamped: both stamps go back (they may be NULL); false: one of them was not reached, else *from
  ** and *to are their times, in ns of profile_now. NULL: calls return when their work has ended */
  int   (*stamp)(int device, void **made);
  bool  (*stamped)(int device, void *first, void *last, int64_t *from, int64_t *to);
};
void device_register(int kind, const struct device_ops *ops);              /* TY_CPU, TY_GPU */
const struct device_ops *device_ops(int device);      /* NULL: no such kind */
/* On a queue's thread, in its order: bytes of the device, or between it and a CPU. */
int  device_copy(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
int  device_fill(int device, void *data, int value, size_t bytes);
int  device_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
/* waits until what the device's task has started is done; a CPU has done it */
int  device_finish(int device);
/* Queues without memory of their own, for what travels while kernels run: tasks of the first name
** CPU arrays, those of the last one arrays of GPUs (collective.h). */
enum { COMM_QUEUE = 768, COMM_QUEUES = 16, COLLECTIVE_QUEUE = 1024 };
static inline int device_kind(int device) { return device & ~255; }
static inline int device_id(int device) { return device & 255; }
/* called when the process ends, before queues do: ends what a task may be waiting for */
extern void (*device_closing)(void);
extern const struct device_ops cpu_ops;
