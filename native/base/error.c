/* error.c - the failure of a thread: a code, a line of text, and its parts.
**
** A failure is built in fixed thread-local buffers, so that reporting "out of memory" needs no
** memory. The text of a TY_EMEMORY ends with the memory report of the allocation that failed.
*/
#include "base/base.h"
#include "base/error_parts.h"

static __thread struct error_parts now;
static __thread char memory_report[256]; /* of this thread's last refused allocation */

static void set_part(char *to, size_t size, const char *text)
{
  if (text && *text && !*to) snprintf(to, size, "%s", text);
}

int fail(int code, const char *format, ...)
{
  char text[sizeof now.message];
  va_list a;
  va_start(a, format);
  /* before the parts are cleared: arguments may point into them */
  number_format(text, sizeof text, format, a);
  va_end(a);
  memset(&now, 0, offsetof(struct error_parts, message));
  now.op[0] = now.node[0] = now.argument[0] = now.where[0] = now.expected[0] = now.got[0] = 0;
  now.code = code;
  bool report = code == TY_EMEMORY && *memory_report && !strstr(text, memory_report);
  size_t n = strlen(text);
  memcpy(now.message, text, n + 1);
  if (report)
    snprintf(now.message + n, sizeof now.message - n, "%s%s", n ? "; " : "", memory_report);
  return code;
}

void error_memory_report(const char *text)
{
  snprintf(memory_report, sizeof memory_report, "%s", text);
}

enum { MOST_NAME = 256 };                             /* longest "name" of fail_prefix, in bytes */

void fail_prefix(const char *name)
{
  char text[sizeof now.message];
  memcpy(text, now.message, sizeof text);
  const int used = snprintf(now.message, sizeof now.message, "%.*s: ", MOST_NAME, name);
  set_part(now.message + used, sizeof now.message - (size_t)used, text);
}

void fail_node(const char *op, const char *node, const char *where)
{
  set_part(now.op, sizeof now.op, op);
  set_part(now.node, sizeof now.node, node);
  set_part(now.where, sizeof now.where, where);
}

void fail_argument(const char *argument, const char *expected, const char *got)
{
  set_part(now.argument, sizeof now.argument, argument);
  set_part(now.expected, sizeof now.expected, expected);
  set_part(now.got, sizeof now.got, got);
}

const char *ty_error(void) { return now.message; }

int ty_error_detail(ty_failure *out)
{
  NEED(out, TY_ETYPE, "ty_error_detail: out is missing");
  const char *text[] = { now.op, now.node, now.argument, now.where, now.expected, now.got };
  for (int i = 0; i < COUNT(text); i++)
    if (!*text[i]) text[i] = NULL;
  *out = (ty_failure){ text[0], text[1], text[2], text[3], text[4], text[5], now.message, now.code,
    0 };
  return TY_OK;
}

const struct error_parts *error_current(void) { return &now; }

void error_set(const struct error_parts *parts) { now = *parts; }
