/* memory_fit.c - offsets for values with known sizes and lifetimes, in as little memory as
** possible.
**
** The lower bound is the largest sum of bytes alive at one step; where offsets are kept, also what
** these leave no room for below them. Values are placed in several orders, each value in the
** tightest or the lowest gap that is free for its whole life (Pisarchyk & Lee, arXiv 2001.03288,
** for the order by size); the smallest total wins, and the search ends as soon as one meets the
** bound. If none does, random changes of the best order are tried, and kept where the plan is no
** larger, until it is within 0.2 % of the bound or a budget is used up; if it is still 4 % above,
** the other orders are improved in the same way. In a reshape the search ends after a fraction of a
** millisecond if a plan needs no more bytes than the pool has, and, for few items, after one or two
** milliseconds with all plans. Cost: O(n^2) an order. One pass in order of time with a free list,
** O(n log n), comes first; for large n the others follow, within a budget, only where it is more
** than 0.2 % above the bound.
*/
#include "pass/passes.h"

/* An item with an offset: what fit_find_gap reads of it, side by side. */
struct assigned {
  int item;
  int first, last;                                    /* steps of its life */
  int64_t offset, end;                                /* its bytes */
};

struct fit {
  int n;                                              /* items */
  const int64_t *bytes;                               /* per item: its size */
  const int *first, *last;                            /* per item: the steps of its life */
  const int64_t *kept;                                /* per item: the offset it keeps, or -1 */
  int nkept;                                          /* items that keep theirs */
  int64_t *offset;                                    /* per item: in the plan that is made */
  int64_t *best;                                      /* per item: in the best plan so far */
  int64_t total;                                      /* bytes of the best plan */
  int64_t live;                                       /* the most bytes alive at one step */
  int peak;                                           /* that step */
  int64_t bound;                                      /* no plan with the kept offsets needs less */
  int64_t held;                                       /* bytes that the pool has already */
  /* values go to the lowest gap (by which some order gives every plan), else to the tightest */
  bool lowest;
  int *order;                                         /* the items, in the order to assign them */
  int *base_order;                                    /* the order that the search changes */
  struct assigned *assigned;                          /* sorted by offset */
  int64_t *key;                                       /* per item: what it is sorted by */
};

/* Returns the most bytes that are alive at one step, and that step in *when. Only items count that
** begin at `least` or above; start NULL: all do. */
static int64_t fit_find_peak(int n, const int64_t *bytes, const int *first, const int *last,
    const int64_t *start, int64_t least, int *when)
{
  int end = 0;
  for (int i = 0; i < n; i++) end = MAX(end, last[i] + 2);
  int64_t *delta = NEWS(int64_t, end + 1), live = 0, peak = 0;
  if (!delta) return 0;
  for (int i = 0; i < n; i++)
    if (!start || start[i] >= least) delta[first[i]] += bytes[i], delta[last[i] + 1] -= bytes[i];
  for (int t = 0; t < end; t++) {
    live += delta[t];
    if (live > peak) peak = live, *when = t;
  }
  mem_free(delta);
  return peak;
}

static _Thread_local const int64_t *sort_key;         /* of the sort that runs, per item */

/* Compares items for qsort: the largest key comes first, the first item of equal ones. */
static int fit_compare_keys_down(const void *a, const void *b)
{
  int i = *(const int *)a, j = *(const int *)b;
  return sort_key[i] != sort_key[j] ? (sort_key[i] > sort_key[j] ? -1 : 1) : i - j;
}

static int fit_compare_keys_up(const void *a, const void *b) { return fit_compare_keys_down(b, a); }

/* -- the bound that kept offsets impose -------------------------------------------------------- */

enum { MOST_THRESHOLDS = 32 };                        /* that fit_raise_by_thresholds looks at */

/* Returns where an item begins at the earliest if it fits below no kept item of its life: at the
** end of these; 0 where it fits. `by_offset`: the n kept items in order of their offsets. */
static int64_t fit_find_forced_offset(const struct fit *f, int i, const int *by_offset, int n)
{
  int64_t at = 0;
  for (int k = 0; k < n; k++) {
    const int j = by_offset[k];
    if (f->last[j] < f->first[i] || f->first[j] > f->last[i]) continue;
    if (f->kept[j] - at >= f->bytes[i]) return 0;
    at = MAX(at, f->kept[j] + f->bytes[j]);
  }
  return at;
}

