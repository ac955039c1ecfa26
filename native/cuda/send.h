/* send.h - copies between pageable host memory and a GPU. */
#pragma once
#include "cuda/cuda.h"

/* Two pinned buffers, through which copies go piece by piece: one is filled while the other is
** sent. One thread at a time may use them. */
struct staging {
  char *p[2];
  cu_event sent[2];
  bool used[2];
};
/* Allocates buffers and events. Call it, and the functions below, in the device's context. On
** failure, staging_done frees what exists. */
int  staging_new(struct staging *s);
void staging_done(struct staging *s);
/* Sends bytes in the order of the stream. `from` may be changed as soon as it returns. */
int  staging_send(
    struct staging *s, cu_pointer to, const char *from, size_t bytes, cu_stream stream);
/* Fetches bytes in the order of the stream, and waits until they are in `to`. */
int  staging_fetch(
    struct staging *s, char *to, cu_pointer from, size_t bytes, cu_stream stream);

/* Device memory into which pieces are sent on a separate stream while the queue's stream works. The
** queue's stream then copies them to their destination in its order, so a batch is sent while the
** previous step runs. */
enum { LANDINGS = 16 };
struct landing {
  cu_pointer p;
  size_t bytes;
  cu_event taken;                                     /* the queue's stream has copied it */
  bool used;
};
struct landings {
  cu_stream stream;
  struct landing at[LANDINGS];
  int next;
};
int  landings_new(struct landings *l);
void landings_done(struct landings *l);
int  staging_land(struct staging *s, struct landings *l, cu_pointer to, const char *from,
    size_t bytes, cu_stream stream);
