/* timing.c - see timing.h. */
#include "base/failure.h"
#include "device/profile.h"
#include "device/queue.h"
#include "device/timing.h"

/* Makes a stamp on the device; NULL: it has no stamps, or failed to make one. */
static void *timing_make_stamp(int device)
{
  void *stamp = NULL;
  const struct device_ops *ops = queue_ops(device);
  int code = ops->stamp ? ops->stamp(device, &stamp) : TY_OK;
  if (code) failure_drop(failure_take(code));
  return stamp;
}

void timing_begin(int device, struct timing *t)
{
  *t = (struct timing){ .device = device, .first = timing_make_stamp(device) };
  t->from = profile_now();
}

void timing_end(struct timing *t)
{
  t->to = profile_now();
  t->last = timing_make_stamp(t->device);
}

bool timing_read(struct timing *t)
{
  const struct device_ops *ops = queue_ops(t->device);
  return !ops->stamp || ops->stamped(t->device, t->first, t->last, &t->from, &t->to);
}
