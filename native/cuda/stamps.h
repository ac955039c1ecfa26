/* stamps.h - when a stream came to which point, on the host's clock: for struct device_ops. One
** thread at a time uses what belongs to a stream. */
#pragma once
#include "cuda/cuda.h"

struct stamp;
/* Of a stream. base: what the next stamps are read against, and its time; end: of the last read */
struct stamp_clock { struct stamp *unused, *base; int64_t at, end; };
/* In the context of the stream's device. */
int  stamp_leave(struct stamp_clock *k, cu_stream stream, void **made);
bool stamp_read(struct stamp_clock *k, void *first, void *last, int64_t *from, int64_t *to);
