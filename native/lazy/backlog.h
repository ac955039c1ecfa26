/* backlog.h - recorded calls that are not submitted yet.
**
** A thread's calls form a backlog, in their order. They are submitted as one program when a value
** that they make is needed, before a value that they read is written, when there are too many of
** them, or by a backward. One lock serves all backlogs; it is recursive, and is taken
** before any lock of a device.
*/
#pragma once
#include "lazy/history.h"

struct backlog {
  /* pending calls in their order, linked by history.before and after */
  struct history *first, *last;
  int n;
  int late;                                           /* calls whose input was not given yet */
  int64_t held;                                       /* bytes of storages that its calls read */
  bool training;                                      /* the mode of all its calls */
  int precision;                                      /* PRECISION_*, of all its calls */
  /* the program that the thread ran last; NULL: none */
  struct kept *latest;
  /* a program that begins with the calls of this backlog, at the same lines; NULL: none is known */
  struct kept *guess;
  struct backlog *next;                               /* another thread's */
};

/* Takes the lock that serves all backlogs. It is recursive. */
void backlog_lock(void);
void backlog_unlock(void);
/* Returns this thread's backlog, which the thread's end frees; NULL: out of memory. */
struct backlog *backlog_own(void);

/* The lock is held by the callers of all functions from here to backlog_full. */

/* Puts a call at the end of a backlog. What it reads is awaited, what it changes is promised
** (device.h), until backlog_remove. */
void backlog_add(struct backlog *backlog, struct history *h);
/* Returns whether a backlog has calls of another mode than those that this thread adds now, so that
** these need a program of their own: another mode of training, or another precision. */
bool backlog_other_mode(const struct backlog *backlog, bool training);
/* Gives a backlog without calls of another mode the mode of those that this thread adds now. */
void backlog_set_mode(struct backlog *backlog, bool training);
/* Returns the line of the script for the call that comes next in this thread's backlog; NULL: not
** known. Sets whether the front end must note lines (struct line_request). */
const char *backlog_line(struct backlog *backlog, const struct cached_call *call);
/* Removes a program that is about to be freed from all backlogs. */
void backlog_forget(const struct kept *k);
/* Takes a call out of its backlog, since it is submitted or dropped. */
void backlog_remove(struct history *h);
/* Sets `broken` of the calls that read bytes that an earlier failure has broken, and of those that
** read results of such calls. A program that reads broken bytes fails as a whole, so these calls
** get a program of their own, which runs after that of the others. Returns whether that is so:
** a call is broken, and none of the backlog changes an input, which would forbid another order. */
bool backlog_mark_broken(struct backlog *backlog);
/* Sets `waits` of the calls that are late, and of those that read results of such calls. They stay
** when the others are submitted. Returns whether the backlog has late calls. */
bool backlog_mark_waiting(struct backlog *backlog);
/* Returns whether a call reads a result of a pending call whose `waits` is set. */
bool backlog_reads_waiting(const struct history *h);
/* Fails with TY_ESTATE: a call waits for a late value that was not given yet. what: the action that
** needs the call's result, for the text. */
int  backlog_fail_waiting(const char *what);
/* Returns the first backlog of all threads, whose `next` leads to the others. */
struct backlog *backlog_first(void);
/* Removes the calls of a backlog that are left, and frees it. */
void backlog_free(struct backlog *backlog);
/* Returns whether another thread's backlog has calls. */
bool backlog_elsewhere(const struct backlog *backlog);
/* Returns whether a backlog has as many calls, or holds as many bytes, as may wait. */
bool backlog_full(const struct backlog *backlog);

/* Returns whether recorded calls wait; TYCHO_LAZY=0 turns that off. */
bool backlog_enabled(void);
/* Sets whether recorded calls wait. Returns the setting before. */
bool backlog_enable(bool on);
/* Prepares the lock; end_thread is called with the backlog of a thread that ends. Called once, when
** the library is loaded. */
void backlog_begin(void (*end_thread)(void *backlog));