/* Raises the bound: items that begin above a kept offset are above each other where they live at
** once. */
static void fit_raise_by_thresholds(struct fit *f)
{
  int64_t least = INT64_MAX;
  int when;
  for (int tried = 0; tried < MOST_THRESHOLDS; tried++) {
    int64_t next = 0;
    for (int i = 0; i < f->n; i++)
      if (f->key[i] < least) next = MAX(next, f->key[i]);
    if (!next) return;
    f->bound = MAX(
        f->bound, next + fit_find_peak(f->n, f->bytes, f->first, f->last, f->key, next, &when));
    least = next;
  }
}

/* Sums of sizes are bits of words, a bit for ALIGN bytes. */
enum {
  HOLE_WORDS = 1 << 14,                               /* at most, for one hole */
  SUM_WORDS = 1 << 19                                 /* all that a bound may look at */
};

/* Adds to the sums those with an item of so many units. Bit k of sums: some items have k units
** together. */
static void fit_add_sums(uint64_t *sums, int words, int64_t units)
{
  const int shift = (int)(units / 64), bits = (int)(units % 64);
  for (int w = words - 1; w >= shift; w--) {
    uint64_t x = sums[w - shift] << bits;
    if (bits && w > shift) x |= sums[w - shift - 1] >> (64 - bits);
    sums[w] |= x;
  }
}

/* Returns how much of a hole from `at` to `end` items fill at most at step t; takes the work that
** it needs from *words. */
static int64_t fit_fill_at_most(const struct fit *f, int t, int64_t at, int64_t end, int64_t *words)
{
  const int64_t units = (end - at) / ALIGN;
  const int n = (int)MIN(units / 64 + 1, HOLE_WORDS);
  uint64_t *sums = units / 64 < HOLE_WORDS && *words > 0 ? NEWS(uint64_t, n) : NULL;
  int64_t all = 0, most = 0;
  if (sums) sums[0] = 1;
  for (int i = 0; i < f->n; i++) {
    if (f->kept[i] >= 0 || f->first[i] > t || f->last[i] < t) continue;
    if (MAX(f->key[i], at) + f->bytes[i] > end) continue;
    all += f->bytes[i];
    if (sums) fit_add_sums(sums, n, f->bytes[i] / ALIGN), *words -= n;
  }
  for (int64_t k = sums ? units : -1; k >= 0; k--)
    if (sums[k / 64] >> (k % 64) & 1) {
      most = k;
      break;
    }
  most = sums ? most * ALIGN : end - at;
  mem_free(sums);
  return MIN(all, most);
}

/* Computes the bound at step t: what does not fit between kept offsets is above them. by_offset:
** see fit_find_forced_offset. */
static int64_t fit_compute_bound_at(
    const struct fit *f, int t, const int *by_offset, int n, int64_t *words)
{
  int64_t at = 0, free = 0, filled = 0;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] < 0 && f->first[i] <= t && t <= f->last[i]) free += f->bytes[i];
  for (int k = 0; k < n; k++) {
    const int j = by_offset[k];
    if (f->last[j] < t || f->first[j] > t) continue;
    if (f->kept[j] > at) filled += fit_fill_at_most(f, t, at, f->kept[j], words);
    at = MAX(at, f->kept[j] + f->bytes[j]);
  }
  return at + MAX(free - filled, 0);
}

/* Raises the bound to what the kept offsets make necessary. */
static void fit_raise_bound(struct fit *f)
{
  int n = 0, *by_offset = f->order;
  int64_t words = SUM_WORDS;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] >= 0) by_offset[n++] = i;
  sort_key = f->kept;
  qsort(by_offset, (size_t)n, sizeof(int), fit_compare_keys_up);
  for (int i = 0; i < f->n; i++) {
    f->key[i] = f->kept[i] < 0 ? fit_find_forced_offset(f, i, by_offset, n) : 0;
    if (f->kept[i] >= 0) f->bound = MAX(f->bound, f->kept[i] + f->bytes[i]);
  }
  fit_raise_by_thresholds(f);
  for (int i = 0; i < f->n && words > 0; i++) { /* items alive at once meet where one begins */
    f->bound = MAX(f->bound, fit_compute_bound_at(f, f->first[i], by_offset, n, &words));
    words -= n + f->n / 64;
  }
}

