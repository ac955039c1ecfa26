/* recording.h - what a thread records. */
#pragma once
#include <stdbool.h>

struct recording {
  bool on;                                            /* calls are recorded */
  bool paused;                                        /* they would be, but for a pause */
  bool training;                                      /* Dropout and its like are on */
  const char *where;                                  /* line of the script, interned; NULL */
};
struct recording *thread_recording(void);
/* Returns the one copy of a line's text, which lives as long as the process; NULL: no room. */
const char *intern_line(const char *line);
