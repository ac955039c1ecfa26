/* ahead.c - see ahead.h. */
#include "lazy/ahead.h"

/* Bytes of results of unfinished runs, at most. A run that would exceed them waits until half of
** them are left, so that the script's thread sleeps once for several short runs. It does not wait
** for the latest run, so that the device has work while the next one is prepared. Measured on 64
** lengths (doc/decisions.md). */
enum { MOST_BYTES = 4 << 20 };
/* Runs that have an entry of their own; the bytes of further ones are added to the last. */
enum { MOST_RUNS = 256 };

static struct {
  struct noted_run { int64_t bytes; struct ticket last; } run[MOST_RUNS];
  int first;                                          /* the oldest run */
  int n;                                              /* unfinished runs */
  int64_t bytes;                                      /* of all of them */
} ahead;

static void drop_oldest(void)
{
  ahead.bytes -= ahead.run[ahead.first].bytes;
  ahead.first = (ahead.first + 1) % MOST_RUNS;
  ahead.n--;
}

void ahead_wait(int64_t bytes)
{
  while (ahead.n && ticket_past(ahead.run[ahead.first].last)) drop_oldest();
  if (!bytes || ahead.bytes + bytes <= MOST_BYTES) return;
  while (ahead.n > 1 && ahead.bytes + bytes > MOST_BYTES / 2) {
    ticket_wait(ahead.run[ahead.first].last);
    drop_oldest();
  }
}

void ahead_note(int64_t bytes, struct ticket last)
{
  if (!bytes || ticket_past(last)) return;
  if (ahead.n < MOST_RUNS)
    ahead.run[(ahead.first + ahead.n++) % MOST_RUNS] = (struct noted_run){ 0 };
  struct noted_run *r = &ahead.run[(ahead.first + ahead.n - 1) % MOST_RUNS];
  r->bytes += bytes;
  r->last = last;
  ahead.bytes += bytes;
}
