/* order.h - order between the devices of a kind without the host: what a back end adds to its
** struct device_ops. They run on queues' threads. */
#pragma once
#include "device/device.h"

/* If `mark` or `await` fails, the host waits. */
struct order_ops {
  /* Leaves mark `seq` after all work that tasks up to that number have started. */
  int (*mark)(int device, uint64_t seq);
  /* Orders work that is started on `device` from here on after the other device's mark of task t,
  ** or a later one. */
  int (*await)(int device, struct ticket t);
  /* Waits on the host for the mark of task seq. If it fails, the queue finishes all that was
  ** started. */
  int (*reach)(int device, uint64_t seq);
  /* Returns whether work that tasks have started has not ended. */
  bool (*busy)(int device);
};
/* Registers the order of a kind of devices; call it before queues are made. */
void order_register(int kind, const struct order_ops *ops);
