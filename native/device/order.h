/* order.h - operations by which devices of one kind wait for each other without the host. A back
** end registers them besides its struct device_ops. They are called on queues' threads. */
#pragma once
#include "device/device.h"

/* If `mark` or `await` fails, the caller waits on the host instead. */
struct order_ops {
  /* Places mark `seq` after all work that tasks up to number `seq` have started. */
  int (*mark)(int device, uint64_t seq);
  /* Makes work that is started on `device` from now on wait for the other device's mark of task t,
  ** or a later mark. */
  int (*await)(int device, struct ticket t);
  /* Waits on the host for the mark of task `seq`. If it fails, the queue waits for all started
  ** work. */
  int (*reach)(int device, uint64_t seq);
  /* Returns whether some of the started work has not ended. */
  bool (*busy)(int device);
};
/* Registers the operations of a kind of devices. Call it before queues are made. */
void order_register(int kind, const struct order_ops *ops);
