/* error.c - the failure of a thread: a code, a line of text, and its parts.
**
** A failure is built in fixed thread-local buffers, so that telling "out of memory" needs no
** memory; failure_take copies it to the heap for a queue thread that must hand it to whoever
** waits. Every TY_EMEMORY text ends in the memory report of the allocation that failed.
*/
#include "base/base.h"
#include "base/failure.h"

struct parts {
  int  code;
  char op[128], node[256], argument[128], where[256], expected[512], got[512], message[2048];
};
static __thread struct parts now;
static __thread char memory_report[256]; /* of this thread's last refused allocation */

struct failure {
  struct parts parts;
  int refs;
  /* Serial number of the report; 0 if not reported yet. */
  uint64_t reported;
  /* Interruptions that were over when it happened. */
  uint64_t epoch;
};
static uint64_t nreported;
/* taken when there is no memory for a failure of its own */
static struct failure spare = { .refs = 1 << 30 };

static void part(char *to, size_t size, const char *text)
{
  if (text && *text && !*to) snprintf(to, size, "%s", text);
}

int fail(int code, const char *format, ...)
{
  char text[sizeof now.message];
  va_list a;
  va_start(a, format);
  /* first: arguments may point into the current failure */
  number_format(text, sizeof text, format, a);
  va_end(a);
  memset(&now, 0, offsetof(struct parts, message));
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

void fail_node(const char *op, const char *node, const char *where)
{
  part(now.op, sizeof now.op, op);
  part(now.node, sizeof now.node, node);
  part(now.where, sizeof now.where, where);
}

void fail_argument(const char *argument, const char *expected, const char *got)
{
  part(now.argument, sizeof now.argument, argument);
  part(now.expected, sizeof now.expected, expected);
  part(now.got, sizeof now.got, got);
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

struct failure *failure_take(int code)
{
  const struct parts taken = now;                        /* an allocation that fails changes it */
  struct failure *f = NEW(struct failure);
  if (!f) {
    f = &spare;
    __atomic_store_n(&f->reported, 0, __ATOMIC_RELEASE);
    f->parts.code = code;
    return f;
  }
  *f = (struct failure){ .parts = taken, .refs = 1, .epoch = interrupt_epoch() };
  f->parts.code = code;
  return f;
}

void failure_add(struct failure *f, const char *format, ...)
{
  va_list a;
  size_t n = strlen(f->parts.message);
  if (f == &spare) return; /* many threads have it */
  va_start(a, format);
  number_format(f->parts.message + n, sizeof f->parts.message - n, format, a);
  va_end(a);
}

struct failure *failure_keep(struct failure *f)
{
  if (f) __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
  return f;
}

struct failure *failure_again(const struct failure *f)
{
  now = f->parts;
  return failure_take(now.code);
}

void failure_drop(struct failure *f)
{
  if (f && f != &spare && __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) mem_free(f);
}

bool failure_is_interruption(const struct failure *f) { return f->parts.code == TY_EINTERRUPTED; }

/* Returns whether Ctrl-C was dealt with since f: the flag has been cleared. */
static bool interruption_is_over(const struct failure *f)
{
  return failure_is_interruption(f) && f->epoch != interrupt_epoch();
}

bool failure_reported(const struct failure *f)
{
  return __atomic_load_n(&f->reported, __ATOMIC_ACQUIRE) || interruption_is_over(f);
}

uint64_t failures_reported(void) { return __atomic_load_n(&nreported, __ATOMIC_SEQ_CST); }

bool failure_reported_by(const struct failure *f, uint64_t moment)
{
  uint64_t reported = __atomic_load_n(&f->reported, __ATOMIC_ACQUIRE);
  return reported ? reported <= moment : interruption_is_over(f);
}

void failure_mark_reported(struct failure *f)
{
  if (__atomic_load_n(&f->reported, __ATOMIC_ACQUIRE)) return;
  uint64_t number = __atomic_add_fetch(&nreported, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&f->reported, number, __ATOMIC_RELEASE);
}

int failure_report(struct failure *f)
{
  now = f->parts;
  if (!*now.message) snprintf(now.message, sizeof now.message, "out of memory while a task failed");
  if (interruption_is_over(f)) {
    now.code = TY_ESTATE;
    snprintf(now.message, sizeof now.message,
        "the call that computes this array was interrupted, so it has no value; compute it again");
  }
  failure_mark_reported(f);
  return now.code;
}
