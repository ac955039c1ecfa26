/* team_test.c - teams of threads: each call of team_run does all work once, with any number of
** threads that come, sleep, or do not exist.
*/
#include <time.h>
#include "check.h"
#include "base/base.h"
#include "base/parallel.h"
#include "base/team.h"

enum { MOST = 6, PIECES = 500 };

struct work {
  int next, done[PIECES]; /* atomic */
  int calls[MOST];        /* of each member */
  int pause_ns;           /* of each piece */
};

static void pause_for(int ns)
{
  const struct timespec t = { 0, ns };
  if (ns) nanosleep(&t, NULL);
}

static void take_pieces(int member, void *context)
{
  struct work *w = context;
  __atomic_add_fetch(&w->calls[member], 1, __ATOMIC_RELAXED);
  for (int i; (i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < PIECES;) {
    pause_for(w->pause_ns);
    __atomic_add_fetch(&w->done[i], 1, __ATOMIC_RELAXED);
  }
}

/* Returns how many members took part. */
static int run_once(struct team *t, int members, int pause_ns)
{
  struct work w = { .pause_ns = pause_ns };
  int took_part = 0;
  team_run(t, members, members - 1, take_pieces, &w);
  int wrong = 0;
  for (int i = 0; i < PIECES; i++) wrong += w.done[i] != 1;
  CHECK(!wrong, "%d of %d pieces, %d members", wrong, PIECES, members);
  CHECK(w.calls[0] == 1, "%d", w.calls[0]);
  for (int i = 0; i < MOST; i++) {
    CHECK(w.calls[i] <= (i < members), "%d calls of member %d of %d", w.calls[i], i, members);
    took_part += w.calls[i];
  }
  return took_part;
}

static void test_sizes(void)
{
  struct team *t = team_new(MOST);
  for (int i = 0; i < 300; i++) run_once(t, 1 + i * 7 % MOST, 0);
  for (int i = 0; i < 3000; i++) run_once(t, 3, 0);
  team_free(t);
  team_free(team_new(MOST)); /* none was started */
  team_free(NULL);
}

static void count_call(int member, void *context)
{
  __atomic_add_fetch((int *)context + member, 1, __ATOMIC_RELAXED);
}

/* Checks that a thread that is interrupted between two calls serves only the call it finds then,
** and once. The calls are shorter than such an interruption. */
static void test_short_calls(void)
{
  enum { CALLS = 200000 };
  struct team *t = team_new(MOST);
  int wrong = 0;
  for (int i = 0; i < CALLS; i++) {
    int calls[MOST] = { 0 };
    team_run(t, 3, 2, count_call, calls);
    wrong += calls[0] != 1 || calls[1] > 1 || calls[2] > 1;
  }
  CHECK(!wrong, "%d of %d calls ran twice in a thread", wrong, CALLS);
  team_free(t);
}

/* Checks that sleeping threads are woken, and that the owner waits for a slow one. */
static void test_sleep(void)
{
  struct team *t = team_new(MOST);
  int took_part = 0;
  for (int i = 0; i < 5; i++) {
    pause_for(5000000);
    took_part = MAX(took_part, run_once(t, MOST, 50000));
  }
  CHECK(took_part > 1, "no thread was woken");
  team_free(t);
}

static void add_one(int64_t begin, int64_t end, void *context)
{
  int *seen = context;
  for (int64_t i = begin; i < end; i++) __atomic_add_fetch(&seen[i], 1, __ATOMIC_RELAXED);
}

static int misnamed; /* atomic: members with a wrong number */

static void add_nested(int64_t begin, int64_t end, void *context)
{
  const int member = parallel_index(), members = parallel_threads();
  if (member >= members || members > parallel_most())
    __atomic_add_fetch(&misnamed, 1, __ATOMIC_RELAXED);
  for (int64_t i = begin; i < end; i++)
    parallel_chunks(100, 10, add_one, (int *)context + i * 100);
  if (parallel_index() != member || parallel_threads() != members)
    __atomic_add_fetch(&misnamed, 1, __ATOMIC_RELAXED);
}

/* Checks loops of the calling thread, which acts as a queue's: it takes a team of changing size
** and gives it back. */
static void test_loops(void)
{
  static int seen[10000];
  const int before = ty_threads(0);
  for (int round = 0; round < 50; round++) {
    ty_threads(1 + round % 4);
    parallel_queue(true);
    parallel_chunks(10000, 77, add_one, seen);
    parallel_chunks(100, 3, add_nested, seen);
    CHECK(parallel_index() == 0, "%d", parallel_index());
    parallel_queue(false);
  }
  CHECK(!misnamed, "%d", misnamed);
  int wrong = 0;
  for (int i = 0; i < 10000; i++) wrong += seen[i] != 100;
  CHECK(!wrong, "%d of 10000", wrong);
  ty_threads(before);
}

int main(void)
{
  setenv("TYCHO_THREADS", "4", 1);
  test_sizes();
  test_short_calls();
  test_sleep();
  test_loops();
  parallel_close();
  return check_end();
}
