/* profile.h - events for the profiler. While nothing is recorded a call costs one predictable
** branch. */
#pragma once
#include "base/base.h"

extern int profile_what;                              /* TY_PROFILE_* bits now recorded; atomic */
/* Returns whether events of these TY_PROFILE_* bits are recorded. */
static inline bool profile_is_on(int what)
{
  return __builtin_expect(__atomic_load_n(&profile_what, __ATOMIC_RELAXED) & what, 0);
}

/* Names an event. Texts are copied; NULL counts as "". */
struct profile_label {
  const char *category, *name, *node, *kernel;
  int kind;                                           /* set by the profiler */
};
/* Takes the place of a device for events of the caller's thread. */
enum { PROFILE_HOST = -1 };

/* Returns nanoseconds of a monotonic clock. */
int64_t profile_now(void);
/* Records an event that lasted from `from` to `to`, in ns of profile_now. */
void profile_span(
    const struct profile_label *l, int device, int64_t bytes, int64_t from, int64_t to);
/* Records that a device's queue has waited for device `other` since `from`. */
void profile_wait(int device, int other, int64_t from);
/* Records a new value of a counter. */
void profile_counter(const char *category, const char *name, int device, int64_t value);
/* Writes the remaining events; called at exit. */
void profile_close(void);

/* Returns the time at which a call of the public interface begins; 0: calls are not recorded. */
static inline int64_t profile_begin(void)
{
  return profile_is_on(TY_PROFILE_API) ? profile_now() : 0;
}
/* Records a call that began at `from`, unless that is 0. */
void profile_call(const char *name, int64_t from);
