/* interrupt.h - the flag that Ctrl-C sets: running calls stop soon and fail with
** TY_EINTERRUPTED. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Returns whether the flag is set. Any thread. */
bool interrupt_pending(void);
/* Returns how often the flag has been cleared. An interruption noted under an earlier epoch is
** over. */
uint64_t interrupt_epoch(void);
