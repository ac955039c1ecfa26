/* timing.h - measures the device's time for a task: by two readings of the clock if the work ends
** before the calls that start it return, else by two stamps in the order of the device's work,
** which are read when the task has completed. */
#pragma once
#include "base/base.h"

struct timing {
  int32_t device;
  void *first, *last;                                 /* stamps */
  int64_t from, to;                                   /* ns of profile_now, after timing_read */
};
/* Begins measuring a task, on its queue's thread. */
void timing_begin(int device, struct timing *t);
/* Ends measuring, on the same thread, after the task has started its work. */
void timing_end(struct timing *t);
/* Fills in `from` and `to`. Call it once, in the task's `done` or after device_finish. Returns
** false if the device does not know the times. */
bool timing_read(struct timing *t);
