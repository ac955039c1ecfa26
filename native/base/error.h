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

/* returns code */
int  fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* NULL parts are left alone */
void fail_node(const char *op, const char *node, const char *where);
void fail_argument(const char *argument, const char *expected, const char *got);
/* a failure that outlives its thread's next one */
struct failure;
/* copies this thread's failure; one reference */
struct failure *failure_take(int code);
struct failure *failure_keep(struct failure *f);
/* the same parts, told to nobody yet */
struct failure *failure_again(const struct failure *f);
void failure_drop(struct failure *f);                 /* NULL allowed */
/* somebody has been told: marks that point to it are void */
bool failure_told(const struct failure *f);
void failure_void(struct failure *f);                 /* marks it told without telling */
/* makes it this thread's, marks it told, returns its code */
int  failure_tell(struct failure *f);
/* what the next TY_EMEMORY of this thread ends in */
void error_memory_report(const char *text);
