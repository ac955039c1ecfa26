/* failure.h - when failures were reported. A change in place that failed is void for tasks that are
** submitted after the report, not for those before it, whenever they run.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct failure;
/* Returns how many failures have been reported so far. */
uint64_t failures_reported(void);
/* Returns whether f was among the first `moment` reported ones. */
bool failure_reported_by(const struct failure *f, uint64_t moment);
/* Returns a failure like f that is not among the first `moment` reported ones, the same one for all
** moments before it is reported. A reference goes with it. */
struct failure *failure_anew(struct failure *f, uint64_t moment);
/* Returns whether f is an interruption of the past or the present. */
bool failure_is_interruption(const struct failure *f);
