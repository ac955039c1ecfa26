/* timing.h - how long the device works on what a task starts: between two looks at the clock where
** that has ended when the call returns, else between two stamps in the device's own order, which
** are read once the task has passed. */
#pragma once
#include "base/base.h"

/* from, to: ns of profile_now, after timing_read */
struct timing { int32_t device; void *first, *last; int64_t from, to; };
/* Around what a task starts on its queue's thread. */
void timing_begin(int device, struct timing *t);
void timing_end(struct timing *t);
/* In the task's `done`, or after device_finish; once. false: the device does not know. */
bool timing_read(struct timing *t);
