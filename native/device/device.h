/* device.h - devices as ordered queues, and the storages their tasks touch.
**
** A device runs its tasks in the order of submission. `device_submit` reads the tickets of the
** storages that a task reads and writes: the task waits for tasks of other devices with which it
** conflicts (read after write, write after read, write after write). Then its own ticket is noted
** in the storages. A task that fails marks the bytes it writes as broken; a task that reads broken
** bytes is skipped, and what it writes is broken, too. Order of calls: device_submit any number of
** times; device_wait or storage_wait before the host uses a value. What a kind of device does is in
** struct device_ops.
**
** Two kinds of host queues may run a task before earlier ones on which it does not depend
** (overtaking.c): a CPU's queue whose head waits for a message, and the queues of messages. Results
** are those of the order of submission.
*/
#pragma once
#include "base/base.h"

/* The number of a task in its queue. */
struct ticket {
  int32_t device;
  uint64_t seq;                                       /* 0: no task */
  bool whole;                                         /* wait also for all tasks before it */
};

/* Bytes on a device. Reference counted. `version` grows when a task that writes is submitted, and
** with each write by the host. It starts at a different number for each storage, so that a later
** storage at the same address never has the same version. A cache keyed by the version (packed
** weights) must read it when its task is submitted, not when the task runs: by then later writes
** may be counted. */
struct storage {
  void    *data;
  size_t   bytes;
  int32_t  device;
  int32_t  refs;
  uint64_t version;                                   /* +1 for each write, modulo 2^64; atomic */
  /* recorded calls that need this version; atomic */
  int32_t  watchers;
  /* The line of the script that last wrote the bytes while there were watchers; interned; NULL:
  ** unknown. Atomic. */
  const char *written_at;
  struct ticket write;                                /* the last submitted task that writes */
  /* the last submitted readers, one per device */
  struct ticket read[4];
  /* Why bytes failed_begin .. failed_end - 1 are broken; NULL: none are. Reads of them fail until
  ** they are written. */
  struct failure *failed;
  size_t failed_begin, failed_end;
  /* What failed was a change in place: the old bytes count as valid again once the failure is
  ** reported. */
  bool failed_once;
  /* Set for weights, optimizer states and the like: if a change in place fails, the old value
  ** stays, and counts as valid again once the failure is reported. Atomic. */
  bool lasting;
  void   (*release)(void *owner, void *data);         /* frees the bytes; NULL: borrowed */
  void    *owner;
  /* atomic: where the bytes will come from, NULL if they have been written */
  struct storage_source *source;
  /* Recorded calls that read these bytes and are not submitted yet (lazy/backlog.c). Atomic. */
  int32_t  awaited;
  /* Code outside the library has the address, so the bytes may change without a task or a call.
  ** Atomic. */
  bool     exposed;
  /* number of the last walk over storages that visited it */
  uint64_t seen;
  int32_t  index;                                     /* its index in that walk */
};

/* Where the bytes of a storage come from when they are first needed. */
struct storage_source {
  /* Writes the bytes. If it fails, the next use tries again. */
  int (*load)(void *context, void *to, size_t bytes);
  /* Called once: after the bytes are there, or with the storage. */
  void (*drop)(void *context);
  void *context;
};
/* Source of a storage that work not yet submitted will fill. It may have no memory. */
extern struct storage_source storage_promise;
/* Submits the pending work that fills s, or with s NULL all pending work. Set by lazy/. */
extern int (*storage_settle)(struct storage *s);
/* Makes a storage without memory, on any device, whose source is storage_promise. */
int  storage_promised(int device, size_t bytes, struct storage **out);
/* Allocates the memory of a promised storage. Its contents are undefined. */
int  storage_fulfil(struct storage *s);
/* Frees the memory of a storage, which is a promised one again. */
void storage_unfulfil(struct storage *s);
/* Submits the pending work that reads s. Fails if some of it cannot be submitted yet. Set by
** lazy/. */
extern int (*storage_settle_reads)(struct storage *s);
/* Submits recorded calls that read the bytes. Call it before writing them. */
static inline int storage_before_write(struct storage *s)
{
  return __atomic_load_n(&s->awaited, __ATOMIC_RELAXED) ? storage_settle_reads(s) : TY_OK;
}
/* Makes a storage of uninitialised, 64-byte aligned bytes. */
int  storage_new(int device, size_t bytes, struct storage **out);
/* Makes a storage of zeros on a CPU. */
int  storage_zeros(int device, size_t bytes, struct storage **out);
/* Makes a storage on a CPU that takes no memory before its first use. If this fails, the caller
** still owns `source`. */
int  storage_lazy(int device, size_t bytes, struct storage_source source, struct storage **out);
/* Loads the bytes of a storage that has a source. */
int  storage_load_now(struct storage *s);
/* Loads the bytes if they are not there. device_submit and storage_wait do so themselves; call this
** before using `data`. */
static inline int storage_load(struct storage *s)
{
  return __atomic_load_n(&s->source, __ATOMIC_ACQUIRE) ? storage_load_now(s) : TY_OK;
}
/* Makes a storage over memory of the caller; `release` is called when the last reference is
** dropped. */
int storage_wrap(int device, void *data, size_t bytes, void (*release)(void *, void *), void *owner,
    struct storage **out);
