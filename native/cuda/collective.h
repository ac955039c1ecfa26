/* collective.h - sums over GPUs (collective.c): registration, and the order between their streams
** and those of the devices' queues, for device.c. */
#pragma once
#include "cuda/cuda.h"
#include "device/collective.h"

/* Records events after task number seq of COLLECTIVE_QUEUE, on all its streams. */
int  collective_mark(uint64_t seq);
/* Makes later work on all its streams wait for the event. */
int  collective_await(cu_event e);
/* Makes later work on a device's stream wait for the marks of task number seq. */
int  collective_awaited(cu_stream stream, uint64_t seq);
/* Returns whether some work has not ended and NCCL reports no error. */
bool collective_busy(void);
void cuda_collective_register(const struct order_ops *order);
