/* kept.c - see kept.h. */
#include "lazy/kept.h"

/* Programs in the cache, at most. One structure may have several, which keep different outputs. */
enum { MOST_KEPT = 256 };
/* Runs in a row with the same outputs alive, fewer than the program keeps, after which a program is
** built that keeps only these. In a single run they may be fewer by chance, since a garbage
** collector frees arrays at any time. */
enum { RUNS_ALIKE = 2 };
/* Programs of one structure in the cache, at most. */
enum { MOST_ALIKE = 4 };

static struct kept *kept[MOST_KEPT];
static int nkept;
static ty_pool *pool;
static uint64_t runs;                                 /* serial number of the last run */
struct kept_stats kept_stats;

int kept_pool(ty_pool **out)
{
  if (!pool) TRY(ty_pool_new(&pool));
  *out = pool;
  return TY_OK;
}

/* Returns whether k was made of a trace like t: the same key and the same calls. Calls whose number
** is an argument are compared by the key alone. */
static bool has_structure(const struct kept *k, const struct trace *t, uint64_t hash)
{
  if (k->hash != hash || k->nkey != t->nkey || k->ncall != t->n) return false;
  if (memcmp(k->key, t->key, sizeof *t->key * (size_t)t->nkey)) return false;
  for (int i = 0; i < t->n; i++)
    if (t->number[i] < 0 && !cached_call_same(k->call[i], t->call[i]->call)) return false;
  return true;
}

static bool keeps_outputs(const struct kept *k, const uint8_t *alive, int noutput)
{
  for (int i = 0; i < noutput; i++)
    if (alive[i] && k->end_of[i] < 0) return false;
  return true;
}

struct kept *kept_find(const struct trace *t, uint64_t hash, const uint8_t *alive, int noutput)
{
  struct kept *best = NULL;
  for (int i = 0; i < nkept; i++) {
    struct kept *k = kept[i];
    if (!has_structure(k, t, hash) || !keeps_outputs(k, alive, noutput)) continue;
    if (!best || k->nend < best->nend) best = k;
  }
  if (best) best->used = ++runs;
  return best;
}

/* Returns the number of programs of the same structure. */
static int count_alike(const struct kept *like)
{
  int n = 0;
  for (int i = 0; i < nkept; i++)
    n += kept[i]->hash == like->hash && kept[i]->nkey == like->nkey &&
        !memcmp(kept[i]->key, like->key, sizeof *like->key * (size_t)like->nkey);
  return n;
}

bool kept_is_large(struct kept *k, const uint8_t *alive)
{
  const size_t n = (size_t)k->noutput;
  if (!memcmp(alive, k->alive, n))
    k->repeated = 0;
  else
    k->repeated = memcmp(alive, k->latest, n) ? 1 : k->repeated + 1;
  memcpy(k->latest, alive, n);
  return k->repeated == RUNS_ALIKE && count_alike(k) < MOST_ALIKE;
}

void kept_mark(const struct trace *t, uint64_t hash, uint8_t *alive, int noutput)
{
  for (int i = 0; i < nkept; i++)
    for (int o = 0; has_structure(kept[i], t, hash) && o < noutput; o++)
      alive[o] |= kept[i]->end_of[o] >= 0;
}

void kept_free(struct kept *k)
{
  if (!k) return;
  backlog_forget(k);
  for (int i = 0; i < nkept; i++)
    if (kept[i]->next == k) kept[i]->next = NULL;
  for (int i = 0; i < k->ncall; i++) cached_call_release(k->call[i]);
  for (int h = 0; k->e && k->ones && h < k->e->graph.nhead; h++) ty_tensor_free(k->ones[h]);
  ty_exec_free(k->e);
  for (int i = 0; i < k->nknown; i++) tensor_move(&k->known_array[i], NULL, 0);
  for (int i = 0; i < k->nend; i++) tensor_move(&k->end_array[i], NULL, 0);
  mem_free(k->key);
  mem_free(k->call);
  mem_free(k->where);
  mem_free(k->leaf);
  mem_free(k->leaf_grad);
  mem_free(k->known);
  mem_free(k->known_array);
  mem_free(k->end_of);
  mem_free(k->end);
  mem_free(k->end_array);
  mem_free(k->steps);
  mem_free(k->ones);
  mem_free(k->alive);
  mem_free(k->latest);
  mem_free(k);
}

void kept_add(struct kept *k, uint64_t hash)
{
  if (nkept == MOST_KEPT) {
    int oldest = 0;
    for (int i = 1; i < nkept; i++)
      if (kept[i]->used < kept[oldest]->used) oldest = i;
    kept_free(kept[oldest]);
    kept[oldest] = kept[--nkept];
  }
  k->hash = hash;
  k->used = ++runs;
  kept[nkept++] = k;
}

int ty_lazy(ty_lazy_stats *out, int clear)
{
  NEED(out, TY_ETYPE, "lazy: the result's place is missing");
  backlog_lock();
  const struct backlog *t = backlog_own();
  *out = (ty_lazy_stats){ nkept, kept_stats.hits, kept_stats.misses, kept_stats.flushes,
    kept_stats.ops, t ? t->n : 0, backlog_enabled() };
  if (clear) kept_stats = (struct kept_stats){ 0 };
  backlog_unlock();
  return TY_OK;
}

void ty_lazy_trim(void)
{
  backlog_lock();
  while (nkept) kept_free(kept[--nkept]);
  if (pool) ty_pool_free(pool);
  pool = NULL;
  backlog_unlock();
}