/* -- one order --------------------------------------------------------------------------------- */

/* Returns the offset of the tightest gap (or the lowest one that fits) for item i between the
** assigned items that live with it. */
static int64_t fit_find_gap(const struct fit *f, int i, int assigned)
{
  const int first = f->first[i], last = f->last[i];
  const int64_t bytes = f->bytes[i];
  int64_t at = 0, best = -1, gap = INT64_MAX;
  for (const struct assigned *x = f->assigned, *end = x + assigned; x < end; x++) {
    if (x->last < first || x->first > last) continue;
    const int64_t hole = x->offset - at;
    if (hole >= bytes && hole < gap) {
      gap = hole;
      best = at;
      if (f->lowest || hole == bytes) break;
    }
    at = MAX(at, x->end);
  }
  return best >= 0 ? best : at;
}

/* Inserts item i, which has its offset, into the list of assigned items. */
static void fit_insert_assigned(struct fit *f, int i, int assigned)
{
  const int64_t offset = f->offset[i];
  int k = assigned;
  for (; k > 0 && f->assigned[k - 1].offset > offset; k--) f->assigned[k] = f->assigned[k - 1];
  f->assigned[k] =
      (struct assigned){ i, f->first[i], f->last[i], offset, offset + f->bytes[i] };
}

/* Assigns all items in f->order; returns the bytes that they take. Gives up, with INT64_MAX, where
** these reach the limit. */
static int64_t fit_assign_in_order(struct fit *f, int64_t limit)
{
  int assigned = 0;
  int64_t total = 0;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] >= 0)
      f->offset[i] = f->kept[i], fit_insert_assigned(f, i, assigned++),
      total = MAX(total, f->offset[i] + f->bytes[i]);
  for (int k = 0; k < f->n; k++) {
    int i = f->order[k];
    if (f->kept[i] >= 0) continue;
    f->offset[i] = fit_find_gap(f, i, assigned);
    fit_insert_assigned(f, i, assigned++);
    total = MAX(total, f->offset[i] + f->bytes[i]);
    if (total >= limit) return INT64_MAX; /* cannot win any more */
  }
  return total;
}

/* Takes f->offset as the best plan so far if it is smaller. */
static void fit_keep_if_better(struct fit *f, int64_t total)
{
  if (total >= f->total) return;
  f->total = total;
  memcpy(f->best, f->offset, sizeof(int64_t) * (size_t)f->n);
}

/* Sorts the items by f->key, the largest first. */
static void fit_sort_order(struct fit *f)
{
  for (int i = 0; i < f->n; i++) f->order[i] = i;
  sort_key = f->key;
  qsort(f->order, (size_t)f->n, sizeof(int), fit_compare_keys_down);
}

/* -- in order of time, with a free list -------------------------------------------------------- */

struct hole {
  int64_t at, size;
};

/* The holes below `top`, where the items so far end; in order of their offsets. */
struct holes {
  struct hole *h;
  int n, cap;
  int64_t top;
};

/* Takes `size` bytes of the tightest hole, or adds them at the top; returns their offset. */
static int64_t fit_take_hole(struct holes *q, int64_t size)
{
  int best = -1;
  for (int k = 0; k < q->n; k++)
    if (q->h[k].size >= size && (best < 0 || q->h[k].size < q->h[best].size)) best = k;
  if (best < 0) { /* grow the last hole if it touches the top */
    int64_t at = q->top;
    if (q->n && q->h[q->n - 1].at + q->h[q->n - 1].size == q->top) at = q->h[--q->n].at;
    q->top = at + size;
    return at;
  }
  int64_t at = q->h[best].at;
  q->h[best].at += size;
  q->h[best].size -= size;
  if (!q->h[best].size)
    memmove(&q->h[best], &q->h[best + 1], sizeof *q->h * (size_t)(--q->n - best));
  return at;
}

