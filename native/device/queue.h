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

/* failures.c: f is remembered for device_wait; the first of a device (-1: any) is told, and its
** later ones are forgotten; NULL: no mark any more; the mark that still counts, with a reference:
** now, or for what was asked for when so many failures had been told */
void pending_add(int device, struct failure *f);
int  pending_tell(int device);
void storage_mark(struct storage *s, struct failure *f);
struct failure *storage_marked(const struct storage *s);
struct failure *storage_marked_for(const struct storage *s, uint64_t told);
void memory_in_use(int device, int64_t *tensors, int64_t *pools);
