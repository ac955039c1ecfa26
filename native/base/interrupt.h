/* interrupt.h - one flag that asks every running call to stop. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

bool interrupt_pending(void);
/* Returns how often the flag has been cleared: an interruption of an earlier epoch is over. */
uint64_t interrupt_epoch(void);