/* Gives bytes back, and joins the hole with its neighbours. Returns false without memory. */
static bool fit_give_hole(struct holes *q, int64_t at, int64_t size)
{
  int k = 0;
  while (k < q->n && q->h[k].at < at) k++;
  bool left = k > 0 && q->h[k - 1].at + q->h[k - 1].size == at,
       right = k < q->n && at + size == q->h[k].at;
  if (left && right) {
    q->h[k - 1].size += size + q->h[k].size;
    memmove(&q->h[k], &q->h[k + 1], sizeof *q->h * (size_t)(--q->n - k));
  }
  else if (left)
    q->h[k - 1].size += size;
  else if (right)
    q->h[k].at = at, q->h[k].size += size;
  else {
    if (!GROW(q->h, q->n, q->cap)) return false;
    memmove(&q->h[k + 1], &q->h[k], sizeof *q->h * (size_t)(q->n++ - k));
    q->h[k] = (struct hole){ at, size };
  }
  return true;
}

/* Assigns their offsets to the kept items for good; the gaps between them are the first holes.
** Returns false without memory. */
static bool fit_assign_kept(struct fit *f, struct holes *q)
{
  int n = 0;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] >= 0) f->order[n++] = i, f->offset[i] = f->kept[i];
  sort_key = f->kept;
  qsort(f->order, (size_t)n, sizeof(int), fit_compare_keys_down);
  for (int k = n - 1; k >= 0; k--) { /* from the lowest on */
    const int i = f->order[k];
    const int64_t gap = f->kept[i] - q->top;
    if (gap > 0 && !GROW(q->h, q->n, q->cap)) return false;
    if (gap > 0) q->h[q->n++] = (struct hole){ q->top, gap };
    q->top = MAX(q->top, f->kept[i] + f->bytes[i]);
  }
  return true;
}

static _Thread_local const int *sort_time;            /* of the sort that runs, per item */

/* Compares items for qsort: the earliest comes first, the first item of equal ones. */
static int fit_compare_times(const void *a, const void *b)
{
  int i = *(const int *)a, j = *(const int *)b;
  return sort_time[i] != sort_time[j] ? sort_time[i] - sort_time[j] : i - j;
}

/* Assigns the items in order of their first steps, each to the tightest hole that those leave which
** have ended; returns the bytes that all take, INT64_MAX without memory. */
static int64_t fit_assign_in_time(struct fit *f, const int *first, const int *last)
{
  int *birth = f->order, *death = f->base_order, n = 0;
  struct holes q = { 0 };
  bool ok = fit_assign_kept(f, &q);
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] < 0) birth[n] = death[n] = i, n++;
  sort_time = first;
  qsort(birth, (size_t)n, sizeof(int), fit_compare_times);
  sort_time = last;
  qsort(death, (size_t)n, sizeof(int), fit_compare_times);
  for (int b = 0, d = 0; ok && b < n; b++) {
    for (; d < n && last[death[d]] < first[birth[b]]; d++)
      ok = ok && fit_give_hole(&q, f->offset[death[d]], f->bytes[death[d]]);
    f->offset[birth[b]] = fit_take_hole(&q, f->bytes[birth[b]]);
  }
  mem_free(q.h);
  return ok ? q.top : INT64_MAX;
}

/* Assigns in time, backwards: values are born at their last step. */
static int64_t fit_assign_backwards(struct fit *f)
{
  int end = 0, *first = NEWS(int, f->n), *last = NEWS(int, f->n);
  int64_t total = INT64_MAX;
  for (int i = 0; i < f->n; i++) end = MAX(end, f->last[i]);
  for (int i = 0; first && last && i < f->n; i++)
    first[i] = end - f->last[i], last[i] = end - f->first[i];
  if (first && last) total = fit_assign_in_time(f, first, last);
  mem_free(first);
  mem_free(last);
  return total;
}

/* -- the search -------------------------------------------------------------------------------- */

/* Orders of items. BY_PEAK, what lives at the fullest step by life, is the first, since it meets
** the bound of most programs with gradients. */
enum { BY_PEAK, BY_SIZE, BY_LIFE, BY_AREA, BY_FIRST, BY_LAST, ORDERS };

/* Sets the keys that sort the items in an order. */
static void fit_make_keys(struct fit *f, int kind)
{
  for (int i = 0; i < f->n; i++) {
    int64_t life = f->last[i] - f->first[i] + 1, size = MIN(f->bytes[i] >> 6, 999);
    bool peak = f->first[i] <= f->peak && f->peak <= f->last[i];
    f->key[i] = kind == BY_SIZE ? f->bytes[i]
        : kind == BY_LIFE       ? life * 1000 + size
        : kind == BY_AREA       ? (f->bytes[i] >> 6) * life
        : kind == BY_FIRST      ? -(int64_t)f->first[i]
        : kind == BY_LAST       ? (int64_t)f->last[i]
        : peak                  ? INT64_MAX / 2 + life
                                : f->bytes[i];
  }
}

