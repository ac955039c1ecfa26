/* failure.h - when failures were reported. A change in place that failed counts as not done for
** tasks submitted after the report of its failure; tasks submitted before it fail too, whenever
** they run. A `moment` is the number of failures reported so far.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct failure;
/* Returns how many failures have been reported so far. */
uint64_t failures_reported(void);
/* Returns whether f was among the first `moment` reported ones. */
bool failure_reported_by(const struct failure *f, uint64_t moment);
/* Returns a copy of f that is not among the first `moment` reported ones. Calls return the same
** copy until it is reported. The caller owns a reference. */
struct failure *failure_anew(struct failure *f, uint64_t moment);
/* Returns whether f is an interruption (Ctrl-C), cleared or not. */
bool failure_is_interruption(const struct failure *f);
