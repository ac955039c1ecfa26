/* queue.h - functions that only files of device/ call. */
#pragma once
#include "device/order.h"

/* Slots index arrays over all devices and queues: cpu(0..63), gpu(0..63), queues of messages.
** Pinned memory has the slot of its CPU. */
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
/* Returns TY_EDEVICE if there can be no such device. */
int device_check(int device);
/* Returns the operations of a device or of a queue without memory; NULL: no such kind. */
const struct device_ops *queue_ops(int device);
/* Returns the operations by which devices of this kind wait for each other; NULL: the host
** waits. */
const struct order_ops *queue_order_ops(int device);

/* blocks.c */
/* Allocates a block of at least `bytes`, or reuses a kept one; *blank tells whether it is zeros. */
int block_new(int device, size_t bytes, void **out, bool *blank);
/* Frees a block of block_new. bytes: as passed to block_new. */
void block_free(int device, void *data, size_t bytes);
/* Returns the bytes of a device that storages and pools use. */
void memory_in_use(int device, int64_t *tensors, int64_t *pools);

/* storage.c */
/* As `release` of a storage, it says that the bytes are a block of block_new. Does nothing. */
void storage_give_back(void *owner, void *data);
/* Drops the source of a storage whose bytes are loaded, or no longer needed. */
void storage_drop_source(struct storage *s);

/* failures.c */
/* Queues f for device_wait, with a reference. */
void pending_add(int device, struct failure *f);
/* Reports the oldest failure of a device (-1: any) that was not yet reported, and drops its later
** ones. Returns its code, or TY_OK. */
int  pending_report(int device);
/* Returns why some of the bytes are broken for a task submitted when `reported` failures had been
** reported, with a reference; NULL: none are. */
struct failure *storage_failure_for(const struct access *a, uint64_t reported);
/* Returns whether a storage has ever been marked as broken in this process. */
bool storage_ever_failed(void);
