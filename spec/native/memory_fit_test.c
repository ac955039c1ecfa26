/* memory_fit_test.c - places of values, with and without kept places: small cases against an
** exhaustive search, and how many changes the planner makes in large ones.
*/
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "pass/passes.h"

enum { MOST = 7, STEPS = 5, INSTANCES = 3000 };

struct items {
  int n, first[MOST], last[MOST];
  int64_t bytes[MOST], kept[MOST];
  int64_t place[MOST], best;
};

static uint32_t seed = 12345;
static int draw_below(int n)
{
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (uint32_t)n);
}

static bool at_once(const struct items *x, int i, int j)
{
  return x->first[i] <= x->last[j] && x->first[j] <= x->last[i];
}

static bool do_overlap(const struct items *x, int i, int j)
{
  return at_once(x, i, j) && x->place[i] < x->place[j] + x->bytes[j] &&
      x->place[j] < x->place[i] + x->bytes[i];
}

static bool is_free(const struct items *x, int i, const bool *placed)
{
  for (int j = 0; j < x->n; j++)
    if (placed[j] && do_overlap(x, i, j)) return false;
  return true;
}

/* Tries all orders of the items that are not placed: in the lowest plan each item is at 0 or where
** another one ends. */
static void try_all(struct items *x, bool *placed, int64_t top)
{
  bool any = false;
  if (top >= x->best) return;
  for (int i = 0; i < x->n; i++) {
    if (placed[i]) continue;
    any = true;
    int64_t lowest = -1;
    for (int j = -1; j < x->n; j++) {
      if (j >= 0 && !placed[j]) continue;
      x->place[i] = j < 0 ? 0 : x->place[j] + x->bytes[j];
      if (is_free(x, i, placed) && (lowest < 0 || x->place[i] < lowest)) lowest = x->place[i];
    }
    x->place[i] = lowest;
    placed[i] = true;
    int64_t end = lowest + x->bytes[i];
    try_all(x, placed, end > top ? end : top);
    placed[i] = false;
  }
  if (!any) x->best = top;
}

/* Draws items, of which the first nkept live to the end and have places, as outputs do. */
static void draw_items(struct items *x, int nkept)
{
  bool placed[MOST] = { false };
  int64_t top = 0;
  x->n = 2 + draw_below(MOST - 1);
  x->best = INT64_MAX;
  for (int i = 0; i < x->n; i++) {
    x->first[i] = draw_below(STEPS);
    x->last[i] = i < nkept ? STEPS : x->first[i] + draw_below(STEPS - x->first[i]);
    x->bytes[i] = ALIGN * (1 + draw_below(draw_below(2) ? 4 : 200));
    x->kept[i] = -1;
    if (i >= nkept) continue;
    do
      x->place[i] = ALIGN * draw_below(500);
    while (!is_free(x, i, placed));
    x->kept[i] = x->place[i];
    placed[i] = true;
    if (x->kept[i] + x->bytes[i] > top) top = x->kept[i] + x->bytes[i];
  }
  try_all(x, placed, top);
}

static void test_against_all_plans(void)
{
  for (int k = 0; k < INSTANCES; k++) {
    struct items x;
    int64_t total, bound;
    draw_items(&x, k % 3);
    memcpy(x.place, x.kept, sizeof x.place);
    RUN(plan_offsets(x.n, x.bytes, x.first, x.last, 0, x.place, &total, &bound));
    CHECK(total <= x.best + bound / 500, "instance %d: %lld bytes, but %lld would do", k,
        (long long)total, (long long)x.best);
    for (int i = 0; i < x.n; i++) {
      CHECK(x.kept[i] < 0 || x.place[i] == x.kept[i], "instance %d: item %d was moved", k, i);
      CHECK(x.place[i] + x.bytes[i] <= total, "instance %d: item %d ends late", k, i);
      for (int j = 0; j < i; j++) CHECK(!do_overlap(&x, i, j), "instance %d: %d and %d", k, i, j);
    }
  }
}

/* Checks a convolution with scratch whose output keeps the place that a smaller network gave it,
** in the middle of the free space. No plan reaches the lower bound, and no search is made. */
static void test_kept_output_costs_no_search(void)
{
  const int first[] = { 0, 1, 0 }, last[] = { 1, 2, 0 };
  const int64_t bytes[] = { 73728, 64, 27776 };
  int64_t place[] = { -1, 32768, -1 }, total, bound, before = plan_changes();
  RUN(plan_offsets(3, bytes, first, last, 0, place, &total, &bound));
  CHECK(total == 73728 + 32832 && bound == 73728 + 27776, "%lld of %lld", (long long)total,
      (long long)bound);
  CHECK(plan_changes() == before, "%lld changes", (long long)(plan_changes() - before));
}

/* Checks items that do not fit below a kept place, though it has room for more bytes. */
static void test_holes_that_no_sum_fills(void)
{
  enum { N = 8 };
  int first[N], last[N];
  int64_t bytes[N], place[N], total, bound, before = plan_changes();
  for (int i = 0; i < N; i++) {
    first[i] = 0;
    last[i] = 1;
    bytes[i] = i ? 1152 * ALIGN : ALIGN;
    place[i] = i ? -1 : 3078 * ALIGN; /* two of 1,152 units fit below, not two and a half */
  }
  RUN(plan_offsets(N, bytes, first, last, 0, place, &total, &bound));
  CHECK(total == (3079 + 5 * 1152) * ALIGN, "%lld", (long long)total);
  CHECK(plan_changes() == before, "%lld changes", (long long)(plan_changes() - before));
}

/* Checks seven outputs that stay where a larger network had them, with values between them. */
static void test_bytes_held_cost_no_long_search(void)
{
  enum { N = 60, KEPT = 7, TRIALS = 50 };
  int first[N], last[N];
  int64_t bytes[N], place[N], total, bound, top = 0;
  for (int trial = 0; trial < TRIALS; trial++) {
    top = 0;
    for (int i = 0; i < N; i++) {
      first[i] = draw_below(N);
      last[i] = i < KEPT ? N : first[i] + draw_below(MIN(8, N - first[i]));
      bytes[i] = ALIGN * (1 + draw_below(300));
      place[i] = i < KEPT ? top + ALIGN * draw_below(900) : -1;
      if (i < KEPT) top = place[i] + bytes[i];
    }
    const int64_t before = plan_changes();
    RUN(plan_offsets(N, bytes, first, last, 2 * top, place, &total, &bound));
    CHECK(total <= 2 * top, "%lld of %lld", (long long)total, (long long)top);
    CHECK(plan_changes() - before < 100, "%lld changes", (long long)(plan_changes() - before));
  }
}

int main(void)
{
  test_against_all_plans();
  test_kept_output_costs_no_search();
  test_holes_that_no_sum_fills();
  test_bytes_held_cost_no_long_search();
  return check_end();
}
