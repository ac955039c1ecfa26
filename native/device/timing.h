/* timing.h - how long the device works on what a task starts: between two readings of the clock if
** that has ended when the call returns, else between two stamps in the device's own order, which
** are read once the task has completed. */
#pragma once
#include "base/base.h"

struct timing {
  int32_t device;
  void *first, *last;                                 /* stamps */
  int64_t from, to;                                   /* ns of profile_now, after timing_read */
};
/* Begins the time of a task, on its queue's thread. */
void timing_begin(int device, struct timing *t);
/* Ends it, on the same thread, after the task has started its work. */
void timing_end(struct timing *t);
/* Reads the times, once, in the task's `done` or after device_finish. Returns false if the device
** does not know them. */
bool timing_read(struct timing *t);
