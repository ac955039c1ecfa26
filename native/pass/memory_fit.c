/* memory_fit.c - offsets for values with known sizes and lifetimes, in as little memory as
** possible.
**
** The lower bound is the largest sum of bytes alive at one step. Several orders of placing are
** tried, each at the tightest gap that is free for the whole life of the value (Pisarchyk & Lee,
** arXiv 2001.03288, for order by size), or the lowest; the smallest total wins, and the search
** ends as soon as one meets the bound. When none does, the best order is changed a little, again
** and again, and kept when it is no worse, until 0.2 % above the bound or a budget is met;
** rarely (still 4 % above), the other orders are climbed from as well. Cost: O(n^2) an order;
** for large n one pass in order of time with a free list, O(n log n), comes first, and the
** others only within a budget.
*/
#include "pass/passes.h"

struct fit {
  int n;
  const int64_t *bytes;
  const int *first, *last;
  const int64_t *kept;                                /* >= 0: a place that may not change */
  int64_t *offset, *best, total;
  int64_t bound;
  int peak;                                           /* the step that needs it */
  /* which gap: the lowest (every plan is some order's so), else the tightest */
  bool lowest;
  int *order, *assigned, *good;                         /* good: the order to climb from */
  int64_t *key;
};

static int64_t lower_bound(
    int n, const int64_t *bytes, const int *first, const int *last, int *when)
{
  int end = 0;
  for (int i = 0; i < n; i++) end = MAX(end, last[i] + 2);
  int64_t *delta = NEWS(int64_t, end + 1), live = 0, peak = 0;
  if (!delta) return 0;
  for (int i = 0; i < n; i++) delta[first[i]] += bytes[i], delta[last[i] + 1] -= bytes[i];
  for (int t = 0; t < end; t++) {
    live += delta[t];
    if (live > peak) peak = live, *when = t;
  }
  mem_free(delta);
  return peak;
}

/* -- one order --------------------------------------------------------------------------------- */

/* Places item i at the tightest gap (or the lowest one that fits) among placed items (sorted by
** offset) alive with it. */
static int64_t best_gap(const struct fit *f, int i, int assigned)
{
  int64_t at = 0, best = -1, gap = INT64_MAX;
  for (int k = 0; k < assigned; k++) {
    int j = f->assigned[k];
    if (f->last[j] < f->first[i] || f->first[j] > f->last[i]) continue;
    int64_t hole = f->offset[j] - at;
    if (hole >= f->bytes[i] && hole < gap) gap = hole, best = at;
    if (best >= 0 && f->lowest) break;
    at = MAX(at, f->offset[j] + f->bytes[j]);
  }
  return best >= 0 ? best : at;
}

static void insert(struct fit *f, int i, int assigned)
{
  int k = assigned;
  for (; k > 0 && f->offset[f->assigned[k - 1]] > f->offset[i]; k--)
    f->assigned[k] = f->assigned[k - 1];
  f->assigned[k] = i;
}

static int64_t assign_in_order(struct fit *f, int64_t limit)
{
  int assigned = 0;
  int64_t total = 0;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] >= 0)
      f->offset[i] = f->kept[i], insert(f, i, assigned++),
      total = MAX(total, f->offset[i] + f->bytes[i]);
  for (int k = 0; k < f->n; k++) {
    int i = f->order[k];
    if (f->kept[i] >= 0) continue;
    f->offset[i] = best_gap(f, i, assigned);
    insert(f, i, assigned++);
    total = MAX(total, f->offset[i] + f->bytes[i]);
    if (total >= limit) return INT64_MAX; /* cannot win any more */
  }
  return total;
}

static void keep_if_better(struct fit *f, int64_t total)
{
  if (total >= f->total) return;
  f->total = total;
  memcpy(f->best, f->offset, sizeof(int64_t) * (size_t)f->n);
}

static _Thread_local const int64_t *sort_key;
static int by_key(const void *a, const void *b)
{
  int i = *(const int *)a, j = *(const int *)b;
  return sort_key[i] != sort_key[j] ? (sort_key[i] > sort_key[j] ? -1 : 1) : i - j;
}

