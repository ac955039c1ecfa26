/* comm.h - transports between ranks (struct comm_ops), and what one rank of a group keeps.
**
** A transport moves bytes and nothing else: sums are made here (sum.c), in the order of ranks, so
** that every rank has the same bits with any transport. Its calls block; one thread makes them, in
** the same order on every rank, but for `beat`, which a second thread calls between them. */
#pragma once
#include "base/base.h"
#include "device/collective.h"

enum { COMM_RANKS = 4096 };                           /* ranks of a group, at most */
/* A rank's membership in a group; that of a transport begins with it. */
struct comm_world {
  int rank, size;
  char why[512];                                      /* why a call returned false */
  /* Groups within this one for sums; NULL: these do not distinguish hosts. */
  struct comm_world *intra_host;                      /* ranks on this machine */
  struct comm_world *inter_host; /* ranks with this local rank, on each machine */
  struct comm_world *parent;                          /* group this was split from; has `why` */
};

/* n elements; `from` may be `to`, and is only read. */
struct comm_part { const char *from; char *to; int64_t n; };

/* COMM_NO_END: all scripts have ended, but the transport does not. */
enum { COMM_ALL_ALIVE = -1, COMM_NO_END = -2 };
struct comm_ops {
  const char *name;
  size_t size;                                        /* of this struct, to check the version */
  /* Sends part[0] bytes of `send` to rank 0, the next part[1] to rank 1, ..., and receives
  ** part[rank] bytes from rank 0, as many from rank 1, ...; writes nothing in place of this rank's
  ** own. */
  bool (*exchange)(struct comm_world *w, const char *send, char *recv, const size_t *part);
  /* Fills in the parts of the other ranks; `data` has one part after the other. */
  bool (*gather)(struct comm_world *w, char *data, const size_t *part);
  bool (*broadcast)(struct comm_world *w, void *data, size_t bytes, int root);
  /* Sends a heartbeat; call it about once a second. Returns a rank that has been silent for
  ** `patience` seconds, or COMM_*. NULL: ranks live and die together. */
  int (*beat)(struct comm_world *w, double patience);
  void (*abort)(struct comm_world *w, int status);    /* ends all ranks */
  void (*close)(struct comm_world *w);
  /* Of groups of devices, in place of the first four: the library that moves the bytes adds
  ** them as well, in an order of its own. Of n parts, number i is of this process's rank
  ** i % local. */
  int (*sum_arrays)(struct comm_world *w, const struct comm_part *part, int n, int dtype);
  int (*broadcast_arrays)(
      struct comm_world *w, const struct comm_part *part, int n, int dtype, int root);
};

/* Makes a group of `size` ranks of this process in out[0 .. size - 1]. */
int comm_threads_open(int size, struct comm_world **out);
extern const struct comm_ops comm_threads;
/* Loads the library for MPI, and makes this process a rank. */
int comm_mpi_open(const struct comm_ops **ops, struct comm_world **out);
/* The type of the shim's `tycho_mpi_open`. per_host: how many consecutive ranks count as one host;
** 0: those that share memory; 1: hosts are not distinguished. */
typedef struct comm_world *(*comm_mpi_fn)(int per_host, char *why, size_t size);
/* Returns a rank of this host whose process is stopped; -1: none is seen. Not thread safe. */
int comm_stopped_rank(void);
/* Starts a process, one on each host, that watches the end of the ranks and of their launcher: for
** a rank that is stopped when the others have ended, the launcher would wait for ever, and it may
** hang by itself. The watcher ends that process and reports it. It names ranks that end without
** having called comm_leaves. */
void comm_watch_ranks(void);
/* Reports to the watcher that this rank ends. Safe in a handler of a signal. */
void comm_leaves(void);
/* What a process sends to the others before it opens a group of devices. */
struct comm_handshake {
  int32_t devices;                                    /* of this process */
  bool found;
  char text[256];                                     /* the library, or why there is none */
  char id[COLLECTIVE_ID];                             /* of the group; from rank 0 */
};
/* Checks that n devices can be ranks of a group, and opens them. */
int comm_devices_check(const int *device, int n);
/* Fills in what this process sends to the others. makes_id: it also makes the group's id. A failure
** goes into the handshake, since the others wait for that. */
void comm_devices_offer(struct comm_handshake *out, int n, bool makes_id);
/* Opens a group of devices: n of this process, which is number `own` of `size` processes, and those
** of the others as their handshakes say. */
int comm_devices_open(const int *device, int n, const struct comm_handshake *all, int size, int own,
    struct comm_world **out);
extern const struct comm_ops comm_devices;
/* Returns the device of local rank i. */
int comm_devices_at(const struct comm_world *w, int i);
/* Ends what all groups of devices are doing. */
void comm_devices_abort(void);

struct comm_buffer {
  char *data;                                         /* page aligned: the system copies faster */
  size_t cap;                                         /* bytes */
  void *block;                                        /* what is freed */
};
/* A sum over the ranks of each part's elements `from`, to be written to `to`. */
struct comm_sum {
  const struct comm_part *part;
  int n;                                              /* parts, all of one dtype */
  int dtype;
  int wire;                                           /* TY_WIRE_* */
  float threshold;                                    /* the value of TY_WIRE_2BIT */
};
/* A position in the elements of all parts, taken as one line. */
struct line_position { int part; int64_t at; };
/* Adds one block of some megabytes, and moves *at after it; at the end to part n. */
int comm_sum(const struct comm_ops *ops, struct comm_world *w, struct comm_buffer scratch[3],
    const struct comm_sum *s, struct line_position *at);
/* Makes a buffer at least so large; its contents are lost. Returns false without memory. */
bool comm_reserve(struct comm_buffer *b, size_t bytes);
/* Fails with the reason of the transport's call that returned false. */
int comm_failed(const struct comm_world *w, const char *what);
