/* comm.h - transports between ranks (struct comm_ops), and sums over ranks.
**
** A transport only moves bytes. Sums are computed by sum.c in the order of ranks, so that every
** rank gets the same bits with any transport. Calls of a transport block; one thread makes them, in
** the same order on every rank. Only `beat` is called by another thread, between them. */
#pragma once
#include "base/base.h"
#include "device/collective.h"

enum { COMM_RANKS = 4096 };                           /* most ranks of a group */
/* A rank's view of a group. A transport's own struct begins with it. */
struct comm_world {
  int rank, size;
  /* reason of the last call that returned false */
  char why[512];
  /* Groups within this one, for sums; NULL: sums do not distinguish hosts. */
  struct comm_world *intra_host;                      /* ranks on this machine */
  struct comm_world *inter_host; /* ranks with this local rank, on each machine */
  /* group from which this one was split; its `why` has the reasons of this one */
  struct comm_world *parent;
};

/* n elements; `from` may be `to`, and is not written otherwise. */
struct comm_part { const char *from; char *to; int64_t n; };

/* Results of `beat`. COMM_NO_END: all scripts have ended, but the transport does not end. */
enum { COMM_ALL_ALIVE = -1, COMM_NO_END = -2 };
struct comm_ops {
  const char *name;
  /* sizeof this struct, checked against another build */
  size_t size;
  /* Sends the first part[0] bytes of `send` to rank 0, the next part[1] to rank 1, ...; receives
  ** part[rank] bytes from each rank, in the order of ranks. This rank's own place in recv is not
  ** written. */
  bool (*exchange)(struct comm_world *w, const char *send, char *recv, const size_t *part);
  /* Fills in the parts of the other ranks. data: the parts of all ranks in order, part[i] bytes
  ** each. */
  bool (*gather)(struct comm_world *w, char *data, const size_t *part);
  bool (*broadcast)(struct comm_world *w, void *data, size_t bytes, int root);
  /* Sends a heartbeat; call it about once a second. Returns a rank that was silent for `patience`
  ** seconds, or COMM_*. NULL: ranks cannot end separately. */
  int (*beat)(struct comm_world *w, double patience);
  void (*abort)(struct comm_world *w, int status);    /* ends all ranks' processes */
  void (*close)(struct comm_world *w);
  /* Groups of devices have these instead of the functions above, except for abort and close: their
  ** library also adds, in its own order. Part i of n belongs to local rank i % local of this
  ** process. */
  int (*sum_arrays)(struct comm_world *w, const struct comm_part *part, int n, int dtype);
  int (*broadcast_arrays)(
      struct comm_world *w, const struct comm_part *part, int n, int dtype, int root);
};

/* Makes a group of `size` ranks in this process: out[0 .. size - 1]. */
int comm_threads_open(int size, struct comm_world **out);
extern const struct comm_ops comm_threads;
/* Loads libtycho_mpi.so and makes this process a rank of the group over MPI. */
int comm_mpi_open(const struct comm_ops **ops, struct comm_world **out);
/* The type of tycho_mpi_open in that library. per_host: how many consecutive ranks count as one
** host; 0: those that share memory; 1: hosts are not distinguished. */
typedef struct comm_world *(*comm_mpi_fn)(int per_host, char *why, size_t size);
/* Returns a rank on this host whose process is stopped (SIGSTOP); -1: none was seen. Not thread
** safe. */
int comm_stopped_rank(void);
/* Starts one process per host that watches ranks and launcher end. If a rank is stopped when the
** others have ended, the launcher would wait for ever, and a launcher may hang by itself: the
** watcher ends that process and reports it. It also names ranks that end without a call of
** comm_leaves. */
void comm_watch_ranks(void);
/* Reports to the watcher that this rank ends. Safe in a signal handler. */
void comm_leaves(void);
/* What processes exchange before they open a group of devices. */
struct comm_handshake {
  int32_t devices;                                    /* of this process */
  bool found;
  /* describes the library, or says why there is none */
  char text[256];
  char id[COLLECTIVE_ID];                             /* of the group; from rank 0 */
};
/* Checks that n devices can be ranks of a group, and opens the devices. */
int comm_devices_check(const int *device, int n);
/* Fills in this process's handshake. makes_id: including the group's id. A failure is put into the
** handshake, for which the others wait in any case. */
void comm_devices_offer(struct comm_handshake *out, int n, bool makes_id);
/* Opens a group of n devices of this process, which is number `own` of `size` processes, and those
** of the others, according to all handshakes. */
int comm_devices_open(const int *device, int n, const struct comm_handshake *all, int size, int own,
    struct comm_world **out);
extern const struct comm_ops comm_devices;
/* Returns the device of local rank i. */
int comm_devices_at(const struct comm_world *w, int i);
/* Aborts the operations of all groups of devices. Any thread. */
void comm_devices_abort(void);

struct comm_buffer {
  char *data;                                         /* page aligned, for faster copies */
  size_t cap;                                         /* bytes */
  void *block;                                        /* memory to free */
};
/* A job: for each part, the sum of `from` over the ranks is written to `to`. */
struct comm_sum {
  const struct comm_part *part;
  int n;                                              /* parts, all of one dtype */
  int dtype;
  int wire;                                           /* TY_WIRE_* */
  float threshold;                                    /* magnitude of a number in TY_WIRE_2BIT */
};
/* A position in the concatenation of all parts. */
struct line_position { int part; int64_t at; };
/* Sums one block of a few megabytes and advances *at, at the end to part n. */
int comm_sum(const struct comm_ops *ops, struct comm_world *w, struct comm_buffer scratch[3],
    const struct comm_sum *s, struct line_position *at);
/* Makes a buffer at least `bytes` large; its contents are lost. Returns false if out of memory. */
bool comm_reserve(struct comm_buffer *b, size_t bytes);
/* Fails with the reason of a call that returned false. what: what was being done. */
int comm_failed(const struct comm_world *w, const char *what);
