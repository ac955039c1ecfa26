/* recording.h - what a thread records. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct recording {
  bool on;                                            /* calls are recorded */
  bool paused;                                        /* they would be, but for a pause */
  bool training;                                      /* Dropout and its like are on */
  const char *where;                                  /* line of the script, interned; NULL */
  /* The front end reads these. Lines repeat: a backlog that begins as one before did, at the same
  ** line, takes the lines of that one, as long as its calls are the same. */
  struct line_request {
    int32_t wanted;                                   /* a line must be noted for the next call */
    int32_t missed;                                   /* the last call has none */
  } line;
};
extern _Thread_local struct recording recording_of_thread;
static inline struct recording *thread_recording(void) { return &recording_of_thread; }
/* Returns the one copy of a line's text, which lives as long as the process; NULL: no room. */
const char *intern_line(const char *line);
