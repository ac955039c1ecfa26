/* error.h - errors are values: a positive code (tycho.h) and one failure per thread.
**
** `fail` starts a new failure; the fail_* functions add parts to the current one as it travels
** up, and never overwrite a part that is already set, so that the place nearest to the mistake
** wins.
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
/* Puts a name in front of the text: "name: text". */
void fail_prefix(const char *name);
/* Adds parts to the failure; NULL parts are skipped. */
void fail_node(const char *op, const char *node, const char *where);
void fail_argument(const char *argument, const char *expected, const char *got);
/* A failure that outlives its thread's next one (failure.c). */
struct failure;
/* Copies this thread's failure, with one reference. */
struct failure *failure_take(int code);
/* Adds to the text of f, which no other thread has yet. */
void failure_add(struct failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct failure *failure_keep(struct failure *f);
/* Returns a failure of the same parts that has not been reported. */
struct failure *failure_again(const struct failure *f);
void failure_drop(struct failure *f);                 /* NULL allowed */
/* Returns whether f has been reported, or is an interruption that is over. */
bool failure_reported(const struct failure *f);
/* Counts f as reported without making it this thread's. */
void failure_mark_reported(struct failure *f);
/* Makes f this thread's failure, counts it as reported, and returns its code. An interruption that
** is over becomes TY_ESTATE: what it stopped has no value. */
int  failure_report(struct failure *f);
/* Sets the text in which the next TY_EMEMORY of this thread ends. */
void error_memory_report(const char *text);
