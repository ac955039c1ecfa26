/* ahead.h - bytes of results of runs that have not ended.
**
** A script that calls one program after the other submits runs faster than a CPU completes them.
** The results of a run keep their memory until it has ended, even those that the script has
** dropped, so a new run waits where the results of unfinished ones are too large. All functions are
** called under the lock of backlog.h.
*/
#pragma once
#include "device/device.h"

/* Waits, if necessary, until unfinished runs leave room for a run with `bytes` of results. */
void ahead_wait(int64_t bytes);
/* Notes a submitted run with `bytes` of results, which ends with the task `last`. */
void ahead_note(int64_t bytes, struct ticket last);
