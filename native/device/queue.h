/* queue.h - what the files of this folder share. */
#pragma once
#include "device/order.h"

/* Slots of devices and queues: cpu(0..63), gpu(0..63), queues for messages. Pinned memory belongs
** to its CPU. */
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

/* kinds.c */
/* Returns TY_EDEVICE where there can be no such device. */
int device_check(int device);
/* Returns the operations of a device or of a queue without memory; NULL: no such kind. */
const struct device_ops *queue_ops(int device);
/* Returns how devices of this kind wait for each other; NULL: the host waits. */
const struct order_ops *queue_order_ops(int device);

/* blocks.c */
/* Takes a block of at least `bytes` from the device or from the kept ones; *blank: it is zeros. */
int block_new(int device, size_t bytes, void **out, bool *blank);
/* Gives a block of block_new back; `bytes` as they were asked for. */
void block_free(int device, void *data, size_t bytes);
/* Returns the bytes of storages and of pools that a device has in use. */
void memory_in_use(int device, int64_t *tensors, int64_t *pools);

/* storage.c */
/* Marks a storage whose bytes are a block of block_new, as its `release`; does nothing. */
void storage_give_back(void *owner, void *data);
/* Ends the source of a storage: its bytes are there, or no longer needed. */
void storage_drop_source(struct storage *s);

/* failures.c */
/* Keeps f for device_wait. */
void pending_add(int device, struct failure *f);
/* Reports the oldest failure of a device (-1: any) that was not reported yet, and drops its later
** ones. */
int  pending_report(int device);
/* Returns what broke some of the bytes for a task that was submitted after `reported` failures had
** been reported, with a reference; NULL: nothing. */
struct failure *storage_failure_for(const struct access *a, uint64_t reported);
/* Returns whether bytes of any storage have been broken since the process began. */
bool storage_ever_failed(void);
