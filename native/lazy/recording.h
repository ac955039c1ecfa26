/* recording.h - what a thread records. */
#pragma once
#include <stdbool.h>

struct recording {
  bool on;                                            /* calls are recorded */
  bool training;                                      /* Dropout and its like are on */
  const char *where;                                  /* line of the script, interned; NULL */
};
struct recording *thread_recording(void);
