/* recording.h - what a thread records. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct recording {
  bool on;                                            /* calls are recorded */
  bool paused;                                        /* they would be, but for a pause */
  bool training;                                      /* operators run in training mode */
  const char *where;                                  /* current line, interned; NULL: unknown */
  /* The front end looks a line up only where this asks for it, since loops repeat their calls. A
  ** backlog that begins with the same call at the same line as an earlier one takes the lines of
  ** that one, as long as its calls are the same. */
  struct line_request {
    int32_t wanted;                                   /* the next call needs its line beforehand */
    int32_t missed;                                   /* the last call has no line */
  } line;
};
extern _Thread_local struct recording recording_of_thread;
/* Returns what the calling thread records. */
static inline struct recording *thread_recording(void) { return &recording_of_thread; }
/* Returns the one copy of a line's text, which lives as long as the process; NULL where the table
** of lines is full or memory is out. Any thread may call it. */
const char *intern_line(const char *line);