static void sort_order(struct fit *f)
{
  for (int i = 0; i < f->n; i++) f->order[i] = i;
  sort_key = f->key;
  qsort(f->order, (size_t)f->n, sizeof(int), by_key);
}

/* -- in order of time, with a free list -------------------------------------------------------- */

struct hole { int64_t at, size; };
struct holes { struct hole *h; int n, cap; int64_t top; };

static int64_t take_hole(struct holes *q, int64_t size)
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

static bool give_hole(struct holes *q, int64_t at, int64_t size)
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

/* What is kept holds its place for good; the gaps between are the first holes. */
static bool hold_kept(struct fit *f, struct holes *q)
{
  int n = 0;
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] >= 0) f->order[n++] = i, f->offset[i] = f->kept[i];
  sort_key = f->kept;
  qsort(f->order, (size_t)n, sizeof(int), by_key);
  for (int k = n - 1; k >= 0; k--) { /* from the lowest on */
    const int i = f->order[k];
    const int64_t gap = f->kept[i] - q->top;
    if (gap > 0 && !GROW(q->h, q->n, q->cap)) return false;
    if (gap > 0) q->h[q->n++] = (struct hole){ q->top, gap };
    q->top = MAX(q->top, f->kept[i] + f->bytes[i]);
  }
  return true;
}

static _Thread_local const int *sort_time;
static int by_time(const void *a, const void *b)
{
  int i = *(const int *)a, j = *(const int *)b;
  return sort_time[i] != sort_time[j] ? sort_time[i] - sort_time[j] : i - j;
}

static int64_t assign_in_time(struct fit *f, const int *first, const int *last)
{
  int *birth = f->order, *death = f->assigned, n = 0;
  struct holes q = { 0 };
  bool ok = hold_kept(f, &q);
  for (int i = 0; i < f->n; i++)
    if (f->kept[i] < 0) birth[n] = death[n] = i, n++;
  sort_time = first;
  qsort(birth, (size_t)n, sizeof(int), by_time);
  sort_time = last;
  qsort(death, (size_t)n, sizeof(int), by_time);
  for (int b = 0, d = 0; ok && b < n; b++) {
    for (; d < n && last[death[d]] < first[birth[b]]; d++)
      ok = ok && give_hole(&q, f->offset[death[d]], f->bytes[death[d]]);
    f->offset[birth[b]] = take_hole(&q, f->bytes[birth[b]]);
  }
  mem_free(q.h);
  return ok ? q.top : INT64_MAX;
}

/* The same backwards: values are born at their last step. */
static int64_t assign_backwards(struct fit *f)
{
  int end = 0, *first = NEWS(int, f->n), *last = NEWS(int, f->n);
  int64_t total = INT64_MAX;
  for (int i = 0; i < f->n; i++) end = MAX(end, f->last[i]);
  for (int i = 0; first && last && i < f->n; i++)
    first[i] = end - f->last[i], last[i] = end - f->first[i];
  if (first && last) total = assign_in_time(f, first, last);
  mem_free(first);
  mem_free(last);
  return total;
}

/* -- the search -------------------------------------------------------------------------------- */

/* BY_PEAK: what lives at the fullest step, by life */
enum { BY_SIZE, BY_LIFE, BY_AREA, BY_FIRST, BY_LAST, BY_PEAK, KINDS };
static void make_key(struct fit *f, int kind)
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

static uint32_t next_random(uint32_t *s)
{
  *s ^= *s << 13;
  *s ^= *s >> 17;
  return *s ^= *s << 5;
}

/* An item that ends at the top of the placement; searched from a random place on. */
static int top_item(const struct fit *f, int64_t total, uint32_t from)
{
  for (int k = 0; k < f->n; k++) {
    int i = (int)((from + (uint32_t)k) % (uint32_t)f->n);
    if (f->offset[i] + f->bytes[i] == total) return i;
  }
  return 0;
}

/* Moves item i of the order to place `to`, or (swap) lets two random items change places. */
static void disturb(struct fit *f, int i, uint32_t *seed)
{
  int n = f->n, at = 0, to;
  memcpy(f->order, f->good, sizeof(int) * (size_t)n);
  if (next_random(seed) % 3 == 0) {
    int a = (int)(next_random(seed) % (uint32_t)n), b = (int)(next_random(seed) % (uint32_t)n),
        keep = f->order[a];
    f->order[a] = f->order[b];
    f->order[b] = keep;
    return;
  }
  while (at < n - 1 && f->order[at] != i) at++;
  to = (int)(next_random(seed) % (uint32_t)(at + 1));
  memmove(&f->order[to + 1], &f->order[to], sizeof(int) * (size_t)(at - to));
  f->order[to] = i;
}

