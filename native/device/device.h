/* device.h - devices as ordered queues, and the storages their tasks touch.
**
** A device runs its tasks in the order of submission. `device_submit` looks at the tickets of
** the storages a task reads and writes: if another device's task has not completed (read
** after write, write after read, write after write), the new task waits for it before it runs.
** Then the task's own ticket is noted in the storages. A task that fails marks the bytes it
** writes; a task that reads marked bytes is skipped and marks its own. Order of calls:
** device_submit any number of times; device_wait or storage_wait where a value is needed on the
** host. Nothing here knows a CPU: what a kind of device does is in struct device_ops.
**
** Two kinds of queues of the host run a task before earlier ones if neither needs anything of the
** other, so that results are those of the order of submission (overtaking.c): one whose head waits
** for a message, and that of messages.
*/
#pragma once
#include "base/base.h"

/* The number of a task in its queue. */
struct ticket {
  int32_t device;
  uint64_t seq;                                       /* 0: no task */
  bool whole;                                         /* that task and all before it */
};

/* Bytes on a device. Reference counted. `version` counts writes in the order of submission, from a
** number of the storage's own: two storages that have the same address one after the other never
** have the same version. It grows when a task that writes is submitted, and with each write by the
** host. A cache keyed by the version (packed weights) must take it when its task is submitted, not
** when the task runs: by then later writes may be counted. */
struct storage {
  void    *data;
  size_t   bytes;
  int32_t  device;
  int32_t  refs;
  uint64_t version;                                   /* +1 for each write, modulo 2^64; atomic */
  int32_t  watchers;                                  /* recorded calls that need this version */
  /* The line of the script that wrote the bytes last while there were watchers; interned; NULL: not
  ** known. Atomic, as is `watchers`. */
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
  void   (*release)(void *owner, void *data);         /* gives the bytes back; NULL: borrowed */
  void    *owner;
  struct storage_source *source;                      /* atomic; NULL: the bytes are there */
  /* Calls that read these bytes and are not submitted yet (lazy/backlog.c). Atomic. */
  int32_t  awaited;
  /* The bytes may change without a task or a call: their address is known outside. Atomic. */
  bool     exposed;
  uint64_t seen;                                      /* last walk over storages that visited it */
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
/* Source of a storage that work not submitted yet will fill. Its bytes may be missing. */
extern struct storage_source storage_promise;
/* Submits work that is not submitted yet: what fills s, or with s NULL all of it. */
extern int (*storage_settle)(struct storage *s);
/* Makes a storage without bytes, on any device, whose source is storage_promise. */
int  storage_promised(int device, size_t bytes, struct storage **out);
/* Gives a promised storage its bytes, which are undefined. */
int  storage_fulfil(struct storage *s);
/* Frees the bytes of a storage, which is promised again. */
void storage_unfulfil(struct storage *s);
/* Submits the work that reads the bytes of s. Fails where some of it cannot be submitted yet. */
extern int (*storage_settle_reads)(struct storage *s);
/* Submits recorded calls that read the bytes; call it before other code writes them. */
static inline int storage_before_write(struct storage *s)
{
  return __atomic_load_n(&s->awaited, __ATOMIC_RELAXED) ? storage_settle_reads(s) : TY_OK;
}
/* Makes a storage of uninitialised, 64-byte aligned bytes. */
int  storage_new(int device, size_t bytes, struct storage **out);
/* Makes a storage of zeros on a CPU. */
int  storage_zeros(int device, size_t bytes, struct storage **out);
/* Makes a storage of a CPU that takes no memory before its bytes are needed. If it fails, `source`
** stays the caller's. */
int  storage_lazy(int device, size_t bytes, struct storage_source source, struct storage **out);
int  storage_load_now(struct storage *s);
/* Loads the bytes if they are not there. Tasks and the host's reads and writes do so; call it
** before taking the address of bytes. */
static inline int storage_load(struct storage *s)
{
  return __atomic_load_n(&s->source, __ATOMIC_ACQUIRE) ? storage_load_now(s) : TY_OK;
}
/* Makes a storage over bytes of the caller; `release` gives them back with the last reference. */
int storage_wrap(int device, void *data, size_t bytes, void (*release)(void *, void *), void *owner,
    struct storage **out);
/* Adds a reference. Returns s. */
struct storage *storage_keep(struct storage *s);
/* Drops one reference; NULL allowed. Queued tasks hold theirs. */
void storage_free(struct storage *s);
/* Bytes begin .. end - 1 of a storage that a task reads or writes. */
struct access {
  struct storage *storage;
  size_t begin, end;
  /* A write that changes the old bytes; they stay as they are if the task does not run. */
  bool in_place;
};
static inline struct access access_all(struct storage *s)
{
  return (struct access){ s, 0, SIZE_MAX, false };
}

/* Waits until the host may read (write) the storage. Fails with what broke the bytes, each time,
** until a task or the host writes them. */
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
/* Waits as storage_wait does, but reports no failure. */
void storage_wait_quiet(struct storage *s, int for_write);
static inline void storage_set_lasting(struct storage *s)
{
  __atomic_store_n(&s->lasting, true, __ATOMIC_RELAXED);
}
/* Counts a write by the host. */
void storage_written(struct storage *s);
/* Marks the bytes as broken by f, which it keeps, or with f NULL as written. */
void storage_mark(const struct access *a, struct failure *f);
/* Returns what broke some of the bytes, with a reference; NULL: nothing did. */
struct failure *storage_failure(const struct access *a);
bool storage_failed(const struct access *a);

enum { TASK_GOES_ON = -1 };
/* Bytes that a small task reads and writes, at most. */
enum { SMALL_TASK = 32 << 10 };
/* A task runs on the queue's thread; a small one may run on the caller's before device_submit
** returns, and fails as others do, in a wait for what it wrote. The queue holds a reference to each
** storage. A task never submits, and never waits for its own device. */
struct task {
  /* Returns TY_OK or an error code with this thread's failure set; on a queue of messages also
  ** TASK_GOES_ON: it runs again, perhaps after others. */
  int  (*run)(void *context);
  /* Called once on the same thread after `run`, or without it if the task is skipped or
  ** device_submit fails; may be NULL. */
  void (*done)(void *context);
  void  *context;
  const struct access *read, *write;                  /* copied by device_submit, if not lasting */
  int    nread, nwrite;
  const struct ticket *after;                         /* further tickets to wait for */
  int nafter;
  size_t held;                                        /* bytes that only the queue keeps alive */
  /* Some microseconds of work: the caller does it at once if the queue is idle. */
  bool   small;
  bool   in_order;                                    /* runs after earlier tasks that are so too */
  bool   lasting;                                     /* the lists stay until `done` is called */
  /* Returns which of n tasks that have `choose` and could run now is the next, from their contexts
  ** in the order of submission, of which the first is the head's. On the queue's thread; NULL: the
  ** head is the next. */
  int  (*choose)(void *const *context, int n);
};
/* Queues a task, or runs it; out, which may be NULL, gets its ticket. */
int  device_submit(int device, const struct task *t, struct ticket *out);
/* Opens a device at its first use. Fails with TY_EDEVICE and the reason. */
int  device_open(int device);
/* Waits for all tasks of a device (-1: of all devices), and reports the first pending failure. */
int  device_wait(int device);
/* Returns whether the task has completed. */
bool ticket_past(struct ticket t);
void ticket_wait(struct ticket t);
/* Returns whether device_submit runs tasks in the caller's thread (TYCHO_SYNC=1). */
bool device_sync(void);
/* Writes the name of a device, as "cpu(0)", and returns buffer. */
const char *device_name(int device, char *buffer, size_t size);
/* Reads the name of a device: "gpu(1)" is TY_GPU + 1. */
int  device_parse(const char *text, int *device);

/* The random state of a device. Each use of random numbers, a call of an operator or a run of an
** executor, takes the next counter. */
struct rng_state { uint64_t seed, counter; };
struct rng_state device_next_rng(int device);

/* Ranges that grow: reserved address space, committed as needed; a range that cannot grow in
** place moves. */
struct range { int32_t device; char *base; size_t bytes, reserved; };
int  range_new(int device, struct range *out);
/* Makes a range at least so large. The contents are kept; *moved: at another address. */
int  range_grow(struct range *r, size_t bytes, bool *moved);
/* Gives the bytes from `bytes` on back. */
void range_trim(struct range *r, size_t bytes);
void range_free(struct range *r);

/* What a kind of device does. A back end fills one of these and registers it; nothing else is
** called on a device. alloc and range_* may fail with NULL or false (out of memory), the others
** with a code and a failure. */
struct device_ops {
  const char *name;                                   /* "gpu" */
  int   (*count)(void);
  int   (*open)(int device);                          /* TY_EDEVICE with the reason */
  /* Called first on the queue's thread; may be NULL. */
  int   (*enter)(int device);
  /* Waits for what tasks have started; NULL: `run` waits itself. */
  int   (*finish)(int device);
  /* Returns whether the device is lost for good, after a failure; on the queue's thread; may be
  ** NULL. */
  bool  (*lost)(int device);
  void *(*alloc)(int device, size_t bytes);           /* 64-byte aligned */
  size_t  blank;                                      /* blocks from here on are zeros; 0: none */
  /* Zeros a block of alloc; only of devices that have storage_zeros. */
  void  (*clear)(void *data, size_t bytes);
  void  (*release)(int device, void *data, size_t bytes);
  /* Copies; either side may be a CPU. The copy has ended on return, except on the device's own
  ** queue thread, where it may only have been started like other work of a task. */
  int   (*copy)(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
  /* Sets each byte, in the order of the queue as a kernel does; on its thread. */
  int   (*fill)(int device, void *data, int value, size_t bytes);
  /* Returns memory of the host from which copies to the device and back are fastest: one block,
  ** valid until the next call; on the queue's thread. The CPU has none. */
  int   (*staging)(int device, size_t bytes, void **out);
  int   (*convert)(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
  bool  (*range_grow)(struct range *r, size_t bytes, bool *moved);
  void  (*range_trim)(struct range *r, size_t bytes);
  void  (*range_free)(struct range *r);
  int64_t (*memory)(int device);                      /* total bytes */
  /* Counts what was started so far: kernels and calls of libraries, with those of each replay, and
  ** copies with fills; NULL: it counts nothing. */
  void  (*work)(int device, int64_t *launches, int64_t *copies);
  int64_t (*available)(int device);                   /* bytes free now; -1: unknown; may be NULL */
  /* Adds "its model, what it can, " of an open device; may be NULL. */
  void  (*describe)(int device, struct text *t);
  /* Begins a recording: work started from here on is recorded, not done; on the queue's thread.
  ** NULL: the device cannot record. */
  int   (*record)(int device);
  /* Ends the recording; *made gets it. made NULL: drops it. On the queue's thread. */
  int   (*recorded)(int device, void **made);
  /* Starts all work of a recording; on the queue's thread. */
  int   (*replay)(int device, void *made);
  /* Frees a recording; any thread. */
  void  (*forget)(int device, void *made);
  /* Makes a stamp of the time when all that was started so far has ended; on the queue's thread.
  ** NULL: calls return when their work has ended. */
  int   (*stamp)(int device, void **made);
  /* Frees two stamps, which may be NULL; *from and *to get their times, in ns of profile_now.
  ** Returns false if one of them was not reached. */
  bool  (*stamped)(int device, void *first, void *last, int64_t *from, int64_t *to);
};
/* Registers a kind, TY_CPU or TY_GPU. */
void device_register(int kind, const struct device_ops *ops);
/* Returns the operations of a device; NULL: no such kind. */
const struct device_ops *device_ops(int device);
/* Copies bytes of the device, or between it and a CPU, on a queue's thread and in its order. */
int  device_copy(int dst_device, void *dst, int src_device, const void *src, size_t bytes);
int  device_fill(int device, void *data, int value, size_t bytes);
int  device_convert(int device, void *dst, int dst_type, const void *src, int src_type, int64_t n);
/* Waits until the device has done what its task has started; a CPU has. */
int  device_finish(int device);
/* Queues without memory of their own, for messages that travel while kernels run: tasks of the
** COMM_QUEUES first ones use arrays of CPUs, those of the last one arrays of GPUs
** (collective.h). */
enum { COMM_QUEUE = 768, COMM_QUEUES = 16, COLLECTIVE_QUEUE = 1024 };
static inline int device_kind(int device) { return device & ~255; }
static inline int device_id(int device) { return device & 255; }
/* Called when the process ends, before queues do: ends what a task may be waiting for. */
extern void (*device_closing)(void);
extern const struct device_ops cpu_ops;
