/* gate.h - faults on request. In a build with MODE=torture the doors of this room (memory.c: every
** allocation) ask here whether to fail; other builds have no code for it.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef TY_TORTURE
/* counts a call; true: it is to fail */
bool gate_fails(void);
/* Calls so far since the last one of this. The at-th from now on (from 1) is to fail, and those
** behind it too if they are to; 0: none. */
__attribute__((visibility("default"))) int64_t ty_torture(int64_t at, int lasting);
#else
static inline bool gate_fails(void) { return false; }
#endif
