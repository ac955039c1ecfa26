/* profile.h - what the profiler is told. Recording costs one predictable branch where nothing is
** recorded. */
#pragma once
#include "base/base.h"

extern int profile_what;                              /* TY_PROFILE_* bits now recorded; atomic */
static inline bool profiling(int what)
{
  return __builtin_expect(__atomic_load_n(&profile_what, __ATOMIC_RELAXED) & what, 0);
}

/* Who an event is about; NULL parts are "". Texts are copied. */
/* kind: set by the profiler */
struct profile_label { const char *category, *name, *node, *kernel; int kind; };
/* device of what runs in the caller's thread */
enum { PROFILE_HOST = -1 };

int64_t profile_now(void);                            /* ns, monotonic */
void profile_span(
    const struct profile_label *l, int device, int64_t bytes, int64_t from, int64_t to);
/* a device's queue has waited for another device since `from` */
void profile_wait(int device, int other, int64_t from);
void profile_counter(const char *category, const char *name, int device, int64_t value);
/* the process ends: writes what is not yet written */
void profile_close(void);

/* A call of the public interface: profile_call("forward", from) records it when from is not 0. */
static inline int64_t profile_begin(void) { return profiling(TY_PROFILE_API) ? profile_now() : 0; }
void profile_call(const char *name, int64_t from);
