/* queue.h - what device.c, queue.c and storage.c know of each other. */
#pragma once
#include "device/device.h"

/* cpu(0..63), gpu(0..63), queues for messages; pinned memory belongs to its CPU */
enum { IDS = 64, COLLECTIVE_SLOT = 2 * IDS + COMM_QUEUES, SLOTS };
static inline int device_slot(int device)
{
  int kind = device_kind(device), first = kind == COMM_QUEUE ? 2 * IDS : kind == TY_GPU ? IDS : 0;
  return kind == COLLECTIVE_QUEUE ? COLLECTIVE_SLOT : first + (device_id(device) & (IDS - 1));
}
static inline int slot_device(int slot)
{
  return slot < IDS ? TY_CPU + slot
      : slot < 2 * IDS ? TY_GPU + slot - IDS
      : slot < COLLECTIVE_SLOT ? COMM_QUEUE + slot - 2 * IDS
                               : COLLECTIVE_QUEUE;
}
static inline bool has_memory(int device) { return device_kind(device) < COMM_QUEUE; }
const struct device_ops *queue_ops(int device);       /* of those that have none, too */

/* failures.c */
/* Keeps f for device_wait. */
void pending_add(int device, struct failure *f);
/* Reports the oldest failure of a device (-1: any) that was not reported yet, and drops its later
** ones. */
int  pending_report(int device);
/* Returns what broke some of the bytes for a task that was submitted after `reported` failures had
** been reported, with a reference; NULL: nothing. */
struct failure *storage_failure_for(const struct access *a, uint64_t reported);
void memory_in_use(int device, int64_t *tensors, int64_t *pools);
