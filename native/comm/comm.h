/* comm.h - what a way to reach other processes can do, and what one rank of a group keeps.
**
** A mover moves bytes and nothing else: sums are made here (sum.c), in the order of ranks, so that
** every rank has the same bits whatever moved them. Its calls block; one thread makes them, in the
** same order on every rank, but for `beat`, which a second thread calls between them.
*/
#pragma once
#include "base/base.h"

enum { COMM_RANKS = 4096 };                           /* of a group, at most */
/* A rank's membership in a group; a mover's own begins with it. why: of a call that returned false.
** host, across: groups within this one, of the ranks of this rank's host, and of those that have
** its number on each of the hosts; NULL: sums take no notice of hosts. whole: of such a group, the
** one that it lies in, which has the reason. */
struct comm_world { int rank, size; char why[512]; struct comm_world *host, *across, *whole; };

/* n elements; `from` may be `to`, and is only read */
struct comm_part { const char *from; char *to; int64_t n; };

/* COMM_NO_END: all scripts have ended, but the mover does not */
enum { COMM_ALL_ALIVE = -1, COMM_NO_END = -2 };
struct comm_ops {
  const char *name;
  size_t size;                                        /* of this struct: both were built together */
  /* `send` holds part[0] bytes for rank 0, then part[1] for rank 1, ...; `recv` gets part[rank]
  ** bytes from rank 0, as many from rank 1, ...; nothing is written where a rank's own would be */
  bool (*exchange)(struct comm_world *w, const char *send, char *recv, const size_t *part);
  /* `data` holds a part of each rank; each rank has its own and gets the others */
  bool (*gather)(struct comm_world *w, char *data, const size_t *part);
  bool (*broadcast)(struct comm_world *w, void *data, size_t bytes, int root);
  /* Says that this rank is alive, every second or so. A rank that has been silent for `patience`
  ** seconds, or COMM_*. NULL: ranks live and die together. */
  int (*beat)(struct comm_world *w, double patience);
  void (*abort)(struct comm_world *w, int status);    /* ends all ranks */
  void (*close)(struct comm_world *w);
  /* Where ranks are devices, in place of the first four: the library that moves the bytes adds
  ** them as well, in an order of its own. Of n parts, number i is of this process's rank
  ** i % local. */
  int (*sum_arrays)(struct comm_world *w, const struct comm_part *part, int n, int dtype);
  int (*broadcast_arrays)(
      struct comm_world *w, const struct comm_part *part, int n, int dtype, int root);
};

/* Fills out[0 .. size - 1], ranks of one process; or out[0], this process's rank. */
int comm_threads_open(int size, struct comm_world **out);
extern const struct comm_ops comm_threads;
int comm_mpi_open(const struct comm_ops **ops, struct comm_world **out);
/* What the shim has under this name. per_host: how many ranks in a row make a host; 0: as they lie;
** 1: hosts do not matter. */
typedef struct comm_world *(*comm_mpi_fn)(int per_host, char *why, size_t size);
/* A rank of this host whose process is stopped; -1: none is seen. For one thread. */
int comm_stopped_rank(void);
/* Starts a process, one on each host, that looks after the end of the ranks and of their launcher:
** one rank that is stopped when the others have ended would have the launcher wait for ever, and a
** launcher may wait for itself. It ends that one, and says so. It names a rank that ends without a
** word. */
void comm_guard(void);
/* tells it that this rank ends; from the handler of a signal, too */
void comm_leaves(void);
/* The ranks are devices: these of this process, and those of the others in `ranks` (NULL: there are
** no others), who call this too. */
int comm_devices_open(const int *device, int n, ty_comm *ranks, struct comm_world **out);
extern const struct comm_ops comm_devices;
int comm_devices_at(const struct comm_world *w, int i);          /* the device of local rank i */
void comm_devices_abort(void);                        /* what they have under way, in all groups */

/* `data` begins as a page does, within `block`: the system copies to there in half the time */
struct comm_buffer { char *data; size_t cap; void *block; };
/* Each part's elements `from`, added over the ranks, in `to`. All parts are of one dtype; wire:
** TY_WIRE_*; `threshold`: what two bits stand for. */
struct comm_sum { const struct comm_part *part; int n, dtype, wire; float threshold; };
/* where in all parts' elements, taken as one line */
struct line_position { int part; int64_t at; };
/* Adds one block, of some megabytes, and moves on, to part n at the end. */
int comm_sum(const struct comm_ops *ops, struct comm_world *w, struct comm_buffer scratch[3],
    const struct comm_sum *s, struct line_position *at);
bool comm_reserve(struct comm_buffer *b, size_t bytes);   /* what it held is lost when it grows */
int comm_failed(const struct comm_world *w, const char *what);
