/* stamps.h - when a stream came to which point, on the host's clock: for struct device_ops. One
** thread at a time uses what belongs to a stream. */
#pragma once
#include "cuda/cuda.h"

struct stamp;
/* The clock of a stream. */
struct stamp_clock {
  struct stamp *unused;
  struct stamp *base;                                 /* what the next stamps are read against */
  int64_t at;                                         /* time of base */
  int64_t end;                                        /* time of the last stamp that was read */
};
/* Leaves a stamp, in the context of the stream's device. */
int  stamp_leave(struct stamp_clock *k, cu_stream stream, void **made);
bool stamp_read(struct stamp_clock *k, void *first, void *last, int64_t *from, int64_t *to);
