/* trial.c - see trial.h. Events time several runs of an algorithm (a way) at once, in rounds over
** all ways; the least time of a way counts, since other work of the device only adds to it. */
#include <math.h>
#include <pthread.h>
#include "cuda/cache.h"
#include "cuda/trial.h"

/* Rounds over all ways, and runs of a way that are timed together. */
enum { ROUNDS = 3, RUNS = 4 };
/* A way replaces the library's first one only if it takes less than this fraction of its time,
** since times of launches vary by some percent. */
static const float MARGIN = 0.95F;

struct kept_choice {
  struct kept_choice *next;
  char *key;
  int way;
};
static struct kept_choice *choices;                   /* of this process; under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether TYCHO_TUNE is 1. It is read once, since existing plans keep the workspace of their
** way. */
static bool allowed;
static void read_setting(void) { allowed = !strcmp(env_text("TYCHO_TUNE", "0"), "1"); }

int trial_ways(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_setting);
  return allowed ? TRIAL_WAYS : 1;
}

/* -- choices made before ----------------------------------------------------------------------- */

/* Returns a choice of this process, -1 if there is none. Call it under the lock. */
static int find_choice(const char *key)
{
  const struct kept_choice *c = choices;
  while (c && strcmp(c->key, key)) c = c->next;
  return c ? c->way : -1;
}

/* Keeps a choice unless another thread has kept one for the key. Returns the choice that counts.
** Takes ownership of the key. */
static int keep_choice(char *key, int way)
{
  pthread_mutex_lock(&lock);
  const int before = find_choice(key);
  struct kept_choice *c = before < 0 ? NEW(struct kept_choice) : NULL;
  if (c) {
    *c = (struct kept_choice){ choices, key, way };
    choices = c;
  }
  pthread_mutex_unlock(&lock);
  if (!c) mem_free(key);
  return before >= 0 ? before : c ? way : 0;
}

static int read_choice(const char *key, int n)
{
  char *text;
  size_t size;
  if (!cache_read(key, "choice", &text, &size)) return -1;
  const int way = size == 1 ? text[0] - '0' : -1;
  mem_free(text);
  return way < n ? way : -1;
}

static char *make_key(int device, const char *what)
{
  struct text t = { 0 };
  const struct cuda_device *d = cuda_device(device);
  text_add(&t, "%s %d, driver %d: %s", d->name, d->arch, cuda_driver_version(), what);
  char *key = t.lost ? NULL : mem_text(t.s);
  text_done(&t);
  return key;
}

/* -- timing ------------------------------------------------------------------------------------ */

/* Returns the ms of RUNS runs; infinity if a call fails. The run before the first event keeps the
** device busy while the host submits the others. */
static float time_way(const struct trial *t, int i, char *memory, const cu_event event[2])
{
  const cu_stream s = cuda_stream(t->device);
  float ms;
  bool good = t->start(t->of, i, memory) && !cu_api.EventRecord(event[0], s);
  for (int k = 0; good && k < RUNS; k++) good = t->start(t->of, i, memory);
  good = good && !cu_api.EventRecord(event[1], s) && !cu_api.EventSynchronize(event[1]) &&
      !cu_api.EventElapsedTime(&ms, event[0], event[1]);
  return good ? ms : INFINITY;
}

/* Returns the fastest way, -1 if none runs. */
static int fastest_way(const struct trial *t, char *memory, const cu_event event[2])
{
  float least[TRIAL_WAYS];
  int best = 0;
  for (int i = 0; i < t->n; i++) least[i] = INFINITY;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < t->n; i++) {
      const float ms = time_way(t, i, memory, event);
      least[i] = MIN(least[i], ms);
    }
  for (int i = 1; i < t->n; i++)
    if (least[i] < least[best]) best = i;
  if (isinf(least[best])) return -1;
  return least[best] < MARGIN * least[0] ? best : 0;
}

/* Times the ways in memory that is allocated for it, at most half of what is free. Returns -1 if
** there is too little, or a call fails. */
static int time_ways(const struct trial *t)
{
  const cu_stream s = cuda_stream(t->device);
  cu_pointer memory = 0;
  cu_event event[2] = { NULL, NULL };
  size_t unused = 0, total = 0;
  if (cu_api.MemGetInfo(&unused, &total) || t->bytes > unused / 2) return -1;
  if (cu_api.MemAlloc(&memory, t->bytes)) return -1;
  bool good = !cu_api.MemsetD8Async(memory, 0, t->bytes, s);
  for (int i = 0; i < COUNT(event); i++) good = good && !cu_api.EventCreate(&event[i], 0);
  const int best = good ? fastest_way(t, (char *)(uintptr_t)memory, event) : -1;
  cu_api.StreamSynchronize(s);
  for (int i = 0; i < COUNT(event); i++)
    if (event[i]) cu_api.EventDestroy(event[i]);
  cu_api.MemFree(memory);
  return best;
}

int trial_choose(const struct trial *t, const char *what)
{
  char *key = t->n > 1 ? make_key(t->device, what) : NULL;
  if (!key) return 0;
  pthread_mutex_lock(&lock);
  int way = find_choice(key);
  pthread_mutex_unlock(&lock);
  if (way >= 0 || cuda_serves(t->device)) return mem_free(key), MAX(way, 0);
  way = read_choice(key, t->n);
  if (way < 0) {
    way = time_ways(t);
    const char text[2] = { (char)('0' + way), 0 };
    if (way >= 0) cache_write(key, "choice", text, 1);
  }
  return keep_choice(key, MAX(way, 0));
}
