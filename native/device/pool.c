/* pool.c - see pool.h. A pool is freed when both its last user and the last storage in it are gone,
** possibly on a queue's thread: freeing must not wait. Order of locks: `all` (the list of pools),
** then pool.lock.
*/
#include <pthread.h>
#include "device/pool.h"

enum { RANGES = 16 }; /* most devices of a pool */

/* a storage in the pool */
struct resident {
  ty_pool *pool;
  struct resident *next, **link;
  struct storage *storage;                            /* borrowed: freeing it frees this struct */
  int range;
  size_t offset, bytes;
};

/* Bytes that a user needs of a range. user NULL: needed until the pool is freed. */
struct need { const void *user; int range; size_t bytes; };

struct ty_pool {
  int users;                                          /* handles and executors */
  int refs;                                           /* users and residents */
  pthread_mutex_t lock;
  struct range range[RANGES];
  int nrange;
  struct ticket last[RANGES];
  int nlast;
  uint64_t generation;
  struct need *need;
  int nneed, need_cap;
  struct resident *residents;
  /* the next pool in the list of all pools */
  ty_pool *next;
  ty_pool **link;                                     /* the pointer to this pool in that list */
};

static ty_pool *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

int ty_pool_new(ty_pool **out)
{
  NEED(out, TY_ETYPE, "ty_pool_new: out is missing");
  ty_pool *p = NEW(ty_pool);
  NEED(p, TY_EMEMORY, "out of memory");
  p->users = p->refs = 1;
  pthread_mutex_init(&p->lock, NULL);
  pthread_mutex_lock(&all_lock);
  p->next = all;
  p->link = &all;
  if (all) all->link = &p->next;
  all = p;
  pthread_mutex_unlock(&all_lock);
  live_add(LIVE_POOL, 1);
  *out = p;
  return TY_OK;
}

void pool_keep(ty_pool *p)
{
  pthread_mutex_lock(&p->lock);
  p->users++;
  p->refs++;
  pthread_mutex_unlock(&p->lock);
}

/* Frees what neither a user nor a resident needs. Call under the lock. */
static void pool_trim_ranges(ty_pool *p)
{
  for (int i = 0; i < p->nrange; i++) {
    size_t keep = 0;
    for (int k = 0; k < p->nneed && p->users; k++)
      if (p->need[k].range == i) keep = MAX(keep, p->need[k].bytes);
    for (struct resident *r = p->residents; r; r = r->next)
      if (r->range == i) keep = MAX(keep, r->offset + r->bytes);
    range_trim(&p->range[i], keep);
  }
}

/* Drops one reference, and `users` (0 or 1) users. The last reference frees the pool. */
static void pool_drop(ty_pool *p, int users)
{
  pthread_mutex_lock(&p->lock);
  p->users -= users;
  bool gone = --p->refs == 0;
  if (!gone && users && !p->users) pool_trim_ranges(p); /* only residents use it now */
  pthread_mutex_unlock(&p->lock);
  if (!gone) return;
  pthread_mutex_lock(&all_lock);
  *p->link = p->next;
  if (p->next) p->next->link = p->link;
  pthread_mutex_unlock(&all_lock);
  for (int i = 0; i < p->nrange; i++) range_free(&p->range[i]);
  pthread_mutex_destroy(&p->lock);
  mem_free(p->need);
  mem_free(p);
  live_add(LIVE_POOL, -1);
}

void ty_pool_free(ty_pool *p)
{
  if (p && !mem_kept()) pool_drop(p, 1);
}

/* -- ranges ------------------------------------------------------------------------------------ */

/* Returns the index of a device's range; -1: it has none. */
static int pool_range_index(const ty_pool *p, int device)
{
  for (int i = 0; i < p->nrange; i++)
    if (p->range[i].device == device) return i;
  return -1;
}

/* Waits until no task uses the pool. */
static void pool_wait_runs(ty_pool *p)
{
  struct ticket t[RANGES];
  int n = pool_last(p, t, RANGES);
  for (int i = 0; i < n; i++) ticket_wait(t[i]);
}

/* Finds the range of a device, or makes an empty one. Call under the lock. */
static int pool_find_range(ty_pool *p, int device, int *at)
{
  *at = pool_range_index(p, device);
  if (*at >= 0) return TY_OK;
  NEED(p->nrange < RANGES, TY_EDEVICE, "a memory pool spans at most %d devices", RANGES);
  TRY(range_new(device, &p->range[p->nrange]));
  *at = p->nrange++;
  return TY_OK;
}

/* Notes that a user needs at least `bytes` of a range. Call under the lock. */
static int pool_note_need(ty_pool *p, const void *user, int range, size_t bytes)
{
  for (int i = 0; i < p->nneed; i++) {
    if (p->need[i].user != user || p->need[i].range != range) continue;
    p->need[i].bytes = MAX(p->need[i].bytes, bytes);
    return TY_OK;
  }
  NEED(GROW(p->need, p->nneed, p->need_cap), TY_EMEMORY, "out of memory");
  p->need[p->nneed++] = (struct need){ user, range, bytes };
  return TY_OK;
}

