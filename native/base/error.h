/* error.h - functions that can fail return TY_OK or a positive code (tycho.h); each thread keeps
** one failure, with the text and its parts.
**
** `fail` starts a new failure. On the way up, callers add parts with the fail_* functions. A part
** that is already set stays, so the caller nearest to the mistake wins.
*/
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "tycho.h"

#define TRY(e) do { int try_ = (e); if (try_ != TY_OK) return try_; } while (0)
#define NEED(c, code, ...) do { if (!(c)) return fail(code, __VA_ARGS__); } while (0)

/* Starts a new failure of this thread. Returns code. */
int  fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "name: " in front of the failure's text. */
void fail_prefix(const char *name);
/* Adds the operator, the node and the script's line ("file.lua:12"). NULL parts are skipped. */
void fail_node(const char *op, const char *node, const char *where);
/* Adds the argument's name, what was expected and what came. NULL parts are skipped. */
void fail_argument(const char *argument, const char *expected, const char *got);
/* A copy of a failure, reference counted, that may be passed to other threads (failure.c). */
struct failure;
/* Copies this thread's failure. The caller owns one reference. */
struct failure *failure_take(int code);
/* Appends to the text of f. Not thread safe: call it before another thread gets f. */
void failure_add(struct failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a reference. Returns f. */
struct failure *failure_keep(struct failure *f);
/* Returns a new failure with the parts of f, which counts as not reported. Overwrites this thread's
** failure. */
struct failure *failure_again(const struct failure *f);
/* Drops a reference. NULL is allowed. */
void failure_drop(struct failure *f);
/* Returns whether f has been reported, or is an interruption (Ctrl-C) that has been cleared. */
bool failure_reported(const struct failure *f);
/* Counts f as reported without making it this thread's failure. */
void failure_mark_reported(struct failure *f);
/* Makes f this thread's failure, counts it as reported, and returns its code. An interruption that
** has been cleared becomes TY_ESTATE: the results of the stopped work are missing. */
int  failure_report(struct failure *f);
/* Sets the text that the next TY_EMEMORY of this thread ends with. */
void error_memory_report(const char *text);
