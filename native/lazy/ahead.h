/* ahead.h - bytes of results of runs that have not ended.
**
** A script that calls one program after the other is steps ahead of a CPU. Results that it has
** dropped are written all the same and keep their memory until their run has ended, so a run waits
** where too many are on their way. All under the lock of backlog.h.
*/
#pragma once
#include "device/device.h"

/* Waits, if need be, until so few results are on their way that a run may write `bytes` more. */
void ahead_wait(int64_t bytes);
/* Notes that a run was submitted which writes `bytes` of results and ends with the task `last`. */
void ahead_note(int64_t bytes, struct ticket last);