/* Adds a reference. Returns s. */
struct storage *storage_keep(struct storage *s);
/* Drops one reference; NULL is allowed. Queued tasks hold references of their own. */
void storage_free(struct storage *s);
/* Bytes begin .. end - 1 of a storage that a task reads or writes. */
struct access {
  struct storage *storage;
  size_t begin, end;
  /* A write that changes the old bytes, which stay as they are if the task does not run. */
  bool in_place;
};
static inline struct access access_all(struct storage *s)
{
  return (struct access){ s, 0, SIZE_MAX, false };
}

/* Waits until the host may read or, for_write, write the bytes. Fails each time while they are
** broken, with the cause, until a task or the host writes them. */
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
/* Waits as storage_wait does, but ignores failures. */
void storage_wait_quiet(struct storage *s, int for_write);
static inline void storage_set_lasting(struct storage *s)
{
  __atomic_store_n(&s->lasting, true, __ATOMIC_RELAXED);
}
/* Notes a write by the host; it increases the version. */
void storage_written(struct storage *s);
/* Marks the bytes as broken by f, adding a reference, or with f NULL as written. */
void storage_mark(const struct access *a, struct failure *f);
/* Returns why some of the bytes are broken, with a reference; NULL: none are. */
struct failure *storage_failure(const struct access *a);
/* Returns whether some of the bytes are broken. */
bool storage_failed(const struct access *a);

enum { TASK_GOES_ON = -1 };
/* Most bytes that a task with `small` reads and writes. */
enum { SMALL_TASK = 32 << 10 };
/* A task runs on the queue's thread; a small one may run on the caller's, before device_submit
** returns, but its failure too is only reported by a wait. The queue holds a reference to each
** storage. A task must not submit tasks, nor wait for its own device. */
struct task {
  /* Returns TY_OK, or an error code with this thread's failure set. On a queue of messages also
  ** TASK_GOES_ON: it is called again, perhaps after other tasks. */
  int  (*run)(void *context);
  /* Called once on the same thread after `run`, or without it if the task is skipped or
  ** device_submit fails; may be NULL. */
  void (*done)(void *context);
  void  *context;
  /* device_submit copies them, unless `lasting` */
  const struct access *read, *write;
  int    nread, nwrite;
  const struct ticket *after;                         /* further tickets to wait for */
  int nafter;
  size_t held;                                        /* bytes that only this task keeps alive */
  /* A few microseconds of work: the caller runs it if the queue is idle. */
  bool   small;
  /* never overtakes another task with in_order */
  bool   in_order;
  bool   lasting;                                     /* read and write stay valid until `done` */
  /* Chooses which of n tasks that have `choose` and could run now is next. Gets their contexts in
  ** the order of submission, that of the head first. Called on the queue's thread. NULL: the head
  ** is next. */
  int  (*choose)(void *const *context, int n);
};
/* Queues a task, or runs it. out: gets its ticket; may be NULL. If it fails, the task is not
** queued, and `done` has been called. With TYCHO_SYNC=1 a failure of the task is returned, too. */
int  device_submit(int device, const struct task *t, struct ticket *out);
/* Opens a device at its first use. Fails with TY_EDEVICE and the reason. */
int  device_open(int device);
/* Waits for all tasks of a device (-1: of all devices). Fails with the first failure not yet
** reported. */
int  device_wait(int device);
/* Returns whether the task has completed. */
bool ticket_past(struct ticket t);
/* Waits until the task has completed; ignores failures. */
void ticket_wait(struct ticket t);
/* Returns whether device_submit runs tasks in the caller's thread (TYCHO_SYNC=1). */
bool device_sync(void);
/* Writes the name of a device, as "cpu(0)", and returns buffer. */
const char *device_name(int device, char *buffer, size_t size);
/* Parses the name of a device: "gpu(1)" is TY_GPU + 1. */
int  device_parse(const char *text, int *device);

/* The random state of a device. Each call of an operator and each run of an executor that uses
** random numbers takes the next counter. */
struct rng_state { uint64_t seed, counter; };
/* Returns the state with the next counter, and advances it. */
struct rng_state device_next_rng(int device);

