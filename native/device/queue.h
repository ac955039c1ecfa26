/* queue.h - what device.c, queue.c and storage.c know of each other. */
#pragma once
#include "device/device.h"

/* cpu(0..63), gpu(0..63); pinned memory belongs to its CPU */
enum { IDS = 64, SLOTS = 2 * IDS };
static inline int device_slot(int device)
{
  return (device_kind(device) == TY_GPU ? IDS : 0) + (device_id(device) & (IDS - 1));
}
static inline int slot_device(int slot) { return slot < IDS ? TY_CPU + slot : TY_GPU + slot - IDS; }

void memory_in_use(int device, int64_t *tensors, int64_t *pools);