/* of the search; a build whose code is slow asks for fewer */
#ifndef PLAN_STEPS
#define PLAN_STEPS 24000000
#endif

/* Climbs from a good order: an item at the top goes earlier, or two change places; equal totals
** are taken too. */
static void improve(struct fit *f, int64_t budget, uint32_t *seed)
{
  memcpy(f->order, f->good, sizeof(int) * (size_t)f->n);
  int64_t current = assign_in_order(f, INT64_MAX), one = (int64_t)f->n * f->n / 4 + f->n;
  int top = top_item(f, current, *seed);
  for (; f->total > f->bound + f->bound / 500 && budget > 0; budget -= one) {
    disturb(f, top, seed);
    int64_t total = assign_in_order(f, current + 1);
    if (total > current) continue;
    current = total;
    memcpy(f->good, f->order, sizeof(int) * (size_t)f->n);
    top = top_item(f, current, next_random(seed));
    keep_if_better(f, total);
  }
}

/* values; an order takes the square of their number, so beyond this the order of time does */
enum { MOST_SEARCHED = 10000 };

static void search(struct fit *f)
{
  bool any_kept = false, small = f->n < 500;
  for (int i = 0; i < f->n; i++) any_kept |= f->kept[i] >= 0;
  keep_if_better(f, assign_in_time(f, f->first, f->last));
  if (f->total > f->bound) keep_if_better(f, assign_backwards(f));
  int64_t budget = any_kept ? INT64_MAX
      : small               ? PLAN_STEPS
                            : INT64_C(6000000),
          one = (int64_t)f->n * f->n / 4 + 1;
  for (int k = 0; k < 2 * KINDS && f->total > f->bound && (budget >= one || k == 0);
       k++, budget -= one) {
    if (f->n > MOST_SEARCHED && f->total < INT64_MAX) return;
    f->lowest = k & 1;
    make_key(f, k / 2);
    sort_order(f);
    int64_t total = assign_in_order(f, f->total);
    if (k == 0 || total < f->total) memcpy(f->good, f->order, sizeof(int) * (size_t)f->n);
    keep_if_better(f, total);
  }
  if (f->n > MOST_SEARCHED || f->total <= f->bound) return;
  f->lowest = true;
  uint32_t seed = 2463534242u;
  improve(f, MIN(budget, small ? PLAN_STEPS : INT64_C(3000000)), &seed);
  for (int k = 0; small && k < KINDS && f->total > f->bound + f->bound / 25;
       k++) { /* rare: from other orders */
    make_key(f, k);
    sort_order(f);
    memcpy(f->good, f->order, sizeof(int) * (size_t)f->n);
    improve(f, PLAN_STEPS, &seed);
  }
}

int plan_offsets(int n, const int64_t *bytes, const int *first, const int *last, int64_t *offset,
    int64_t *total, int64_t *bound)
{
  int worst = 0;
  *total = *bound = lower_bound(n, bytes, first, last, &worst);
  if (!n) return TY_OK;
  int64_t *kept = NEWS(int64_t, n);
  struct fit f = { n, bytes, first, last, kept, offset, NEWS(int64_t, n), INT64_MAX, *bound, worst,
    false, NEWS(int, n), NEWS(int, n), NEWS(int, n), NEWS(int64_t, n) };
  bool complete = kept && f.best && f.order && f.assigned && f.good && f.key;
  if (complete) {
    memcpy(kept, offset, sizeof(int64_t) * (size_t)n);
    search(&f);
    memcpy(offset, f.best, sizeof(int64_t) * (size_t)n);
    *total = f.total;
  }
  mem_free(kept);
  mem_free(f.best);
  mem_free(f.order);
  mem_free(f.assigned);
  mem_free(f.good);
  mem_free(f.key);
  return complete ? TY_OK : fail(TY_EMEMORY, "out of memory: plan");
}
