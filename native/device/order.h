/* order.h - order between the devices of a kind without the host: what a back end adds to its
** struct device_ops. They run on queues' threads. */
#pragma once
#include "device/device.h"

/* mark: behind what tasks up to number seq have started. await: what is started on `device` from
** here on comes behind the other device's mark of task t, or a later one. Where one fails, the host
** waits. reach: the host waits for the mark of task seq; where it fails, what has been started is
** finished as a whole. busy: something that tasks have started has not ended. */
struct order_ops {
  int (*mark)(int device, uint64_t seq);
  int (*await)(int device, struct ticket t);
  int (*reach)(int device, uint64_t seq);
  bool (*busy)(int device);
};
void order_register(int kind, const struct order_ops *ops);      /* before queues are made */