int pool_reserve_for(ty_pool *p, const void *user, int device, size_t bytes, bool *moved)
{
  int at;
  *moved = false;
  if (!bytes) return TY_OK;
  pthread_mutex_lock(&p->lock);
  int code = pool_find_range(p, device, &at);
  if (!code && p->range[at].base && align_up(bytes, PAGE) > p->range[at].reserved) {
    /* the range may move, which it must not during a run */
    pthread_mutex_unlock(&p->lock);
    pool_wait_runs(p);
    pthread_mutex_lock(&p->lock);
  }
  if (!code) code = pool_note_need(p, user, at, bytes);
  const bool noted = !code;
  if (noted) code = range_grow(&p->range[at], bytes, moved);
  if (noted && code == TY_EMEMORY) { /* try again after trimming all pools */
    pthread_mutex_unlock(&p->lock);
    ty_pool_trim(NULL);
    pthread_mutex_lock(&p->lock);
    code = range_grow(&p->range[at], bytes, moved);
  }
  if (!code && *moved) {
    p->generation++;
    for (struct resident *r = p->residents; r; r = r->next)
      if (r->range == at) r->storage->data = p->range[at].base + r->offset;
  }
  pthread_mutex_unlock(&p->lock);
  return code;
}

int pool_reserve(ty_pool *p, int device, size_t bytes, bool *moved)
{
  return pool_reserve_for(p, NULL, device, bytes, moved);
}

void pool_forget(ty_pool *p, const void *user)
{
  pthread_mutex_lock(&p->lock);
  int n = 0;
  for (int i = 0; i < p->nneed; i++)
    if (p->need[i].user != user) p->need[n++] = p->need[i];
  p->nneed = n;
  pthread_mutex_unlock(&p->lock);
}

char *pool_base(ty_pool *p, int device)
{
  pthread_mutex_lock(&p->lock);
  int at = pool_range_index(p, device);
  char *base = at < 0 ? NULL : p->range[at].base;
  pthread_mutex_unlock(&p->lock);
  return base;
}

uint64_t pool_generation(ty_pool *p)
{
  pthread_mutex_lock(&p->lock);
  uint64_t n = p->generation;
  pthread_mutex_unlock(&p->lock);
  return n;
}

int ty_pool_bytes(ty_pool *p, int device, int64_t *out)
{
  NEED(p && out, TY_ETYPE, "ty_pool_bytes: the pool or out is missing");
  *out = 0;
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < p->nrange; i++)
    if (device == -1 || p->range[i].device == device) *out += (int64_t)p->range[i].bytes;
  pthread_mutex_unlock(&p->lock);
  return TY_OK;
}

/* Waits for the runs of a pool, then trims it. */
static void pool_trim(ty_pool *p)
{
  pool_wait_runs(p);
  pthread_mutex_lock(&p->lock);
  pool_trim_ranges(p);
  pthread_mutex_unlock(&p->lock);
}

int ty_pool_trim(ty_pool *p)
{
  if (p) {
    pool_trim(p);
    return TY_OK;
  }
  /* Collect all pools, with a reference each: trimming waits, and must not hold the list's lock,
  ** which a queue's thread may need. */
  int n = 0, cap = 0;
  ty_pool **list = NULL;
  pthread_mutex_lock(&all_lock);
  for (ty_pool *q = all; q && GROW(list, n, cap); q = q->next) {
    pthread_mutex_lock(&q->lock);
    if (q->refs) q->refs++, list[n++] = q; /* 0: it is being destroyed */
    pthread_mutex_unlock(&q->lock);
  }
  pthread_mutex_unlock(&all_lock);
  for (int i = 0; i < n; i++) {
    pool_trim(list[i]);
    pool_drop(list[i], 0);
  }
  mem_free(list);
  return TY_OK;
}

/* -- runs -------------------------------------------------------------------------------------- */

void pool_ran(ty_pool *p, struct ticket t)
{
  if (!t.seq) return;
  pthread_mutex_lock(&p->lock);
  int i = 0;
  while (i < p->nlast && p->last[i].device != t.device) i++;
  if (i == p->nlast && p->nlast < RANGES)
    p->last[p->nlast++] = t;
  else if (i < p->nlast)
    p->last[i].seq = MAX(p->last[i].seq, t.seq);
  pthread_mutex_unlock(&p->lock);
}

int pool_last(ty_pool *p, struct ticket *out, int max)
{
  int n = 0;
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < p->nlast && n < max; i++)
    if (!ticket_past(p->last[i])) out[n++] = p->last[i];
  pthread_mutex_unlock(&p->lock);
  return n;
}

/* -- residents --------------------------------------------------------------------------------- */

/* The `release` function of a storage in a pool. */
static void pool_release_resident(void *owner, void *data)
{
  struct resident *r = owner;
  ty_pool *p = r->pool;
  pthread_mutex_lock(&p->lock);
  *r->link = r->next;
  if (r->next) r->next->link = r->link;
  pthread_mutex_unlock(&p->lock);
  mem_free(r);
  pool_drop(p, 0);
}

int pool_storage(ty_pool *p, int device, size_t offset, size_t bytes, struct storage **out)
{
  struct resident *r = NEW(struct resident);
  NEED(r, TY_EMEMORY, "out of memory");
  pthread_mutex_lock(&p->lock);
  int at = pool_range_index(p, device);
  bool fits = at >= 0 && offset <= p->range[at].bytes && bytes <= p->range[at].bytes - offset;
  int code = fits
      ? storage_wrap(
            device, p->range[at].base + offset, bytes, pool_release_resident, r, &r->storage)
      : fail(TY_EINTERNAL, "a value of %zu bytes at %zu is outside its pool", bytes, offset);
  if (!code) {
    r->pool = p;
    r->range = at;
    r->offset = offset;
    r->bytes = bytes;
    r->next = p->residents;
    r->link = &p->residents;
    if (r->next) r->next->link = &r->next;
    p->residents = r;
    p->refs++;
    *out = r->storage;
  }
  pthread_mutex_unlock(&p->lock);
  if (code) mem_free(r);
  return code;
}
