/* threads.c - ranks in one process, for tests and for trying a script for several hosts: each rank
** is a thread, and bytes go through memory. */
#include <pthread.h>
#include "comm/comm.h"

/* What all ranks of a group share. */
struct shared {
  pthread_mutex_t lock;
  pthread_cond_t all_here;
  int size, arrived, left, refs;
  unsigned round;
  bool aborted;
  const void *posted[COMM_RANKS];
};
struct rank {
  struct comm_world world;
  struct shared *shared;
};

/* A barrier of all ranks. Returns false if the group ends before. */
static bool rank_wait_all(struct rank *r)
{
  struct shared *s = r->shared;
  pthread_mutex_lock(&s->lock);
  unsigned round = s->round;
  if (++s->arrived == s->size) {
    s->arrived = 0;
    s->round++;
    pthread_cond_broadcast(&s->all_here);
  }
  while (round == s->round && !s->aborted && !s->left) pthread_cond_wait(&s->all_here, &s->lock);
  bool good = round != s->round;
  pthread_mutex_unlock(&s->lock);
  if (!good)
    snprintf(r->world.why, sizeof r->world.why, "%s",
        s->aborted ? "the group was ended" : "another rank has left the group");
  return good;
}

/* Publishes a rank's data and waits until all ranks have done so. */
static bool rank_post_data(struct rank *r, const void *data)
{
  r->shared->posted[r->world.rank] = data;
  return rank_wait_all(r);
}

static size_t threads_add_sizes(const size_t *part, int n)
{
  size_t sum = 0;
  for (int i = 0; i < n; i++) sum += part[i];
  return sum;
}

static bool threads_exchange(struct comm_world *w, const char *send, char *recv, const size_t *part)
{
  struct rank *r = (struct rank *)w;
  size_t own = part[w->rank], first = threads_add_sizes(part, w->rank);
  if (!rank_post_data(r, send)) return false;
  for (int i = 0; i < w->size; i++)
    if (i != w->rank)
      memcpy(recv + own * (size_t)i, (const char *)r->shared->posted[i] + first, own);
  return rank_wait_all(r);
}

static bool threads_gather(struct comm_world *w, char *data, const size_t *part)
{
  struct rank *r = (struct rank *)w;
  size_t first = 0;
  if (!rank_post_data(r, data)) return false;
  for (int i = 0; i < w->size; i++) {
    if (i != w->rank) memcpy(data + first, (const char *)r->shared->posted[i] + first, part[i]);
    first += part[i];
  }
  return rank_wait_all(r);
}

static bool threads_broadcast(struct comm_world *w, void *data, size_t bytes, int root)
{
  struct rank *r = (struct rank *)w;
  if (!rank_post_data(r, data)) return false;
  if (w->rank != root) memcpy(data, r->shared->posted[root], bytes);
  return rank_wait_all(r);
}

static void threads_abort(struct comm_world *w, int status)
{
  struct shared *s = ((struct rank *)w)->shared;
  pthread_mutex_lock(&s->lock);
  s->aborted = true;
  pthread_cond_broadcast(&s->all_here);
  pthread_mutex_unlock(&s->lock);
}

static void threads_close(struct comm_world *w)
{
  struct shared *s = ((struct rank *)w)->shared;
  pthread_mutex_lock(&s->lock);
  s->left++;
  bool last = --s->refs == 0;
  pthread_cond_broadcast(&s->all_here);
  pthread_mutex_unlock(&s->lock);
  mem_free(w);
  if (!last) return;
  pthread_cond_destroy(&s->all_here);
  pthread_mutex_destroy(&s->lock);
  mem_free(s);
}

const struct comm_ops comm_threads = {
  .name = "threads",
  .size = sizeof(struct comm_ops),
  .exchange = threads_exchange,
  .gather = threads_gather,
  .broadcast = threads_broadcast,
  .abort = threads_abort,
  .close = threads_close,
};

int comm_threads_open(int size, struct comm_world **out)
{
  struct shared *s = NEW(struct shared);
  NEED(s, TY_EMEMORY, "out of memory: a group of %d ranks", size);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->all_here, NULL);
  s->size = size;
  for (int i = 0; i < size; i++) {
    struct rank *r = NEW(struct rank);
    if (!r) {
      for (s->refs = i; i > 0; i--) threads_close(out[i - 1]);
      return fail(TY_EMEMORY, "out of memory: a group of %d ranks", size);
    }
    r->world = (struct comm_world){ .rank = i, .size = size };
    r->shared = s;
    out[i] = &r->world;
  }
  s->refs = size;
  return TY_OK;
}
