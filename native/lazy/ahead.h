/* ahead.h - bytes of results of runs that have not ended.
**
** A script that calls one program after the other is steps ahead of a CPU. Results that it has
** dropped are written all the same and keep their memory until their run has ended, so a run waits
** where too many are on their way. All under the lock of backlog.h.
*/
#pragma once
#include "device/device.h"

/* Waits until a run may take as many bytes for its results. */
void ahead_wait(int64_t bytes);
/* Notes a run that was submitted, by its last task. */
void ahead_note(int64_t bytes, struct ticket last);
