/* collective.h - sums over GPUs (collective.c) as device.c knows them: the order between their
** streams and those of the devices' queues, and their beginning. */
#pragma once
#include "cuda/cuda.h"
#include "device/collective.h"

/* Records events after task number seq of COLLECTIVE_QUEUE, on all its streams. */
int  collective_mark(uint64_t seq);
/* Orders what comes next on all its streams after the event. */
int  collective_await(cu_event e);
/* Orders what comes next on the stream after the marks of task number seq. */
int  collective_awaited(cu_stream stream, uint64_t seq);
/* Returns whether something is under way and NCCL reports no error. */
bool collective_busy(void);
void cuda_collective_register(const struct order_ops *order);
