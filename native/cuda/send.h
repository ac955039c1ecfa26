/* send.h - bytes between pageable memory of the host and a GPU. */
#pragma once
#include "cuda/cuda.h"

/* A transfer goes in pieces through two pinned buffers, one filled while the other travels. */
struct staging {
  char *p[2];
  cu_event sent[2];
  bool used[2];
};
int  staging_new(struct staging *s);                  /* in the device's context, as all below */
void staging_done(struct staging *s);
/* Sends bytes on this stream, after what it has begun. */
int  staging_send(
    struct staging *s, cu_pointer to, const char *from, size_t bytes, cu_stream stream);
/* Fetches bytes, which the host has when it returns. */
int  staging_fetch(
    struct staging *s, char *to, cu_pointer from, size_t bytes, cu_stream stream);

/* Places on the device in which pieces arrive while the queue's stream works. That stream copies
** them on when it gets there, so a batch travels while the step before it runs. */
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