/* Bounds of a plan's bytes beyond the most that are alive, as a part 1 / bound of the latter. */
enum {
  TIGHT_PART = 500,                                   /* up to it a plan is good enough */
  LOOSE_PART = 25                                     /* above it other orders are improved, too */
};

enum { LARGE_PLAN = 500 };                            /* items; orders take most of a bind's time */

/* Returns whether the best plan may be improved, and is more than one part of `part` above the most
** bytes that are alive. */
static bool fit_is_above_bound(const struct fit *f, int part)
{
  return f->total > f->bound && f->total > f->live + f->live / part;
}

/* Returns the next number of a sequence, and its state in *s. */
static uint32_t fit_next_random(uint32_t *s)
{
  *s ^= *s << 13;
  *s ^= *s >> 17;
  return *s ^= *s << 5;
}

/* Returns an item that ends at the top of the plan, the first after a random one. */
static int fit_find_top_item(const struct fit *f, int64_t total, uint32_t from)
{
  for (int k = 0; k < f->n; k++) {
    int i = (int)((from + (uint32_t)k) % (uint32_t)f->n);
    if (f->offset[i] + f->bytes[i] == total) return i;
  }
  return 0;
}

/* Changes the base order a little, in f->order: moves item i to an earlier position, or, in a third
** of the cases, exchanges two items. */
static void fit_disturb_order(struct fit *f, int i, uint32_t *seed)
{
  int n = f->n, at = 0, to;
  memcpy(f->order, f->base_order, sizeof(int) * (size_t)n);
  if (fit_next_random(seed) % 3 == 0) {
    int a = (int)(fit_next_random(seed) % (uint32_t)n),
        b = (int)(fit_next_random(seed) % (uint32_t)n), moved = f->order[a];
    f->order[a] = f->order[b];
    f->order[b] = moved;
    return;
  }
  while (at < n - 1 && f->order[at] != i) at++;
  to = (int)(fit_next_random(seed) % (uint32_t)(at + 1));
  memmove(&f->order[to + 1], &f->order[to], sizeof(int) * (size_t)(at - to));
  f->order[to] = i;
}

/* Budgets are in pairs of items that are compared, 4 ns each (Zen 5, November 2026). This one is
** that of climbing from an order; a build whose code is slow asks for less. */
#ifndef PLAN_STEPS
#define PLAN_STEPS 24000000
#endif

enum {
  PLAN_STEPS_HELD = 75000,                            /* until what is held is asked: 0.3 ms */
  PLAN_STEPS_QUICK = 250000,                          /* until all plans are looked at: 1 ms */
  PLAN_STEPS_ORDERS = 6000000,                        /* of a large plan, for the orders */
  PLAN_STEPS_LARGE = 3000000,                         /* of a large plan, for climbing */
  /* What a change costs beside its pairs. It counts where offsets are kept, as at each step of a
  ** chain of reshapes. */
  CHANGE_COST = 170
};

static _Thread_local int64_t nchanges;                /* of orders, in all plans of this thread */

int64_t plan_changes(void) { return nchanges; }

/* Improves a good order by hill climbing: an item at the top is moved earlier, or two are
** exchanged; orders of equal size are accepted too. */
static void fit_improve_order(struct fit *f, int64_t budget, uint32_t *seed)
{
  memcpy(f->order, f->base_order, sizeof(int) * (size_t)f->n);
  int64_t current = fit_assign_in_order(f, INT64_MAX),
          cost = (int64_t)f->n * f->n / 4 + f->n + (f->nkept ? CHANGE_COST : 0);
  int top = fit_find_top_item(f, current, *seed);
  for (; fit_is_above_bound(f, TIGHT_PART) && budget > 0; budget -= cost) {
    nchanges++;
    fit_disturb_order(f, top, seed);
    int64_t total = fit_assign_in_order(f, current + 1);
    if (total > current) continue;
    current = total;
    memcpy(f->base_order, f->order, sizeof(int) * (size_t)f->n);
    top = fit_find_top_item(f, current, fit_next_random(seed));
    fit_keep_if_better(f, total);
  }
}