/* Memory that grows: reserved address space, committed as needed. A range that cannot grow in place
** moves. */
struct range { int32_t device; char *base; size_t bytes, reserved; };
int  range_new(int device, struct range *out);
/* Grows a range to at least `bytes`. The contents are kept; *moved tells whether the address
** changed. */
int  range_grow(struct range *r, size_t bytes, bool *moved);
/* Frees the memory beyond the first `bytes`. */
void range_trim(struct range *r, size_t bytes);
void range_free(struct range *r);

/* The operations of a kind of device, which a back end registers. alloc and range_grow return NULL
** or false if out of memory; the others return a code with a failure set. */
struct device_ops {
  const char *name;                                   /* "gpu" */
  int   (*count)(void);
  int   (*open)(int device);                          /* TY_EDEVICE: why it cannot be used */
  /* Called first on the queue's thread; may be NULL. */
  int   (*enter)(int device);
  /* Waits for all work that tasks have started; NULL: tasks have ended when `run` returns. */
  int   (*finish)(int device);
  /* Returns whether a failure has lost the device for good; on the queue's thread; may be NULL. */
  bool  (*lost)(int device);
  void *(*alloc)(int device, size_t bytes);           /* 64-byte aligned */
  /* new blocks of this size and more are zeros; 0: none */
  size_t  blank;
  /* Zeros a block of alloc. Only CPUs have it (storage_zeros). */
  void  (*clear)(void *data, size_t bytes);
  void  (*release)(int device, void *data, size_t bytes);
  /* Copies; either side may be a CPU. The copy has ended on return, except on the device's queue
  ** thread, where it may only have been started, like other work of a task. */
  int   (*copy)(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
  /* Sets each byte, in order with kernels; on the queue's thread. */
  int   (*fill)(int device, void *data, int value, size_t bytes);
  /* Returns host memory that is fastest for copies to and from the device: a single block, valid
  ** until the next call; on the queue's thread. The CPU has none. */
  int   (*staging)(int device, size_t bytes, void **out);
  int   (*convert)(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
  bool  (*range_grow)(struct range *r, size_t bytes, bool *moved);
  void  (*range_trim)(struct range *r, size_t bytes);
  void  (*range_free)(struct range *r);
  int64_t (*memory)(int device);                      /* total bytes */
  /* Returns how many kernels and library calls (those of replays included), and how many copies and
  ** fills were started so far; NULL: they are not counted. */
  void  (*work)(int device, int64_t *launches, int64_t *copies);
  int64_t (*available)(int device);                   /* bytes free now; -1: unknown; may be NULL */
  /* Adds text of the form "model, abilities, " about an open device; may be NULL. */
  void  (*describe)(int device, struct text *t);
  /* Begins a recording: work started from now on is recorded instead of done; on the queue's
  ** thread. NULL: the device cannot record. */
  int   (*record)(int device);
  /* Ends the recording and returns it in *made, or drops it if made is NULL; on the queue's
  ** thread. */
  int   (*recorded)(int device, void **made);
  /* Starts all work of a recording; on the queue's thread. */
  int   (*replay)(int device, void *made);
  /* Frees a recording; any thread. */
  void  (*forget)(int device, void *made);
  /* Makes a time stamp that the device sets when all work started so far has ended; on the queue's
  ** thread. NULL: work has ended when calls return. */
  int   (*stamp)(int device, void **made);
  /* Returns the times of two stamps in ns of profile_now, and frees the stamps, which may be NULL.
  ** Returns false if one of them was not set. */
  bool  (*stamped)(int device, void *first, void *last, int64_t *from, int64_t *to);
};
/* Registers a kind, TY_CPU or TY_GPU. */
void device_register(int kind, const struct device_ops *ops);
/* Returns the operations of a device; NULL: no such kind. */
const struct device_ops *device_ops(int device);
/* Copies bytes within a device, or between it and a CPU; on the queue's thread, in order with
** kernels. */
int  device_copy(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
/* Sets each byte; on the queue's thread. */
int  device_fill(int device, void *data, int value, size_t bytes);
/* Converts n elements on the device from one dtype to another; on the queue's thread. */
int  device_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
/* Waits until the device has done the work that its tasks have started; does nothing for a CPU. */
int  device_finish(int device);
/* Numbers of queues that are no devices, for messages that travel while kernels run. Tasks of the
** COMM_QUEUES queues from COMM_QUEUE on use arrays of CPUs, those of COLLECTIVE_QUEUE arrays of
** GPUs (collective.h). */
enum { COMM_QUEUE = 768, COMM_QUEUES = 16, COLLECTIVE_QUEUE = 1024 };
static inline int device_kind(int device) { return device & ~255; }
static inline int device_id(int device) { return device & 255; }
/* Called at exit, before queues end: it must end what a task may be waiting for. Set by comm/. */
extern void (*device_closing)(void);
extern const struct device_ops cpu_ops;
