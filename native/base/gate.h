/* gate.h - fault injection. In a build with MODE=torture every allocation (memory.c, and pages in
** system.c), every system call that can fail (system.c), and Lua's allocator and files
** (runtime/torture.c) ask here whether to fail. In other builds the calls compile to nothing. A
** build with MODE=coverage has the same gates, and also writes coverage counts.
*/
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { GATE_MEMORY, GATE_SYSTEM, GATE_LUA, GATES };
/* a read or write transfers half of its bytes */
enum { FAULT_SHORT = -1 };

#ifdef TY_TORTURE
/* Counts a call. Returns the errno with which it must fail, FAULT_SHORT, or 0: it may succeed. */
int   gate_fault(int gate);
/* Counts an allocation of Lua. Returns whether it must fail. */
__attribute__((visibility("default"))) bool ty_torture_lua(void);
/* Makes a stream over fd whose reads, writes and close pass the gate; NULL: out of memory. */
FILE *gate_stream(int fd, const char *mode);
/* Opens a file for Lua in place of fopen (runtime/torture.c). */
__attribute__((visibility("default"))) FILE *ty_torture_open(const char *path, const char *mode);
/* Makes the at-th call of a gate from now on (counted from 1; 0: none) fail with `fault`, and with
** `lasting` all later ones too. Returns how many calls passed the gate since ty_torture was last
** called for it. */
__attribute__((visibility("default"))) int64_t ty_torture(
    int gate, int64_t at, int lasting, int fault);
#else
static inline int gate_fault(int gate) { return 0; }
#endif

/* Writes coverage counts; call it before the process ends without running exit handlers. */
#ifdef TY_COUNTS
void gate_counts(void);
#else
static inline void gate_counts(void) {}
#endif
