/* gate.h - faults on request. In a build with MODE=torture the two doors of this room ask here
** whether to fail: every allocation (memory.c, and pages in system.c), and every call of the
** system that can fail (system.c). Lua's allocator and files ask too (runtime/torture.c). Other
** builds have no code for it. A build with MODE=coverage has these gates as well, and counts.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GATE_MEMORY, GATE_SYSTEM, GATE_LUA, GATES };
enum { FAULT_SHORT = -1 };                            /* a read or write does half of its bytes */

#ifdef TY_TORTURE
/* Counts a call. Returns what it is to fail with: an errno, FAULT_SHORT, 0: nothing. */
int   gate_fault(int gate);
/* Counts an allocation of Lua. Returns whether it is to fail. */
__attribute__((visibility("default"))) bool ty_torture_lua(void);
/* Makes a stream over fd whose reads, writes and closing pass the gate; NULL: out of memory. */
FILE *gate_stream(int fd, const char *mode);
/* Opens a file for Lua in place of fopen (runtime/torture.c). */
__attribute__((visibility("default"))) FILE *ty_torture_open(const char *path, const char *mode);
/* Makes call number `at` of a gate from now on (from 1; 0: none) fail with `fault`, and with
** `lasting` all later ones. Returns how many calls there were since the last call of this. */
__attribute__((visibility("default"))) int64_t ty_torture(
    int gate, int64_t at, int lasting, int fault);
#else
static inline int gate_fault(int gate) { return 0; }
#endif

/* Writes the counts of what ran, before an end that does not. */
#ifdef TY_COUNTS
void gate_counts(void);
#else
static inline void gate_counts(void) {}
#endif