/* -- all plans of few items -------------------------------------------------------------------- */

enum {
  FEW_ITEMS = 16,                                     /* that the search takes */
  MOST_NODES = 5000                                   /* of its tree: about 1 ms */
};

/* Sets of items are bits. */
struct exact {
  struct fit *f;
  uint32_t alive[FEW_ITEMS];                          /* per item: who lives at its first step */
  uint32_t assigned;                                  /* items with an offset, kept ones too */
  uint32_t all;
  int nodes;                                          /* left */
  int64_t limit;                                      /* totals from here on are of no use */
};

/* Returns the lowest offset for item i between the n assigned ones. */
static int64_t fit_find_lowest_offset(const struct exact *x, int i, int n)
{
  const struct fit *f = x->f;
  int64_t at = 0;
  for (int k = 0; k < n; k++) {
    const struct assigned *y = &f->assigned[k];
    if (y->last < f->first[i] || y->first > f->last[i]) continue;
    if (y->offset - at >= f->bytes[i]) break;
    at = MAX(at, y->end);
  }
  return at;
}

/* Returns whether the items that are not assigned fit between `least` and the limit at each
** step. */
static bool fit_accepts_limit(const struct exact *x, int64_t least)
{
  const struct fit *f = x->f;
  for (int t = 0; t < f->n; t++) {
    int64_t need = 0;
    for (uint32_t set = x->alive[t]; set; set &= set - 1) {
      const int i = __builtin_ctz(set);
      const bool assigned = x->assigned >> i & 1;
      const int64_t from = assigned ? MAX(f->offset[i], least) : 0;
      need += assigned ? MAX(f->offset[i] + f->bytes[i] - from, 0) : f->bytes[i];
    }
    if (need && least + need >= x->limit) return false;
  }
  return true;
}

/* Returns whether two items may change places in any plan. */
static bool fit_are_alike(const struct fit *f, int i, int j)
{
  return f->bytes[i] == f->bytes[j] && f->first[i] == f->first[j] && f->last[i] == f->last[j];
}

/* Assigns one more item after the others, each at its lowest offset and none below the one before:
** the best plan is among these. n: items assigned; top: where they end. */
static void fit_assign_next(struct exact *x, int n, int64_t least, int64_t top)
{
  struct fit *f = x->f;
  if (x->nodes-- <= 0) return;
  if (x->assigned == x->all) {
    fit_keep_if_better(f, top);
    x->limit = f->total;
    return;
  }
  if (!fit_accepts_limit(x, least)) return;
  int64_t lowest[FEW_ITEMS];
  for (int i = 0; i < f->n; i++) {
    lowest[i] = x->assigned >> i & 1 ? -1 : fit_find_lowest_offset(x, i, n);
    if (lowest[i] >= 0 && lowest[i] + f->bytes[i] >= x->limit) return;
  }
  for (int i = 0; i < f->n && f->total > f->bound; i++) {
    bool seen = lowest[i] < least;                    /* as another branch, or of an alike item */
    for (int j = 0; j < i && !seen; j++) seen = !(x->assigned >> j & 1) && fit_are_alike(f, i, j);
    if (seen || lowest[i] + f->bytes[i] >= x->limit) continue;
    f->offset[i] = lowest[i];
    fit_insert_assigned(f, i, n);
    x->assigned |= 1u << i;
    fit_assign_next(x, n + 1, lowest[i], MAX(top, lowest[i] + f->bytes[i]));
    x->assigned &= ~(1u << i);
    int k = 0;
    while (f->assigned[k].item != i) k++;
    memmove(&f->assigned[k], &f->assigned[k + 1], sizeof *f->assigned * (size_t)(n - k));
  }
}

/* Looks at all plans of few items for one that is better by more than one part in TIGHT_PART.
** Returns whether it has seen them all. */
static bool fit_search_all(struct fit *f)
{
  if (f->n > FEW_ITEMS) return false;
  struct exact x = { .f = f, .nodes = MOST_NODES, .limit = f->total - f->live / TIGHT_PART };
  int n = 0;
  int64_t top = 0;
  for (int t = 0; t < f->n; t++) {
    x.all |= 1u << t;
    for (int i = 0; i < f->n; i++)
      if (f->first[i] <= f->first[t] && f->first[t] <= f->last[i]) x.alive[t] |= 1u << i;
    if (f->kept[t] < 0) continue;
    f->offset[t] = f->kept[t];
    fit_insert_assigned(f, t, n++);
    x.assigned |= 1u << t;
    top = MAX(top, f->kept[t] + f->bytes[t]);
  }
  fit_assign_next(&x, n, 0, top);
  return x.nodes > 0;
}

