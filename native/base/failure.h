/* failure.h - when failures were told: what was asked for before somebody was told of a failure is
** still void, what was asked for afterwards is a new attempt. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct failure;
uint64_t failures_told(void);                         /* how many, so far */
/* was it told among the first so many? */
bool failure_told_by(const struct failure *f, uint64_t moment);
