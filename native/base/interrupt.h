/* interrupt.h - one flag that asks every running call to stop. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

bool interrupt_pending(void);
/* how often the flag has been cleared: an interruption of an earlier epoch has been dealt with */
uint64_t interrupt_epoch(void);
