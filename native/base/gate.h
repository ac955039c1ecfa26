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
/* counts a call; what it is to fail with: an errno, FAULT_SHORT, 0: nothing */
int   gate_fault(int gate);
/* the same for Lua's allocator: whether it is to fail */
__attribute__((visibility("default"))) bool ty_torture_lua(void);
/* a stream over fd whose reads, writes and closing pass the gate; NULL: out of memory */
FILE *gate_stream(int fd, const char *mode);
/* the door to files for Lua, which has fopen (runtime/torture.c) */
__attribute__((visibility("default"))) FILE *ty_torture_open(const char *path, const char *mode);
/* Calls of a gate so far since the last one of this. The at-th from now on (from 1) is to fail
** with `fault`, and those behind it too if they are to; 0: none. */
__attribute__((visibility("default"))) int64_t ty_torture(
    int gate, int64_t at, int lasting, int fault);
#else
static inline int gate_fault(int gate) { return 0; }
#endif

/* writes the counts of what ran, before an end that writes none */
#ifdef TY_COUNTS
void gate_counts(void);
#else
static inline void gate_counts(void) {}
#endif
