/* stamps.h - time stamps in a stream, converted to the host's clock, for struct device_ops. One
** thread at a time may use a clock. */
#pragma once
#include "cuda/cuda.h"

struct stamp;
/* The clock of a stream. */
struct stamp_clock {
  struct stamp *unused;
  struct stamp *base;                                 /* reference of the next stamps */
  int64_t at;                                         /* time of base, ns of profile_now */
  int64_t end;                                        /* time of the last stamp that was read */
};
/* Places a stamp in the stream, in the context of its device. *made: the stamp, for stamp_read. */
int  stamp_leave(struct stamp_clock *k, cu_stream stream, void **made);
/* Returns the times of two stamps, and frees them: see device_ops.stamped. */
bool stamp_read(struct stamp_clock *k, void *first, void *last, int64_t *from, int64_t *to);