/* items; an order takes the square of their number, so beyond this the order of time does */
enum { MOST_SEARCHED = 10000 };

/* Looks for the best plan; the top of the file tells in which order. */
static void fit_search_plans(struct fit *f)
{
  const bool small = f->n < LARGE_PLAN;
  for (int i = 0; i < f->n; i++) f->nkept += f->kept[i] >= 0;
  if (f->nkept) fit_raise_bound(f);
  fit_keep_if_better(f, fit_assign_in_time(f, f->first, f->last));
  if (f->total > f->bound) fit_keep_if_better(f, fit_assign_backwards(f));
  if (!small && !fit_is_above_bound(f, TIGHT_PART)) return;
  int64_t budget = f->nkept ? INT64_MAX
      : small               ? PLAN_STEPS
                            : PLAN_STEPS_ORDERS,
          cost = (int64_t)f->n * f->n / 4 + 1;
  for (int k = 0; k < 2 * ORDERS && f->total > f->bound && (budget >= cost || k == 0);
       k++, budget -= cost) {
    if (f->n > MOST_SEARCHED && f->total < INT64_MAX) return;
    f->lowest = k & 1;
    fit_make_keys(f, k / 2);
    fit_sort_order(f);
    int64_t total = fit_assign_in_order(f, f->total);
    if (k == 0 || total < f->total) memcpy(f->base_order, f->order, sizeof(int) * (size_t)f->n);
    fit_keep_if_better(f, total);
  }
  if (f->n > MOST_SEARCHED || f->total <= f->bound) return;
  f->lowest = true;
  uint32_t seed = 2463534242u;
  if (f->nkept || f->held) {
    fit_improve_order(f, PLAN_STEPS_HELD, &seed);
    if (f->total <= f->held) return;
    fit_improve_order(f, PLAN_STEPS_QUICK - PLAN_STEPS_HELD, &seed);
    if (fit_search_all(f)) return;
  }
  fit_improve_order(f, MIN(budget, small ? PLAN_STEPS : PLAN_STEPS_LARGE), &seed);
  for (int k = 0; small && k < ORDERS && fit_is_above_bound(f, LOOSE_PART); k++) { /* rare */
    fit_make_keys(f, k);
    fit_sort_order(f);
    memcpy(f->base_order, f->order, sizeof(int) * (size_t)f->n);
    fit_improve_order(f, PLAN_STEPS, &seed);
  }
}

int plan_offsets(int n, const int64_t *bytes, const int *first, const int *last, int64_t held,
    int64_t *offset, int64_t *total, int64_t *bound)
{
  int peak = 0;
  *total = *bound = fit_find_peak(n, bytes, first, last, NULL, 0, &peak);
  if (!n) return TY_OK;
  int64_t *kept = NEWS(int64_t, n);
  struct fit f = {
    .n = n,
    .bytes = bytes,
    .first = first,
    .last = last,
    .kept = kept,
    .offset = offset,
    .best = NEWS(int64_t, n),
    .total = INT64_MAX,
    .live = *bound,
    .bound = *bound,
    .held = held,
    .peak = peak,
    .order = NEWS(int, n),
    .assigned = NEWS(struct assigned, n),
    .base_order = NEWS(int, n),
    .key = NEWS(int64_t, n),
  };
  bool complete = kept && f.best && f.order && f.assigned && f.base_order && f.key;
  if (complete) {
    memcpy(kept, offset, sizeof(int64_t) * (size_t)n);
    fit_search_plans(&f);
    memcpy(offset, f.best, sizeof(int64_t) * (size_t)n);
    *total = f.total;
  }
  mem_free(kept);
  mem_free(f.best);
  mem_free(f.order);
  mem_free(f.assigned);
  mem_free(f.base_order);
  mem_free(f.key);
  return complete ? TY_OK : fail(TY_EMEMORY, "out of memory: plan");
}
