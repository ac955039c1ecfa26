/* recording.c - see recording.h. */
#include <pthread.h>
#include "imperative/imperative.h"
#include "lazy/recording.h"

_Thread_local struct recording recording_of_thread = { .line = { .wanted = 1 } };

int ty_recording(int set)
{
  if (set >= 0) {
    recording_of_thread.on = set == 1;
    recording_of_thread.paused = set == 2;
  }
  return recording_of_thread.on;
}

int ty_training(int set)
{
  if (set >= 0) recording_of_thread.training = set != 0;
  return recording_of_thread.training;
}

/* -- lines ------------------------------------------------------------------------------------- */

/* Slots of the hash table of lines, a power of two. A script whose calls are on more lines has
** calls without one. */
enum { LINES = 4096 };

const char *intern_line(const char *line)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static char *known[LINES];
  const char *found = NULL;
  pthread_mutex_lock(&lock);
  uint32_t at = name_hash(line) & (LINES - 1);
  for (int k = 0; k < LINES && !found; k++, at = (at + 1) & (LINES - 1)) {
    if (!known[at]) known[at] = mem_text(line);
    if (!known[at]) break;
    if (!strcmp(known[at], line)) found = known[at];
  }
  pthread_mutex_unlock(&lock);
  return found;
}

int ty_line(const char *line)
{
  recording_of_thread.where = line ? intern_line(line) : NULL;
  return TY_OK;
}

const int32_t *ty_line_request(void) { return &recording_of_thread.line.wanted; }

int ty_note_write(ty_tensor *t, const char *line)
{
  NEED(t, TY_ETYPE, "note_write: the array is missing");
  const char *at = line ? intern_line(line) : NULL;
  __atomic_store_n(&t->storage->written_at, at, __ATOMIC_RELAXED);
  return TY_OK;
}
